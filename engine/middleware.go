package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"runtime/debug"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/hydrant-mcp/hydrant/internal/paniclog"
)

// run is what the middleware needs to know of the message that is being handled. It travels in the context's values,
// which the SDK passes on; the context's end and deadline it does not.
type run struct {
	ctx      context.Context
	log      *slog.Logger
	internal bool
}

type runKey struct{}

// Internal says that ctx belongs to a question of Hydrant's own to the server, not to a client's request: it lists the tools to
// check Mcp-Param-* headers, and asks what the server announces before a stream waits for that. Middleware of yours that
// filters, counts or asks who it is can let it pass.
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
				r.log.ErrorContext(ctx, "panic in an MCP handler", "method", method, "panic", paniclog.Value(p),
					"stack", string(debug.Stack()))
				res, err = panicked(method)
			}
		}()
		res, err = next(ctx, method, req)
		if err != nil || strings.HasPrefix(method, "notifications/") {
			return nil, err
		}
		return encodable(res)
	}
}

// sending encodes a question once before the SDK does: it asks the questions that a handler returns for a legacy client from
// goroutines of its own, where a panic of a user's encoder would end the process.
func sending(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (res mcp.Result, err error) {
		if _, ok := ctx.Value(runKey{}).(*run); ok && !strings.HasPrefix(method, "notifications/") {
			if err := encodableParams(req.GetParams()); err != nil {
				return nil, fmt.Errorf("encoding the params of %s: %w", method, err)
			}
		}
		return next(ctx, method, req)
	}
}

func encodableParams(p mcp.Params) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %s", paniclog.Value(p))
		}
	}()
	_, err = marshal(p)
	return err
}

const panicMessage = "the handler panicked; the server's log has the details"

func panicked(method string) (mcp.Result, error) {
	if method == "tools/call" {
		return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: panicMessage}}}, nil
	}
	return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: panicMessage}
}

// encodable encodes a result once, here, where a panic of a user's encoder can still be recovered and an error of it can
// still be told to the client: in the SDK's own goroutine the one would end the process and the other the response. The
// result stays what it is, because the SDK has yet to complete it; only what a tool gave as structured content, which may be
// large, is kept in its encoded form.
func encodable(res mcp.Result) (mcp.Result, error) {
	if v := reflect.ValueOf(res); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, errNoResult
	}
	if r, ok := res.(*mcp.CallToolResult); ok && r.StructuredContent != nil {
		raw, err := marshal(r.StructuredContent)
		if err != nil {
			return nil, fmt.Errorf("encoding the tool's structured content: %w", err)
		}
		encoded := *r
		encoded.StructuredContent = raw
		res = &encoded
	}
	if _, err := marshal(res); err != nil {
		return nil, fmt.Errorf("encoding the result: %w", err)
	}
	return res, nil
}

var errNoResult = &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the handler returned neither a result nor an error"}

func marshal(v any) (json.RawMessage, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false) // as the SDK does
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(out.Bytes(), "\n"), nil
}
