// Package longrun is an MCP server with a tool that takes its time: it reports its progress, and stops when the client
// cancels. What happens to its answer when the client's connection breaks is no business of the tool's: Hydrant keeps
// it, and the client fetches it from any instance.
//
//	examples/longrun/local      two instances over one store, on http://127.0.0.1:8081/mcp and :8082/mcp
//	examples/longrun/client     a client that loses its connection to one, and gets the rest from the other
package longrun

import (
	"context"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxSteps bounds the work of one call.
const maxSteps = 1000

// A Step does one part of the work, and returns early when ctx ends.
type Step func(ctx context.Context, number int) error

// Pause is a [Step] that takes some time and does nothing.
func Pause(d time.Duration) Step {
	return func(ctx context.Context, _ int) error {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// NewServer returns the MCP server. Its tool, work, takes as many steps as it is told.
func NewServer(step Step) *mcp.Server {
	m := mcp.NewServer(&mcp.Implementation{Name: "longrun", Title: "Long work", Version: "1.0.0"}, &mcp.ServerOptions{
		// The list of tools never changes, and a client that waits for news holds an instance.
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}},
	})
	mcp.AddTool(m, &mcp.Tool{
		Name: "work", Title: "Work for a while", Description: "Works step by step, and says how far it is.",
		Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: new(false)},
	}, worker{step}.work)
	return m
}

type worker struct{ step Step }

type workInput struct {
	Steps int `json:"steps" jsonschema:"how many steps to take, 1 to 1000"`
}

// work is the tool. Its context ends when the client cancels the call, and at the deadline of the platform: a tool that
// passes it on to whatever it waits for stops by itself. It does not end when a legacy client's connection breaks; the
// client comes back for the result. A modern client says by closing the connection that it does not want one.
func (w worker) work(ctx context.Context, req *mcp.CallToolRequest, in workInput) (*mcp.CallToolResult, any, error) {
	if in.Steps < 1 || in.Steps > maxSteps {
		return nil, nil, fmt.Errorf("steps must be 1 to %d", maxSteps)
	}
	for n := 1; n <= in.Steps; n++ {
		if err := w.step(ctx, n); err != nil {
			return nil, nil, fmt.Errorf("stopped in step %d: %w", n, err)
		}
		if err := report(ctx, req, n, in.Steps); err != nil {
			return nil, nil, err
		}
	}
	return &mcp.CallToolResult{Content: []mcp.Content{
		&mcp.TextContent{Text: fmt.Sprintf("All %d steps are done.", in.Steps)},
	}}, nil, nil
}

// report tells the client how far the work is, if it has asked for that with a progress token.
func report(ctx context.Context, req *mcp.CallToolRequest, done, of int) error {
	token := req.Params.GetProgressToken()
	if token == nil {
		return nil
	}
	return req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
		ProgressToken: token, Progress: float64(done), Total: float64(of), Message: fmt.Sprintf("step %d of %d", done, of),
	})
}
