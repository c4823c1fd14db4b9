package cloudrun

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/handler"
)

// bound is how long a test waits for what should happen at once.
const bound = 10 * time.Second

// A running server of this process.
type running struct {
	*server
	url    string
	log    *logBuffer
	ctx    context.Context
	drain  context.CancelFunc // does what SIGTERM does
	result chan error         // of run
}

// start runs a server on a free port of the loopback interface until the test ends.
func start(t *testing.T, h func(*server) http.HandlerFunc, opts ...Option) *running {
	t.Helper()
	log := &logBuffer{}
	logger := slog.New(NewLogHandler(log, &LogOptions{Level: slog.LevelDebug, Project: "test"}))
	c, err := settle(append([]Option{WithLogger(logger)}, opts...))
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r := &running{server: newServer(c, nil), url: "http://" + l.Addr().String(), log: log, result: make(chan error, 1)}
	r.handler = h(r.server)
	r.ctx, r.drain = context.WithCancel(context.Background())
	go func() { r.result <- r.run(r.ctx, l) }()
	t.Cleanup(func() { r.drain() })
	return r
}

// plain makes start's argument of a handler that does not need the server.
func plain(h http.HandlerFunc) func(*server) http.HandlerFunc {
	return func(*server) http.HandlerFunc { return h }
}

// ended waits for run to return.
func (r *running) ended(t *testing.T) error {
	t.Helper()
	select {
	case err := <-r.result:
		return err
	case <-time.After(bound):
		require.Fail(t, "the server has not ended")
		return nil
	}
}

type logBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// records decodes what was logged so far.
func (b *logBuffer) records(t *testing.T) []map[string]any {
	t.Helper()
	var records []map[string]any
	for line := range strings.Lines(b.String()) {
		var r map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &r), line)
		records = append(records, r)
	}
	return records
}

// find waits for a record with a message.
func (b *logBuffer) find(t *testing.T, message string) map[string]any {
	t.Helper()
	var found map[string]any
	require.Eventually(t, func() bool {
		for _, r := range b.records(t) {
			if r[fieldMessage] == message {
				found = r
			}
		}
		return found != nil
	}, bound, time.Millisecond, "no record %q", message)
	return found
}

// newClient makes a client with connections of its own.
func newClient(t *testing.T, http2 bool) *http.Client {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!http2)
	protocols.SetUnencryptedHTTP2(http2)
	tr := &http.Transport{Protocols: protocols}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
}

func send(t *testing.T, c *http.Client, method, url, body string, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
			continue
		}
		req.Header.Set(header[i], header[i+1])
	}
	res, err := c.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res, string(text)
}

// both runs a test over HTTP/1.1 and over h2c.
func both(t *testing.T, test func(t *testing.T, http2 bool)) {
	t.Run("HTTP/1.1", func(t *testing.T) { test(t, false) })
	t.Run("h2c", func(t *testing.T) { test(t, true) })
}

func TestBothHTTPVersionsOnOnePort(t *testing.T) {
	r := start(t, plain(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }))
	_, body := send(t, newClient(t, false), http.MethodPost, r.url, "")
	assert.Equal(t, "HTTP/1.1", body)
	_, body = send(t, newClient(t, true), http.MethodPost, r.url, "")
	assert.Equal(t, "HTTP/2.0", body)
}

func TestEventsArriveAsTheyAreFlushed(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		more := make(chan struct{})
		r := start(t, plain(func(w http.ResponseWriter, _ *http.Request) {
			_, ok := w.(http.Flusher)
			assert.True(t, ok)
			_, _ = io.WriteString(w, "first\n")
			assert.NoError(t, http.NewResponseController(w).Flush())
			<-more
			_, _ = io.WriteString(w, "second\n")
		}))
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url, nil)
		require.NoError(t, err)
		res, err := newClient(t, http2).Do(req)
		require.NoError(t, err)
		defer res.Body.Close()
		body := bufio.NewReader(res.Body)
		line, err := body.ReadString('\n')
		require.NoError(t, err)
		assert.Equal(t, "first\n", line)
		close(more)
		line, err = body.ReadString('\n')
		require.NoError(t, err)
		assert.Equal(t, "second\n", line)
	})
}

func TestNothingIsRedirected(t *testing.T) {
	for _, path := range []string{"/", "/mcp"} {
		r := start(t, plain(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Method) }), WithPath(path))
		client := newClient(t, false)
		for _, url := range []string{"/mcp", "/mcp/", "//mcp", "/a/../mcp", "/mcp?x=1", ""} {
			res, body := send(t, client, http.MethodPost, r.url+url, "{}")
			if path == "/" || strings.HasPrefix(url, "/mcp") {
				assert.Equal(t, 200, res.StatusCode, "%s at %s", url, path)
				assert.Equal(t, "POST", body)
				continue
			}
			assert.Equal(t, 404, res.StatusCode, "%s at %s", url, path)
			assert.True(t, json.Valid([]byte(body)), body)
		}
	}
}

