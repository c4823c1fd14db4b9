package handler

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hydrant-mcp/hydrant/store"
	"github.com/hydrant-mcp/hydrant/store/memory"
)

// The invariants of docs/architecture.md, one test each. Where other tests go into detail, these are the short form.

// Every HTTP request of the official client goes to a newly built server and handler.
func TestInvariant1AnyInstanceAnyMessage(t *testing.T) {
	e := open(t, setup{}, true)
	for _, version := range []string{version20251125, version20260728} {
		client := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, nil)
		session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: e.url, HTTPClient: e.client},
			&mcp.ClientSessionOptions{ProtocolVersion: version})
		require.NoError(t, err, version)
		tools, err := session.ListTools(t.Context(), nil)
		require.NoError(t, err)
		assert.NotEmpty(t, tools.Tools)
		for i := range 20 {
			result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"i": i}})
			require.NoError(t, err)
			assert.Equal(t, fmt.Sprintf(`{"i":%d}`, i), result.Content[0].(*mcp.TextContent).Text)
		}
		read, err := session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "test://one"})
		require.NoError(t, err)
		assert.Equal(t, "one", read.Contents[0].Text)
		prompt, err := session.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "hello"})
		require.NoError(t, err)
		assert.Len(t, prompt.Messages, 1)
		require.NoError(t, session.Close())
	}
}

func TestInvariant2OutageIsNotAbsence(t *testing.T) {
	e := open(t, setup{}, true)
	s := e.session(version20251125)
	for want, err := range map[int]error{404: store.ErrNotFound, 503: store.ErrUnavailable, 500: store.ErrCorrupt} {
		e.store.fail(store.Wrap("test", err, nil))
		assert.Equal(t, want, s.post(listTools).status)
		assert.Equal(t, want, s.post(initialized).status)
		assert.Equal(t, want, s.send("DELETE", "").status)
		assert.Equal(t, want, s.send("GET", "", "Accept", "text/event-stream").status)
	}
	e.store.fail(nil)
	assert.Equal(t, 200, s.post(listTools).status)
}

// What was acknowledged is there for another instance, at once.
func TestInvariant3NothingIsAcknowledgedBeforeItIsSafe(t *testing.T) {
	e := open(t, setup{}, true)
	s := e.initialize(version20251125, `{}`)
	for i := range 50 {
		level := []string{"info", "error"}[i%2]
		require.Equal(t, 200, s.post(`{"jsonrpc":"2.0","id":5,"method":"logging/setLevel","params":{"level":"`+level+`"}}`).status)
		require.Equal(t, level, e.stored(s).LogLevel)
	}
	require.Equal(t, 202, s.post(initialized).status)
	require.True(t, e.stored(s).Initialized)
}

func TestInvariant5AMessageGoesOnlyWhereItBelongs(t *testing.T) {
	e := open(t, setup{}, true)
	one, two := e.session(version20251125), e.session(version20250618)
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			s := []*session{one, two}[i%2]
			body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"progress","arguments":{},"_meta":{"progressToken":"t%d"}}}`, i)
			r := s.post(body)
			assert.Equal(t, "1", r.id())
			sent := notifications(r)
			assert.Len(t, sent, 3)
			for _, n := range sent {
				assert.Contains(t, n, fmt.Sprintf(`"t%d"`, i))
			}
		})
	}
	wg.Wait()
}

func TestInvariant6ASessionIDReachesNoLogAndNoStore(t *testing.T) {
	e := open(t, setup{server: func() *mcp.Server {
		s := mcp.NewServer(&mcp.Implementation{Name: "t", Version: "1"}, &mcp.ServerOptions{})
		s.AddTool(&mcp.Tool{Name: "panic", InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { panic("boom") })
		return s
	}}, true)
	s := e.session(version20251125)
	s.call("panic", `{"secret":"hunter2"}`)
	s.post(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"no such tool hunter2"}}`)
	s.post(listTools, headerVersion, "2099-01-01")
	e.store.fail(store.ErrUnavailable)
	s.post(listTools)
	e.store.fail(nil)
	s.send("DELETE", "")
	s.post(listTools)
	assert.NotContains(t, e.log.String(), s.id)
	assert.NotContains(t, e.log.String(), "hunter2")
}

