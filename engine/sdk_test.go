package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hydrant-mcp/hydrant/internal/rawjson"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder is a client that remembers what it got and answers questions at once.
type recorder struct {
	mu     sync.Mutex
	sent   []string
	answer func(method string) (json.RawMessage, *jsonrpc.Error)
}

func (r *recorder) Notify(method string, params json.RawMessage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent = append(r.sent, method+" "+string(params))
}

func (r *recorder) Ask(method string, _ json.RawMessage, answer func(json.RawMessage, *jsonrpc.Error)) {
	if r.answer == nil {
		answer(nil, &jsonrpc.Error{Code: -1, Message: "nobody is there"})
		return
	}
	answer(r.answer(method))
}

func (r *recorder) got() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.sent...)
}

const object = `{"type":"object"}`

func newServer(opts *mcp.ServerOptions) *mcp.Server {
	return mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, opts)
}

func addTool(s *mcp.Server, name string, h mcp.ToolHandler) {
	s.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(object)}, h)
}

func text(s string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}
}

var legacyState = &State{
	ProtocolVersion:  "2025-11-25",
	InitializeParams: json.RawMessage(`{"protocolVersion":"2026-07-28","capabilities":{"elicitation":{},"roots":{}},"clientInfo":{"name":"c","version":"7"}}`),
	Initialized:      true,
}

const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

func call(tool string) *Message {
	return &Message{Method: "tools/call", Params: json.RawMessage(`{"name":"` + tool + `"}`), State: legacyState}
}

func firstText(t *testing.T, result json.RawMessage) string {
	t.Helper()
	var r struct {
		Content []struct{ Text string }
		IsError bool
	}
	require.NoError(t, json.Unmarshal(result, &r), string(result))
	require.NotEmpty(t, r.Content, string(result))
	return r.Content[0].Text
}