func TestHealth(t *testing.T) {
	r := start(t, plain(http.NotFound), WithHealthPath("/health"))
	client := newClient(t, false)
	res, body := send(t, client, http.MethodGet, r.url+"/health", "")
	assert.Equal(t, 200, res.StatusCode)
	assert.Equal(t, "ok\n", body)
	res, body = send(t, client, http.MethodHead, r.url+"/health", "")
	assert.Equal(t, 200, res.StatusCode)
	assert.Empty(t, body)
	res, _ = send(t, client, http.MethodPost, r.url+"/health", "")
	assert.Equal(t, 405, res.StatusCode)
	assert.Equal(t, "GET, HEAD", res.Header.Get("Allow"))
	res, _ = send(t, client, http.MethodGet, r.url+"/healthz", "")
	assert.Equal(t, 404, res.StatusCode, "is the handler's now")

	s := newServer(r.settings, nil)
	close(s.draining)
	w := &recorder{}
	s.health(w, &http.Request{Method: http.MethodGet})
	assert.Equal(t, 503, w.status)
}

type recorder struct {
	header http.Header
	status int
}

func (r *recorder) Header() http.Header {
	if r.header == nil {
		r.header = http.Header{}
	}
	return r.header
}
func (r *recorder) Write(b []byte) (int, error) { return len(b), nil }
func (r *recorder) WriteHeader(status int)      { r.status = status }

func TestTheRequestTimeoutIsTheHandlersDeadline(t *testing.T) {
	server := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "wait"},
		func(ctx context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
			<-ctx.Done()
			return nil, nil, ctx.Err()
		})
	h := handler.New(server, nil, &handler.Options{
		Versions: []string{"2026-07-28"}, Logger: slog.New(slog.DiscardHandler),
	})
	r := start(t, plain(h.ServeHTTP), WithRequestTimeout(700*time.Millisecond))
	_, body := send(t, newClient(t, false), http.MethodPost, r.url, modernCall("wait", `{}`), modernHeaders("wait")...)
	assert.Contains(t, body, "the runtime's limit of")
}

func TestTheDeadlineOfLateRequestsIsTheEndOfTheGrace(t *testing.T) {
	c, err := settle([]Option{WithGrace(time.Minute)})
	require.NoError(t, err)
	s := newServer(c, nil)
	now := time.Now()
	assert.Equal(t, now.Add(300*time.Second), s.runtime(now).Deadline)
	end := now.Add(time.Minute)
	s.end.Store(&end)
	assert.Equal(t, end, s.runtime(now).Deadline)
	c.requestTimeout = time.Second
	assert.Equal(t, now.Add(time.Second), s.runtime(now).Deadline)
	c.requestTimeout = 0
	assert.Equal(t, end, s.runtime(now).Deadline)
}

func TestAPanicIsAnErrorAndALogRecord(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		r := start(t, plain(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/late" {
				_, _ = io.WriteString(w, "half of it")
				_ = http.NewResponseController(w).Flush()
			}
			panic("on purpose")
		}))
		client := newClient(t, http2)
		res, body := send(t, client, http.MethodPost, r.url, "")
		assert.Equal(t, 500, res.StatusCode)
		assert.JSONEq(t, `{"jsonrpc":"2.0","error":{"code":-32603,"message":"the server failed"}}`, body)
		record := r.log.find(t, "panic in the HTTP handler")
		assert.Equal(t, "a value of type string", record["panic"], "it could be anything, a client's arguments too")
		assert.Contains(t, record["stack"], "TestAPanicIsAnErrorAndALogRecord")

		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+"/late", nil)
		require.NoError(t, err)
		res, err = client.Do(req)
		require.NoError(t, err)
		defer res.Body.Close()
		_, err = io.ReadAll(res.Body)
		assert.Error(t, err, "the client sees that it has not got all")
	})
}

func TestTheAccessLogKeepsSecrets(t *testing.T) {
	r := start(t, plain(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = io.WriteString(w, "hello")
	}))
	header := []string{
		"Mcp-Session-Id", "SECRET1", "Authorization", "Bearer SECRET2", "Cookie", "SECRET3", "User-Agent", "tester",
		"Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
	}
	client := newClient(t, false)
	send(t, client, http.MethodPost, r.url+"/mcp?token=SECRET4", "SECRET5", header...)
	send(t, client, http.MethodDelete, r.url+"/mcp?token=SECRET4", "", header...)
	record := r.log.find(t, "POST /mcp")
	assert.Equal(t, "DEBUG", record[fieldSeverity])
	assert.Equal(t, "projects/test/traces/4bf92f3577b34da6a3ce929d0e0e4736", record[fieldTrace])
	assert.Equal(t, "00f067aa0ba902b7", record[fieldSpan])
	assert.Equal(t, true, record[fieldSampled])
	request := record["httpRequest"].(map[string]any)
	assert.Regexp(t, `^0\.\d{6}s$`, request["latency"])
	delete(request, "latency")
	assert.Equal(t, map[string]any{
		"requestMethod": "POST", "requestUrl": "/mcp", "status": 200.0, "responseSize": "5", "userAgent": "tester",
		"protocol": "HTTP/1.1",
	}, request)
	assert.Equal(t, "INFO", r.log.find(t, "DELETE /mcp")[fieldSeverity])
	assert.NotContains(t, r.log.String(), "SECRET")
}

