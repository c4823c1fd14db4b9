package handler

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hydrant-mcp/hydrant/internal/rawjson"
	"github.com/hydrant-mcp/hydrant/store"
	"github.com/hydrant-mcp/hydrant/store/memory"
)

// The tests run twice: over a store that is looked at, and over one that tells.
func TestMain(m *testing.M) {
	code := m.Run()
	if storeTells = true; code == 0 {
		code = m.Run()
	}
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

var storeTells bool

// tellingStore is a store that tells what changes.
type tellingStore struct{ *brokenStore }

func (s tellingStore) Watch(ctx context.Context, w store.Watched, changed func()) error {
	if err := s.count("watch"); err != nil {
		return err
	}
	return s.Store.(store.Watcher).Watch(ctx, w, changed)
}

// An endpoint is an MCP endpoint under test. With fresh it gives every HTTP request a newly built server and handler: what
// works then does not depend on the memory of a process.
type endpoint struct {
	t      *testing.T
	url    string
	store  *brokenStore
	log    *logBuffer
	client *http.Client

	mu      sync.Mutex
	secrets map[string]bool // what no log may have
}

// secret remembers what no log may have.
func (e *endpoint) secret(v string) {
	const long = 5 // shorter ones are in a log by chance
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(v) >= long && e.secrets != nil {
		e.secrets[v] = true
	}
}

// sees remembers what is secret in a request: the session's id, the token, the arguments.
func (e *endpoint) sees(r *http.Request, body string) {
	e.secret(r.Header.Get(headerSession))
	e.secret(r.Header.Get(headerLastEvent))
	e.secret(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
	for _, text := range argument.FindAllStringSubmatch(body, -1) {
		e.secret(text[1])
	}
}

// argument is a text of some length among the arguments of a call.
var argument = regexp.MustCompile(`"arguments":\s*\{[^}]*:\s*"([^"\\]{8,})"`)

// keepsSecrets fails a test that has let a secret into the log.
func (e *endpoint) keepsSecrets() {
	e.mu.Lock()
	defer e.mu.Unlock()
	log := e.log.String()
	for v := range e.secrets {
		assert.False(e.t, strings.Contains(log, v), "the log has a secret: %s", v)
	}
}

// setup is what an endpoint is made of; zero values are defaults.
type setup struct {
	opts    Options
	noStore bool
	server  func() *mcp.Server
	runtime Runtime
	token   func(*http.Request) *auth.TokenInfo
}

// headerDeadline gives one request of a test a deadline of the runtime.
const headerDeadline = "X-Test-Deadline"

// modes runs a test on a shared handler, and again with a newly built one for every request.
func modes(t *testing.T, s setup, test func(t *testing.T, e *endpoint)) {
	for _, mode := range []string{"one handler", "a new handler for every request"} {
		t.Run(mode, func(t *testing.T) { test(t, open(t, s, mode != "one handler")) })
	}
}

func open(t *testing.T, s setup, fresh bool) *endpoint {
	t.Helper()
	e := &endpoint{t: t, store: &brokenStore{Store: memory.New()}, log: &logBuffer{}, secrets: map[string]bool{}}
	t.Cleanup(e.keepsSecrets)
	s.opts.Logger = slog.New(slog.NewJSONHandler(e.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	if s.server == nil {
		s.server = testServer
	}
	build := func() *Handler {
		var st store.Store
		if !s.noStore {
			st = e.store
			if storeTells {
				st = tellingStore{e.store}
			}
		}
		return New(s.server(), st, &s.opts)
	}
	one := build()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := one
		if fresh {
			h = build()
		}
		runtime := s.runtime
		if d, err := time.ParseDuration(r.Header.Get(headerDeadline)); err == nil {
			runtime.Deadline = time.Now().Add(margin + d)
		}
		ctx := WithRuntime(r.Context(), runtime)
		if s.token != nil {
			if token := s.token(r); token != nil {
				verify := func(context.Context, string, *http.Request) (*auth.TokenInfo, error) { return token, nil }
				auth.RequireBearerToken(verify, nil)(h).ServeHTTP(w, r.WithContext(ctx))
				return
			}
		}
		h.ServeHTTP(w, r.WithContext(ctx))
	}))
	t.Cleanup(srv.Close)
	e.url = srv.URL
	e.client = &http.Client{Transport: &http.Transport{DisableCompression: true}}
	t.Cleanup(e.client.CloseIdleConnections)
	return e
}

// testServer has a tool for each thing that tests need.
func testServer() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ServerOptions{
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
	})
	tool := func(name, schema string, h mcp.ToolHandler) {
		s.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(schema)}, h)
	}
	const object = `{"type":"object"}`
	tool("echo", object, func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{
			Content:           []mcp.Content{&mcp.TextContent{Text: string(req.Params.Arguments)}},
			StructuredContent: json.RawMessage(req.Params.Arguments),
		}, nil
	})
	tool("params", object, func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		raw, err := json.Marshal(req.Params)
		return textResult(string(raw)), err
	})
	tool("session", object, func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		p := req.Session.InitializeParams()
		raw, err := json.Marshal(map[string]any{
			"version": req.ProtocolVersion(), "client": req.ClientInfo(), "capabilities": p.Capabilities, "roots": p.Capabilities.RootsV2,
		})
		return textResult(string(raw)), err
	})
	tool("panic", object, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { panic("boom") })
	tool("wait", object, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	tool("large", object, func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		var a struct{ Bytes int }
		err := json.Unmarshal(req.Params.Arguments, &a)
		return textResult(strings.Repeat("x", a.Bytes)), err
	})
	tool("progress", object, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		for i := range 3 {
			err := req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
				ProgressToken: req.Params.GetProgressToken(), Progress: float64(i),
			})
			if err != nil {
				return nil, err
			}
		}
		return textResult("done"), nil
	})
	tool("log", object, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		for _, level := range []mcp.LoggingLevel{"debug", "info", "error"} {
			err := req.Session.Log(ctx, &mcp.LoggingMessageParams{Level: level, Data: "at " + level}) //nolint:staticcheck // deprecated
			if err != nil {
				return nil, err
			}
		}
		return textResult("done"), nil
	})
	tool("ask", object, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		_, err := req.Session.Elicit(ctx, &mcp.ElicitParams{Message: "?"})
		return textResult(fmt.Sprint(err)), nil
	})
	tool("rounds", object, func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if req.Params.RequestState != "" || len(req.Params.InputResponses) > 0 {
			return textResult("state " + req.Params.RequestState), nil
		}
		return &mcp.CallToolResult{RequestState: "s1", InputRequests: mcp.InputRequestMap{"who": &mcp.ElicitParams{Message: "who?"}}}, nil
	})
	tool("region", `{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},
		"n":{"type":"integer","x-mcp-header":"N"},"deep":{"type":"object","properties":{"flag":{"type":"boolean","x-mcp-header":"Flag"}}}}}`,
		func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return textResult("ran"), nil
		})
	s.AddResource(&mcp.Resource{URI: "test://one", Name: "one"}, func(_ context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: req.Params.URI, Text: "one"}}}, nil
	})
	s.AddPrompt(&mcp.Prompt{Name: "hello"}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: "hi"}}}}, nil
	})
	return s
}