func TestInvariant7NothingRunsAfterTheAnswer(t *testing.T) {
	const requests = 50
	h := New(testServer(), memory.New(), &Options{Logger: slog.New(slog.DiscardHandler)})
	serve := func(body string, headers ...string) *httptest.ResponseRecorder {
		rec := httptest.NewRecorder()
		req := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
		req.Header.Set("Content-Type", "application/json")
		for i := 0; i < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		h.ServeHTTP(rec, req)
		return rec
	}
	id := serve(initBody(version20251125, `{}`)).Header().Get(headerSession)
	before := goleak.IgnoreCurrent()
	for range requests {
		serve(initialized, headerSession, id)
		serve(callBody("1", "progress", `{}`), headerSession, id)
		serve(callBody("1", "panic", `{}`), headerSession, id)
	}
	assert.NoError(t, goleak.Find(before, goleak.IgnoreTopFunction("none")))
}

func TestInvariant8BytesStayBytes(t *testing.T) {
	e := open(t, setup{}, true)
	s := e.session(version20251125)
	const arguments = `{ "b" : 9007199254740993, "a":1.0e-7 ,"\u0061b":"\/" }`
	r := s.post(callBody("9007199254740993", "echo", arguments))
	assert.Equal(t, "9007199254740993", r.id())
	assert.Equal(t, arguments, r.text())
}

func TestInvariant9EveryWaitIsBounded(t *testing.T) {
	e := open(t, setup{opts: Options{CallTimeout: 20 * time.Millisecond}}, true)
	start := time.Now()
	assert.Equal(t, -32603, e.modernCall("wait", `{}`).code())
	assert.Less(t, time.Since(start), 5*time.Second)
}

// An older version of the code updates a record that a newer one wrote; the stores' own contract has the raw form of this.
func TestInvariant10OldAndNewVersionsShareAStore(t *testing.T) {
	e := open(t, setup{}, true)
	s := e.initialize(version20251125, `{"futureCapability":{"x":1}}`)
	require.Equal(t, 202, s.post(initialized).status)
	assert.Contains(t, string(e.stored(s).InitializeParams), `"futureCapability":{"x":1}`)
}

func TestInvariant11APanickingToolIsAnErrorResult(t *testing.T) {
	modes(t, setup{}, func(t *testing.T, e *endpoint) {
		s := e.session(version20251125)
		for _, r := range []reply{s.call("panic", `{}`), e.modernCall("panic", `{}`)} {
			assert.Equal(t, 200, r.status)
			assert.True(t, r.isError())
		}
		assert.Equal(t, "ERROR", e.log.level("panic", "stack"))
		assert.NotContains(t, e.log.String(), "boom", "it could be anything, a client's arguments too")
		assert.Equal(t, 200, s.post(listTools).status)
	})
}

// The response writer of a middleware that cannot flush still gets an answer, inline.
func TestBehindMiddlewareThatCannotFlush(t *testing.T) {
	h := New(testServer(), memory.New(), nil)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(struct{ http.ResponseWriter }{struct{ plain }{plain{w}}}, r)
	}))
	defer srv.Close()
	res, err := http.Post(srv.URL, "application/json", strings.NewReader(initBody(version20251125, `{}`)))
	require.NoError(t, err)
	body, _ := io.ReadAll(res.Body)
	res.Body.Close()
	assert.Equal(t, 200, res.StatusCode, string(body))
	http.DefaultClient.CloseIdleConnections()
}

type plain struct{ w http.ResponseWriter }

func (p plain) Header() http.Header         { return p.w.Header() }
func (p plain) Write(b []byte) (int, error) { return p.w.Write(b) }
func (p plain) WriteHeader(status int)      { p.w.WriteHeader(status) }
