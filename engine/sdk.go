package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	sdkjson "github.com/segmentio/encoding/json"

	"github.com/hydrant-mcp/hydrant/internal/rawjson"
)

// ErrAbandoned says that a handler did not return although its context had ended. It goes on running, and nothing of it
// reaches anybody any more.
var ErrAbandoned = errors.New("the handler ignores that its context has ended")

// grace is how long a handler has to return after its context ended, before it is abandoned.
const grace = 250 * time.Millisecond

// Options of [New]. The zero value is usable.
type Options struct {
	// Logger takes panics and abandoned handlers. Default: slog.Default().
	Logger *slog.Logger
	// Versions says which protocol versions server/discover may offer, of those that the server has. Default: all.
	Versions func(version string) bool
}

// sdk is the official SDK's server as an engine.
type sdk struct {
	server *mcp.Server
	log    *slog.Logger
	opts   Options
	tools  *toolSchemas
}

// New makes an engine of the official SDK's server. Every message gets a server session of its own, connected for as long
// as the message is handled.
//
// A server gets one receiving middleware of Hydrant's, however many engines are made of it. It is outside of the
// middleware that the server has by then, and it is what turns panics into errors: add yours before.
func New(server *mcp.Server, opts *Options) Engine {
	e := &sdk{server: server, tools: adopt(server)}
	if opts != nil {
		e.opts = *opts
	}
	if e.log = e.opts.Logger; e.log == nil {
		e.log = slog.Default()
	}
	return e
}

// inside is the id that a request has inside: the client's own would be rounded above 2^53 by the SDK's decoder.
var inside, _ = jsonrpc.MakeID(float64(1)) // never fails for a number

// Call implements [Engine].
func (e *sdk) Call(ctx context.Context, m *Message, client Client) (json.RawMessage, error) {
	return e.call(ctx, m, client, false)
}

func (e *sdk) call(ctx context.Context, m *Message, client Client, internal bool) (json.RawMessage, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	c := newConn(e.request(m, inside), client, m.LogID)
	ss, err := e.connect(ctx, c, m, internal)
	if err != nil {
		return nil, err
	}
	select {
	case <-c.responded:
	case <-c.closed:
		ss.Close()
	case <-ctx.Done():
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-c.responded:
			c.shut(ss)
			return nil, context.Cause(ctx)
		case <-timer.C:
			c.fence()
			e.log.ErrorContext(ctx, "an MCP handler ignores that its context has ended; it goes on without effect",
				"method", m.Method)
			return nil, fmt.Errorf("%w: %w", ErrAbandoned, context.Cause(ctx))
		}
	}
	c.shut(ss)
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		<-ctx.Done() // the handler's own view of the deadline may have run out a moment before: it is one and the same
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err // the handler was faster to say so
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.response == nil {
		return nil, errClosed
	}
	if c.response.Error != nil {
		return nil, wireError(m.Method, c.response.Error)
	}
	return c.response.Result, nil
}

// Notify implements [Engine].
func (e *sdk) Notify(ctx context.Context, m *Message) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	c := newConn(e.request(m, jsonrpc.ID{}), nil, m.LogID)
	ss, err := e.connect(ctx, c, m, false)
	if err != nil {
		return err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		<-c.accepted // the SDK always reads again, also at its end
		ss.Close()   // drains: returns when the handlers have
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-done:
		return nil
	case <-timer.C:
		c.fence()
		e.log.ErrorContext(ctx, "an MCP notification handler ignores that its context has ended", "method", m.Method)
		return fmt.Errorf("%w: %w", ErrAbandoned, context.Cause(ctx))
	}
}

func (e *sdk) request(m *Message, id jsonrpc.ID) *jsonrpc.Request {
	return &jsonrpc.Request{
		ID:     id,
		Method: m.Method,
		Params: m.Params,
		Extra:  &mcp.RequestExtra{TokenInfo: m.TokenInfo, Header: m.Header, CloseSSEStream: m.CloseStream},
	}
}

func (e *sdk) connect(ctx context.Context, c *conn, m *Message, internal bool) (*mcp.ServerSession, error) {
	state, err := sessionState(m.State)
	if err != nil {
		return nil, err
	}
	ctx = context.WithValue(ctx, runKey{}, &run{ctx: ctx, log: e.log, internal: internal})
	ss, err := e.server.Connect(ctx, transport{c, e.opts.Versions}, &mcp.ServerSessionOptions{State: state})
	if err != nil {
		return nil, fmt.Errorf("engine: connect: %w", err)
	}
	close(c.connected)
	return ss, nil
}

// errClosed: the SDK itself has ended the session, because the process was too busy to answer its keep-alive.
var errClosed = errors.New("the SDK has closed the session of a message before its response")

// ErrState says that the state of a session cannot be restored.
var ErrState = errors.New("the session's state cannot be restored")

func sessionState(s *State) (*mcp.ServerSessionState, error) {
	if s == nil {
		return nil, nil
	}
	state := &mcp.ServerSessionState{
		InitializeParams:          &mcp.InitializeParams{},
		NegotiatedProtocolVersion: s.ProtocolVersion,
		LogLevel:                  mcp.LoggingLevel(s.LogLevel),
	}
	if len(s.InitializeParams) > 0 {
		// As the SDK has read them, which is not how encoding/json does: what was ignored then must not come alive now.
		if _, err := sdkjson.Parse(s.InitializeParams, state.InitializeParams, sdkjson.DontMatchCaseInsensitiveStructFields); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrState, err)
		}
	}
	p := state.InitializeParams
	// The SDK decides by the version that the client proposed. With the proposal of a client that was talked down to an
	// older version, it would make a session that is half modern.
	p.ProtocolVersion = s.ProtocolVersion
	if p.Capabilities == nil {
		p.Capabilities = &mcp.ClientCapabilities{}
	}
	if caps, ok := rawjson.Get(s.InitializeParams, "capabilities"); ok {
		if roots, ok := rawjson.Get(caps, "roots"); ok && rawjson.IsObject(roots) {
			v2 := p.Capabilities.Roots
			p.Capabilities.RootsV2 = (*mcp.RootCapabilities)(&v2) // not part of its JSON form
		}
	}
	if s.Initialized {
		state.InitializedParams = &mcp.InitializedParams{}
	}
	return state, nil
}

// wireError gives an error the form that it has for a client. Handlers may return any error; the SDK gives those the code
// 0, which JSON-RPC does not have.
func wireError(method string, err error) *jsonrpc.Error {
	out := jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: err.Error()}
	if wire, ok := errors.AsType[*jsonrpc.Error](err); ok {
		out.Data = wire.Data
		if wire.Code != 0 {
			out.Code = wire.Code
		}
		if err == error(wire) {
			out.Message = wire.Message
		}
	}
	if strings.Contains(out.Message, sdkQuotesParams) {
		out.Message = "invalid params: they do not have the form that " + method + " takes"
	}
	return &out
}

// sdkQuotesParams is in those of the SDK's messages that repeat the params. In these there may be what the client did not
// send: the handler's own requestState.
const sdkQuotesParams = "unmarshaling \""