func textResult(s string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}
}

// A reply is what came back.
type reply struct {
	status int
	header http.Header
	body   string
	events []string // the data of an event stream's events
}

// send sends a request; headers come in pairs, and an empty value takes a default header away.
func (e *endpoint) send(method, body string, headers ...string) reply {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, e.url, strings.NewReader(body))
	require.NoError(e.t, err)
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i+1] == "" {
			req.Header.Del(headers[i])
		} else {
			req.Header.Set(headers[i], headers[i+1])
		}
	}
	e.sees(req, body)
	return e.do(req)
}

func (e *endpoint) do(req *http.Request) reply {
	e.t.Helper()
	res, err := e.client.Do(req)
	require.NoError(e.t, err)
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	require.NoError(e.t, err)
	r := reply{status: res.StatusCode, header: res.Header, body: string(raw)}
	e.secret(res.Header.Get(headerSession))
	e.secret(stringOf(r.result(), "requestState"))
	if strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		in := bufio.NewScanner(bytes.NewReader(raw))
		in.Buffer(nil, 64<<20)
		for in.Scan() {
			if id, ok := strings.CutPrefix(in.Text(), "id: "); ok {
				e.secret(id)
			}
			if data, ok := strings.CutPrefix(in.Text(), "data: "); ok {
				r.events = append(r.events, data)
			}
		}
	}
	return r
}

