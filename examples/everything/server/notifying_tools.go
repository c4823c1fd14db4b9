//lint:file-ignore SA1019 Logging is deprecated as of 2026-07-28 and stays in the suite and in use.

package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/hydrant-mcp/hydrant/handler"
)

// step is the time between two notifications of the suite's tools.
const step = 50 * time.Millisecond

// addNotifyingTools adds the suite's tools that tell the client something beside their result.
func addNotifyingTools(s *mcp.Server) {
	mcp.AddTool(s, &mcp.Tool{
		Name: "test_tool_with_logging", Description: "Sends three log messages.", InputSchema: noInput,
	}, loggingTool)
	mcp.AddTool(s, &mcp.Tool{
		Name: "test_logging_tool", Description: "Sends a log message.", InputSchema: noInput,
	}, oneLogTool)
	mcp.AddTool(s, &mcp.Tool{
		Name: "test_tool_with_progress", Description: "Reports progress three times.", InputSchema: noInput,
	}, progressTool)
	mcp.AddTool(s, &mcp.Tool{
		Name: "test_reconnection", Description: "Closes its event stream before it answers (SEP-1699).",
		InputSchema: noInput,
	}, reconnectionTool)

	// Adding what is there already announces a change and changes nothing. A tool or a prompt that really came and went
	// would be listed by this process alone.
	var toolChange mcp.ToolHandlerFor[any, any]
	addToolChange := func() {
		mcp.AddTool(s, &mcp.Tool{
			Name: "test_trigger_tool_change", Description: "Announces that the list of tools has changed.",
			InputSchema: noInput,
		}, toolChange)
	}
	toolChange = func(ctx context.Context, _ *mcp.CallToolRequest, _ any) (*mcp.CallToolResult, any, error) {
		err := announce(ctx, handler.ListTools, addToolChange)
		return text("A change of the tools was announced."), nil, err
	}
	addToolChange()
	mcp.AddTool(s, &mcp.Tool{
		Name: "test_trigger_prompt_change", Description: "Announces that the list of prompts has changed.",
		InputSchema: noInput,
	}, func(ctx context.Context, _ *mcp.CallToolRequest, _ any) (*mcp.CallToolResult, any, error) {
		err := announce(ctx, handler.ListPrompts, func() { s.AddPrompt(simplePrompt, getSimplePrompt) })
		return text("A change of the prompts was announced."), nil, err
	})
}

// announce says on every instance that a list has changed. On a transport of the SDK's, a change of the list does: again
// makes one.
func announce(ctx context.Context, kind handler.ListKind, again func()) error {
	err := handler.NotifyListChanged(ctx, kind)
	if errors.Is(err, handler.ErrOutside) {
		again()
		return nil
	}
	return err
}

func loggingTool(ctx context.Context, req *mcp.CallToolRequest, _ any) (*mcp.CallToolResult, any, error) {
	for i, message := range []string{"Tool execution started", "Tool processing data", "Tool execution completed"} {
		if i > 0 {
			if err := wait(ctx, step); err != nil {
				return nil, nil, err
			}
		}
		logMessage(ctx, req, "info", message)
	}
	return text("Three messages were logged."), nil, nil
}

func oneLogTool(ctx context.Context, req *mcp.CallToolRequest, _ any) (*mcp.CallToolResult, any, error) {
	logMessage(ctx, req, "info", "test_logging_tool was called")
	return text("One message was logged, if the client asked for messages."), nil, nil
}

func progressTool(ctx context.Context, req *mcp.CallToolRequest, _ any) (*mcp.CallToolResult, any, error) {
	for i, done := range []float64{0, 50, 100} {
		if i > 0 {
			if err := wait(ctx, step); err != nil {
				return nil, nil, err
			}
		}
		notifyProgress(ctx, req, done, 100)
	}
	return text("progress token: %v", req.Params.GetProgressToken()), nil, nil
}

// reconnectionTool gives the client something to fetch: it answers once the stream that the call came on has closed. On
// a transport that cannot close the stream it answers on it.
func reconnectionTool(ctx context.Context, req *mcp.CallToolRequest, _ any) (*mcp.CallToolResult, any, error) {
	if req.Extra != nil && req.Extra.CloseSSEStream != nil {
		req.Extra.CloseSSEStream(mcp.CloseSSEStreamArgs{RetryAfter: 10 * time.Millisecond})
	}
	if err := wait(ctx, 100*time.Millisecond); err != nil {
		return nil, nil, err
	}
	return text("The stream was closed and the result was fetched."), nil, nil
}

// wait sleeps for d, or until ctx ends and then returns its error.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stopped waiting: %w", context.Cause(ctx))
	}
}

// notifyProgress reports progress if the client has sent a token to report it under. What is not delivered is not worth
// failing a call for.
func notifyProgress(ctx context.Context, req *mcp.CallToolRequest, done, total float64) {
	token := req.Params.GetProgressToken()
	if token == nil {
		return
	}
	_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
		ProgressToken: token,
		Progress:      done,
		Total:         total,
		Message:       fmt.Sprintf("%v of %v", done, total),
	})
}

// logMessage sends a log message. The session drops it where the client has not asked for its level.
func logMessage(ctx context.Context, req *mcp.CallToolRequest, level mcp.LoggingLevel, data any) {
	_ = req.Session.Log(ctx, &mcp.LoggingMessageParams{Level: level, Logger: Name, Data: data})
}