func TestARequestThatOutlivesTheGraceIsTold(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		began := make(chan struct{})
		cause := make(chan error, 1)
		r := start(t, plain(func(_ http.ResponseWriter, r *http.Request) {
			close(began)
			<-r.Context().Done()
			cause <- context.Cause(r.Context())
		}), WithGrace(50*time.Millisecond))
		type outcome struct {
			res  *http.Response
			body string
		}
		got := make(chan outcome, 1)
		go func() {
			res, body := send(t, newClient(t, http2), http.MethodPost, r.url, "")
			got <- outcome{res, body}
		}()
		<-began
		r.drain()
		o := <-got
		assert.Equal(t, 503, o.res.StatusCode)
		assert.Equal(t, "1", o.res.Header.Get("Retry-After"))
		assert.Contains(t, o.body, `"code":-32603`)
		assert.Equal(t, ErrShutdown, <-cause)
		assert.NoError(t, r.ended(t))
	})
}

func TestAServerWithoutConnectionsEndsAtOnce(t *testing.T) {
	r := start(t, plain(http.NotFound))
	client := newClient(t, false)
	send(t, client, http.MethodGet, r.url+"/healthz", "")
	client.CloseIdleConnections()
	require.Eventually(t, func() bool { open, _ := r.connections(); return open == 0 }, bound, time.Millisecond)
	began := time.Now()
	r.drain()
	require.NoError(t, r.ended(t))
	assert.Less(t, time.Since(began), lameDuck)
}

func TestRequestsOfTheLameDuckAreServedAndEndTheirConnection(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		r := start(t, plain(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "served") }))
		client := newClient(t, http2)
		_, _ = send(t, client, http.MethodPost, r.url, "")
		r.drain()
		<-r.draining
		res, body := send(t, client, http.MethodPost, r.url, "")
		assert.Equal(t, "served", body)
		assert.Equal(t, !http2, res.Close, "HTTP/2 says it in another way")
		began := time.Now()
		require.NoError(t, r.ended(t))
		assert.Less(t, time.Since(began), 2*lameDuck)
		open, _ := r.connections()
		assert.Zero(t, open)
	})
}

func TestServeSaysWhatIsWrong(t *testing.T) {
	taken, err := net.Listen("tcp", "0.0.0.0:0")
	require.NoError(t, err)
	defer taken.Close()
	_, takenPort, err := net.SplitHostPort(taken.Addr().String())
	require.NoError(t, err)
	for _, c := range []struct {
		port string
		opt  Option
		want string
	}{
		{port: "http", want: `cloudrun: PORT is "http", which is no port number (1 to 65535)`},
		{port: "0", want: `cloudrun: PORT is "0", which is no port number (1 to 65535)`},
		{port: "65536", want: `cloudrun: PORT is "65536", which is no port number (1 to 65535)`},
		{port: "-1", want: `cloudrun: PORT is "-1", which is no port number (1 to 65535)`},
		{port: takenPort, want: "address already in use"},
		{opt: WithPath("mcp"), want: `cloudrun: WithPath: "mcp" does not begin with a slash`},
		{opt: WithHealthPath(""), want: `cloudrun: WithHealthPath: "" does not begin with a slash`},
		{opt: WithPath("/healthz"), want: `cloudrun: WithPath and WithHealthPath are both "/healthz"`},
		{opt: WithGrace(-1), want: "cloudrun: WithGrace: -1ns is negative"},
		{opt: WithRequestTimeout(-1), want: "cloudrun: WithRequestTimeout: -1ns is negative"},
	} {
		t.Run(c.want, func(t *testing.T) {
			t.Setenv("PORT", c.port)
			var opts []Option
			if c.opt != nil {
				opts = append(opts, c.opt)
			}
			assert.ErrorContains(t, Serve(t.Context(), http.NotFoundHandler(), opts...), c.want)
		})
	}
}

func TestServeFailsWithItsListener(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	err = Serve(t.Context(), http.NotFoundHandler(), WithListener(l), WithLogger(slog.New(slog.DiscardHandler)))
	assert.ErrorIs(t, err, net.ErrClosed)
}

// modernCall is a request of protocol 2026-07-28, which needs no session.
func modernCall(tool, arguments string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + tool + `","arguments":` + arguments +
		`,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","progressToken":1,` +
		`"io.modelcontextprotocol/clientCapabilities":{}}}}`
}

func modernHeaders(tool string) []string {
	return []string{
		"Content-Type", "application/json", "Accept", "application/json, text/event-stream",
		"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", tool,
	}
}