func (e *endpoint) post(body string, headers ...string) reply {
	e.t.Helper()
	return e.send(http.MethodPost, body, headers...)
}

// message is the response in the reply: the body, or the last event.
func (r reply) message() json.RawMessage {
	if len(r.events) > 0 {
		return json.RawMessage(r.events[len(r.events)-1])
	}
	return json.RawMessage(r.body)
}

func (r reply) id() string {
	id, _ := rawjson.Get(r.message(), "id")
	return string(id)
}

func (r reply) result() json.RawMessage {
	result, _ := rawjson.Get(r.message(), "result")
	return result
}

func (r reply) code() int {
	var m struct{ Error struct{ Code int } }
	_ = json.Unmarshal(r.message(), &m)
	return m.Error.Code
}

func (r reply) errorMessage() string {
	var m struct{ Error struct{ Message string } }
	_ = json.Unmarshal(r.message(), &m)
	return m.Error.Message
}

// text is the first text of a tool's result.
func (r reply) text() string {
	var m struct {
		Result struct{ Content []struct{ Text string } }
	}
	if json.Unmarshal(r.message(), &m) != nil || len(m.Result.Content) == 0 {
		return ""
	}
	return m.Result.Content[0].Text
}

func (r reply) isError() bool {
	isError, _ := rawjson.Get(r.result(), "isError")
	return string(isError) == "true"
}

const (
	initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	listTools   = `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`
	pingBody    = `{"jsonrpc":"2.0","id":3,"method":"ping"}`
)

func initBody(version, capabilities string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"` + version + `","capabilities":` +
		capabilities + `,"clientInfo":{"name":"t","version":"0"}}}`
}

func callBody(id, tool, arguments string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"` + tool + `","arguments":` + arguments + `}}`
}

// A session is a legacy client's.
type session struct {
	*endpoint
	id string
}

func (e *endpoint) initialize(version, capabilities string, headers ...string) *session {
	e.t.Helper()
	r := e.post(initBody(version, capabilities), headers...)
	require.Equal(e.t, 200, r.status, r.body)
	id := r.header.Get(headerSession)
	require.NotEmpty(e.t, id)
	return &session{e, id}
}

func (e *endpoint) session(version string) *session {
	e.t.Helper()
	s := e.initialize(version, `{}`)
	require.Equal(e.t, 202, s.post(initialized).status)
	return s
}

func (s *session) send(method, body string, headers ...string) reply {
	s.t.Helper()
	return s.endpoint.send(method, body, append([]string{headerSession, s.id}, headers...)...)
}

func (s *session) post(body string, headers ...string) reply {
	s.t.Helper()
	return s.send(http.MethodPost, body, headers...)
}

func (s *session) call(tool, arguments string, headers ...string) reply {
	s.t.Helper()
	return s.post(callBody("9", tool, arguments), headers...)
}

const metaFields = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":`

// modern sends a request of the modern era. params is the inside of the params object, without _meta.
func (e *endpoint) modern(method, params, capabilities string, headers ...string) reply {
	e.t.Helper()
	return e.modernMeta(method, params, metaFields+capabilities, headers...)
}

