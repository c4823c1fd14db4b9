package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// run is what the middleware needs to know of the message that is being handled. It travels in the context's values,
// which the SDK passes on; the context's end and deadline it does not.
type run struct {
	ctx      context.Context
	log      *slog.Logger
	internal bool
}

type runKey struct{}

// Internal says that ctx belongs to a question of Hydrant's own to the server (it lists the tools to check Mcp-Param-*
// headers), not to a client's request. Middleware of yours that filters or counts can let it pass.
func Internal(ctx context.Context) bool {
	r, ok := ctx.Value(runKey{}).(*run)
	return ok && r.internal
}

// middleware gives a handler the end and the deadline of the message's context, and turns a panic into an error, also one
// that would happen later, when the SDK encodes the result in a goroutine of its own.
func middleware(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (res mcp.Result, err error) {
		r, ok := ctx.Value(runKey{}).(*run)
		if !ok { // a session of another transport
			return next(ctx, method, req)
		}
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(r.ctx, func() { cancel(context.Cause(r.ctx)) })()
		if deadline, ok := r.ctx.Deadline(); ok {
			var stop context.CancelFunc
			ctx, stop = context.WithDeadline(ctx, deadline)
			defer stop()
		}
		defer func() {
			if p := recover(); p != nil {
				r.log.ErrorContext(ctx, "panic in an MCP handler", "method", method, "panic", fmt.Sprint(p),
					"stack", string(debug.Stack()))
				res, err = panicked(method)
			}
		}()
		res, err = next(ctx, method, req)
		if err != nil {
			return nil, err
		}
		return encodable(res)
	}
}

const panicMessage = "the handler panicked; the server's log has the details"

func panicked(method string) (mcp.Result, error) {
	if method == "tools/call" {
		return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: panicMessage}}}, nil
	}
	return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: panicMessage}
}

// encodable runs the encoders that belong to the user, while a panic of theirs can still be recovered and an error of
// theirs can still be told to the client.
func encodable(res mcp.Result) (mcp.Result, error) {
	switch r := res.(type) {
	case *mcp.CallToolResult:
		if r == nil || r.StructuredContent == nil {
			return res, nil
		}
		if _, done := r.StructuredContent.(json.RawMessage); done {
			return res, nil
		}
		raw, err := marshal(r.StructuredContent)
		if err != nil {
			return nil, fmt.Errorf("encoding the tool's structured content: %w", err)
		}
		encoded := *r
		encoded.StructuredContent = raw
		return &encoded, nil
	case nil, *mcp.InitializeResult, *mcp.DiscoverResult, *mcp.ListToolsResult, *mcp.ListPromptsResult,
		*mcp.ListResourcesResult, *mcp.ListResourceTemplatesResult, *mcp.ReadResourceResult, *mcp.GetPromptResult,
		*mcp.CompleteResult:
		return res, nil
	default: // of a custom method
		if _, err := marshal(res); err != nil {
			return nil, fmt.Errorf("encoding the result: %w", err)
		}
		return res, nil
	}
}

func marshal(v any) (json.RawMessage, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false) // as the SDK does
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(out.Bytes(), "\n"), nil
}