func TestBothErasRunOnOneServer(t *testing.T) {
	s := newServer(nil)
	addTool(s, "version", func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return text(req.ProtocolVersion() + " " + req.ClientInfo().Name), nil
	})
	e := New(s, nil)
	result, err := e.Call(t.Context(), call("version"), &recorder{})
	require.NoError(t, err)
	assert.Equal(t, "2025-11-25 c", firstText(t, result), "the negotiated version, not the proposed one")

	modern := &Message{Method: "tools/call", Params: json.RawMessage(`{"name":"version","_meta":{` +
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},` +
		`"io.modelcontextprotocol/clientInfo":{"name":"m","version":"1"}}}`)}
	result, err = e.Call(t.Context(), modern, &recorder{})
	require.NoError(t, err)
	assert.Equal(t, "2026-07-28 m", firstText(t, result))
	kind, _ := rawjson.Get(result, "resultType")
	assert.Equal(t, `"complete"`, string(kind))
}

func TestDiscoverOffersOnlyServedVersions(t *testing.T) {
	e := New(newServer(nil), &Options{Versions: func(v string) bool { return v == "2026-07-28" }})
	result, err := e.Call(t.Context(), &Message{Method: "server/discover", Params: json.RawMessage(`{` + modernMeta + `}`)}, &recorder{})
	require.NoError(t, err)
	versions, _ := rawjson.Get(result, "supportedVersions")
	assert.JSONEq(t, `["2026-07-28"]`, string(versions))
}

func TestEveryNotificationRunsBeforeNotifyReturns(t *testing.T) {
	var ran atomic.Int64
	s := newServer(&mcp.ServerOptions{
		RootsListChangedHandler: func(context.Context, *mcp.RootsListChangedRequest) {
			runtime.Gosched()
			ran.Add(1)
		},
	})
	e := New(s, nil)
	const n = 2000
	for i := range n {
		require.NoError(t, e.Notify(t.Context(), &Message{Method: "notifications/roots/list_changed", State: legacyState}))
		require.EqualValues(t, i+1, ran.Load())
	}
}

func TestInitializedRunsOnceAndOnlyForAFreshSession(t *testing.T) {
	var ran atomic.Int64
	s := newServer(&mcp.ServerOptions{InitializedHandler: func(context.Context, *mcp.InitializedRequest) { ran.Add(1) }})
	e := New(s, nil)
	fresh := *legacyState
	fresh.Initialized = false
	require.NoError(t, e.Notify(t.Context(), &Message{Method: "notifications/initialized", State: &fresh}))
	assert.EqualValues(t, 1, ran.Load())
	require.NoError(t, e.Notify(t.Context(), &Message{Method: "notifications/initialized", State: legacyState}))
	assert.EqualValues(t, 1, ran.Load())
}

func TestNoResponseIsSwallowed(t *testing.T) {
	s := newServer(nil)
	addTool(s, "fast", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return text("ok"), nil })
	e := New(s, nil)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 250 {
				result, err := e.Call(t.Context(), call("fast"), &recorder{})
				if assert.NoError(t, err) {
					assert.Equal(t, "ok", firstText(t, result))
				}
			}
		})
	}
	wg.Wait()
}

func TestNotificationsComeBeforeTheResponseAndNotAfter(t *testing.T) {
	s := newServer(nil)
	late := make(chan error, 1)
	answered := make(chan struct{})
	addTool(s, "progress", func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		token := req.Params.GetProgressToken()
		for i := range 3 {
			_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: float64(i)})
		}
		go func() {
			<-answered
			late <- req.Session.NotifyProgress(context.WithoutCancel(ctx), &mcp.ProgressNotificationParams{ProgressToken: token})
		}()
		return text("done"), nil
	})
	m := call("progress")
	m.Params = json.RawMessage(`{"name":"progress","_meta":{"progressToken":9007199254740993,"x":1}}`)
	client := &recorder{}
	_, err := New(s, nil).Call(t.Context(), m, client)
	require.NoError(t, err)
	require.Len(t, client.got(), 3)
	assert.Contains(t, client.got()[0], `"progressToken":9007199254740993`, "all digits")
	close(answered)
	<-late
	assert.Len(t, client.got(), 3)
}

func TestKeepAliveNeverLeaks(t *testing.T) {
	// However slow this machine is: the SDK would close the session of a process that does not answer in half of that time.
	const patience = 1_000_000
	s := newServer(&mcp.ServerOptions{KeepAlive: time.Millisecond, KeepAliveFailureThreshold: patience})
	addTool(s, "wait", func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		for range 5 { // our own pings, between those of the keep-alive
			if err := req.Session.Ping(ctx, nil); err != nil {
				return nil, err
			}
			time.Sleep(2 * time.Millisecond)
		}
		return text("done"), nil
	})
	client := &recorder{answer: func(method string) (json.RawMessage, *jsonrpc.Error) {
		t.Error("the client was asked: " + method)
		return nil, nil
	}}
	result, err := New(s, nil).Call(t.Context(), call("wait"), client)
	require.NoError(t, err)
	assert.Equal(t, "done", firstText(t, result))
	assert.Empty(t, client.got())
}

func TestASessionThatTheSDKClosesEndsItsCall(t *testing.T) {
	s := newServer(&mcp.ServerOptions{KeepAlive: 1}) // no ping is answered in half of a nanosecond
	addTool(s, "slow", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		time.Sleep(50 * time.Millisecond)
		return text("done"), nil
	})
	_, err := New(s, nil).Call(t.Context(), call("slow"), &recorder{})
	assert.ErrorIs(t, err, errClosed, "the SDK has dropped the response")
}

func TestQuestionsReachTheClient(t *testing.T) {
	s := newServer(nil)
	addTool(s, "ask", func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		r, err := req.Session.Elicit(ctx, &mcp.ElicitParams{Message: "who?"})
		if err != nil {
			return nil, err
		}
		return text(r.Action), nil
	})
	e := New(s, nil)
	client := &recorder{answer: func(method string) (json.RawMessage, *jsonrpc.Error) {
		assert.Equal(t, "elicitation/create", method)
		return json.RawMessage(`{"action":"decline"}`), nil
	}}
	result, err := e.Call(t.Context(), call("ask"), client)
	require.NoError(t, err)
	assert.Equal(t, "decline", firstText(t, result))

	_, err = e.Call(t.Context(), call("ask"), &recorder{})
	wire, ok := errors.AsType[*jsonrpc.Error](err)
	require.True(t, ok, err)
	assert.Contains(t, wire.Message, "nobody is there")
}

func TestNotificationHandlersCannotAsk(t *testing.T) {
	asked := make(chan error, 1)
	s := newServer(&mcp.ServerOptions{RootsListChangedHandler: func(ctx context.Context, req *mcp.RootsListChangedRequest) {
		_, err := req.Session.ListRoots(ctx, nil) //nolint:staticcheck // deprecated, and still in use
		asked <- err
	}})
	require.NoError(t, New(s, nil).Notify(t.Context(), &Message{Method: "notifications/roots/list_changed", State: legacyState}))
	assert.Error(t, <-asked)
}

func TestPanicIsAnErrorResult(t *testing.T) {
	s := newServer(nil)
	addTool(s, "panic", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { panic("boom") })
	addTool(s, "panic-late", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{StructuredContent: bomb{}}, nil
	})
	addTool(s, "unencodable", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{StructuredContent: func() {}}, nil
	})
	s.AddPrompt(&mcp.Prompt{Name: "panic"}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) { panic("boom") })
	var logged logBuffer
	e := New(s, &Options{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	for _, tool := range []string{"panic", "panic-late"} {
		result, err := e.Call(t.Context(), call(tool), &recorder{})
		require.NoError(t, err, tool)
		isError, _ := rawjson.Get(result, "isError")
		assert.Equal(t, "true", string(isError), tool)
		assert.NotContains(t, string(result), "boom", "the details are not for the client")
	}
	assert.Contains(t, logged.String(), "sdk_test.go", "the stack")
	assert.NotContains(t, logged.String(), "boom", "what a tool panics with may be its arguments")
	_, err := e.Call(t.Context(), call("unencodable"), &recorder{})
	assert.ErrorContains(t, err, "encoding the tool's structured content")
	_, err = e.Call(t.Context(), &Message{Method: "prompts/get", Params: json.RawMessage(`{"name":"panic"}`), State: legacyState}, &recorder{})
	wire, ok := errors.AsType[*jsonrpc.Error](err)
	require.True(t, ok)
	assert.EqualValues(t, jsonrpc.CodeInternalError, wire.Code)
}

type bomb struct{}

func (bomb) MarshalJSON() ([]byte, error) { panic("boom in the encoder") }

type logBuffer struct {
	mu sync.Mutex
	b  []byte
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b = append(l.b, p...)
	return len(p), nil
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.b)
}

func TestContextReachesTheHandler(t *testing.T) {
	s := newServer(nil)
	type key struct{}
	addTool(s, "look", func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		_, hasDeadline := ctx.Deadline()
		return text(fmt.Sprintf("%v %v %s %s", ctx.Value(key{}), hasDeadline, req.Extra.TokenInfo.UserID, req.Extra.Header.Get("X-A"))), nil
	})
	ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, "v"), time.Minute)
	defer cancel()
	m := call("look")
	m.TokenInfo = &auth.TokenInfo{UserID: "u"}
	m.Header = map[string][]string{"X-A": {"b"}}
	result, err := New(s, nil).Call(ctx, m, &recorder{})
	require.NoError(t, err)
	assert.Equal(t, "v true u b", firstText(t, result))
}

func TestCancellationReachesTheHandler(t *testing.T) {
	s := newServer(nil)
	started := make(chan struct{})
	ended := make(chan error, 1)
	addTool(s, "wait", func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		close(started)
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return nil, ctx.Err()
	})
	why := errors.New("no longer wanted")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() { <-started; cancel(why) }()
	_, err := New(s, nil).Call(ctx, call("wait"), &recorder{})
	assert.ErrorIs(t, err, why)
	assert.ErrorIs(t, <-ended, why)
}

func TestHandlerThatIgnoresItsContextIsFencedOff(t *testing.T) {
	s := newServer(nil)
	release, finished := make(chan struct{}), make(chan struct{})
	addTool(s, "stubborn", func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		defer close(finished)
		<-release
		_ = req.Session.NotifyProgress(context.WithoutCancel(ctx), &mcp.ProgressNotificationParams{ProgressToken: "t"})
		_, err := req.Session.Elicit(context.WithoutCancel(ctx), &mcp.ElicitParams{Message: "?"})
		assert.Error(t, err)
		return text("too late"), nil
	})
	var logged logBuffer
	client := &recorder{}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := New(s, &Options{Logger: slog.New(slog.NewTextHandler(&logged, nil))}).Call(ctx, call("stubborn"), client)
	assert.ErrorIs(t, err, ErrAbandoned)
	assert.Contains(t, logged.String(), "ignores that its context has ended")
	close(release)
	<-finished
	assert.Empty(t, client.got())
}

func TestMiddlewareDoesNotPileUp(t *testing.T) {
	s := newServer(nil)
	depth := 0
	addTool(s, "depth", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		frames := make([]uintptr, 4096)
		depth = runtime.Callers(0, frames)
		return text("ok"), nil
	})
	_, err := New(s, nil).Call(t.Context(), call("depth"), &recorder{})
	require.NoError(t, err)
	before := depth
	var e Engine
	for range 1000 {
		e = New(s, nil)
	}
	_, err = e.Call(t.Context(), call("depth"), &recorder{})
	require.NoError(t, err)
	assert.Equal(t, before, depth)
}

func TestServersAreNotKeptAlive(t *testing.T) {
	known := func() int {
		servers.Lock()
		defer servers.Unlock()
		return len(servers.known)
	}
	for range 50 {
		New(newServer(nil), nil)
	}
	assert.Eventually(t, func() bool { runtime.GC(); return known() < 25 }, 10*time.Second, time.Millisecond)
}

func TestErrorsHaveACode(t *testing.T) {
	s := newServer(nil)
	addTool(s, "fail", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return nil, errors.New("plain")
	})
	addTool(s, "coded", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return nil, fmt.Errorf("outer: %w", &jsonrpc.Error{Code: -32000, Message: "inner", Data: json.RawMessage(`{"n":1}`)})
	})
	e := New(s, nil)
	_, err := e.Call(t.Context(), call("fail"), &recorder{})
	wire, _ := errors.AsType[*jsonrpc.Error](err)
	assert.Equal(t, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "plain"}, wire)
	_, err = e.Call(t.Context(), call("coded"), &recorder{})
	wire, _ = errors.AsType[*jsonrpc.Error](err)
	require.NotNil(t, wire)
	assert.EqualValues(t, -32000, wire.Code)
	assert.JSONEq(t, `{"n":1}`, string(wire.Data))
	_, err = e.Call(t.Context(), &Message{Method: "no/such", State: legacyState}, &recorder{})
	wire, _ = errors.AsType[*jsonrpc.Error](err)
	require.NotNil(t, wire)
	assert.EqualValues(t, jsonrpc.CodeMethodNotFound, wire.Code)
}

func TestStateThatCannotBeRestored(t *testing.T) {
	m := call("x")
	m.State = &State{ProtocolVersion: "2025-11-25", InitializeParams: json.RawMessage(`{"capabilities":7}`)}
	_, err := New(newServer(nil), nil).Call(t.Context(), m, &recorder{})
	assert.ErrorIs(t, err, ErrState)
}

func TestToolSchemaPassesUserMiddlewareMarked(t *testing.T) {
	s := newServer(&mcp.ServerOptions{PageSize: 2})
	for i := range 5 {
		s.AddTool(&mcp.Tool{Name: fmt.Sprint("t", i), InputSchema: json.RawMessage(fmt.Sprintf(`{"type":"object","$id":"%d"}`, i))}, nil)
	}
	var internal, outside atomic.Int64
	s.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if Internal(ctx) {
				internal.Add(1)
			} else {
				outside.Add(1)
			}
			return next(ctx, method, req)
		}
	})
	e := New(s, nil)
	for range 3 {
		schema, ok, err := e.ToolSchema(t.Context(), "t4")
		require.NoError(t, err)
		require.True(t, ok)
		assert.JSONEq(t, `{"type":"object","$id":"4"}`, string(schema))
	}
	assert.EqualValues(t, 3, internal.Load(), "three pages, once")
	assert.EqualValues(t, 0, outside.Load())
	_, ok, err := e.ToolSchema(t.Context(), "none")
	require.NoError(t, err)
	assert.False(t, ok)
}

func BenchmarkCall(b *testing.B) {
	s := newServer(nil)
	addTool(s, "fast", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return text("ok"), nil })
	e := New(s, nil)
	m := call("fast")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := e.Call(b.Context(), m, &recorder{}); err != nil {
			b.Fatal(err)
		}
	}
}