func (e *endpoint) modernMeta(method, params, meta string, headers ...string) reply {
	e.t.Helper()
	if params != "" {
		params += ","
	}
	body := `{"jsonrpc":"2.0","id":4,"method":"` + method + `","params":{` + params + `"_meta":{` + meta + `}}}`
	all := []string{headerVersion, version20260728, headerMethod, method}
	if key, ok := nameKey[method]; ok {
		name, _ := rawjson.Get(json.RawMessage("{"+strings.TrimSuffix(params, ",")+"}"), key)
		if s, ok := rawjson.String(name); ok {
			all = append(all, headerName, s)
		}
	}
	return e.post(body, append(all, headers...)...)
}

func (e *endpoint) modernCall(tool, arguments string, headers ...string) reply {
	e.t.Helper()
	return e.modern("tools/call", `"name":"`+tool+`","arguments":`+arguments, `{}`, headers...)
}

// brokenStore fails while it is told to, and counts what it does.
type brokenStore struct {
	store.Store
	mu    sync.Mutex
	err   error
	only  string // the operation that fails; "" for all
	calls map[string]int

	exchange string
}

func (b *brokenStore) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err, b.only = err, ""
}

func (b *brokenStore) failOnly(op string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err, b.only = err, op
}

func (b *brokenStore) count(op string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.calls == nil {
		b.calls = map[string]int{}
	}
	b.calls[op]++
	if b.only != "" && b.only != op {
		return nil
	}
	return b.err
}

// spent gives the operations since the last call.
func (b *brokenStore) spent() map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	calls := b.calls
	b.calls = nil
	return calls
}

func (b *brokenStore) CreateSession(ctx context.Context, s *store.Session) error {
	if err := b.count("create"); err != nil {
		return err
	}
	return b.Store.CreateSession(ctx, s)
}

func (b *brokenStore) Session(ctx context.Context, key string) (*store.Session, error) {
	if err := b.count("read"); err != nil {
		return nil, err
	}
	return b.Store.Session(ctx, key)
}

func (b *brokenStore) UpdateSession(ctx context.Context, s *store.Session) error {
	if err := b.count("update"); err != nil {
		return err
	}
	return b.Store.UpdateSession(ctx, s)
}

func (b *brokenStore) DeleteSession(ctx context.Context, key string) error {
	if err := b.count("delete"); err != nil {
		return err
	}
	return b.Store.DeleteSession(ctx, key)
}

func (b *brokenStore) CreateExchange(ctx context.Context, x *store.Exchange) error {
	if err := b.count("exchange"); err != nil {
		return err
	}
	b.mu.Lock()
	b.exchange = x.Key
	b.mu.Unlock()
	return b.Store.CreateExchange(ctx, x)
}

func (b *brokenStore) AppendEvent(ctx context.Context, exchange string, e store.Event, expires time.Time) error {
	if err := b.count("event"); err != nil {
		return err
	}
	return b.Store.AppendEvent(ctx, exchange, e, expires)
}

func (b *brokenStore) PutAnswer(ctx context.Context, exchange, question string, answer []byte, expires time.Time) error {
	if err := b.count("answer"); err != nil {
		return err
	}
	return b.Store.PutAnswer(ctx, exchange, question, answer, expires)
}

func (b *brokenStore) RaiseTopic(ctx context.Context, topic string) error {
	if err := b.count("raise"); err != nil {
		return err
	}
	return b.Store.RaiseTopic(ctx, topic)
}

// lastExchange is the key of the exchange that was made last.
func (b *brokenStore) lastExchange() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.exchange
}

type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// level gives the level of the last line of the log that has all the words.
func (l *logBuffer) level(words ...string) string {
	level := ""
lines:
	for line := range strings.Lines(l.String()) {
		for _, w := range words {
			if !strings.Contains(line, w) {
				continue lines
			}
		}
		var entry struct{ Level string }
		if json.Unmarshal([]byte(line), &entry) == nil {
			level = entry.Level
		}
	}
	return level
}
