package handler

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/store"
	"github.com/hydrant-mcp/hydrant/store/memory"
)

// Clients that take their time, and stores that do. Time is virtual: a test of minutes takes no time.

// slowWriter is the response to a client on a bad line: each write takes so long.
type slowWriter struct {
	*httptest.ResponseRecorder
	each time.Duration
	mu   sync.Mutex
}

func (w *slowWriter) Write(b []byte) (int, error) {
	time.Sleep(w.each)
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ResponseRecorder.Write(b)
}

func (w *slowWriter) Flush() {}

func (w *slowWriter) body() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.Body.String()
}

// direct serves a request without a network. Headers come in pairs.
func direct(h http.Handler, w http.ResponseWriter, method, body string, headers ...string) {
	r := httptest.NewRequest(method, "/", strings.NewReader(body))
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	h.ServeHTTP(w, r)
}

func directSession(h http.Handler) (id string) {
	w := httptest.NewRecorder()
	direct(h, w, http.MethodPost, initBody(version20251125, `{}`))
	return w.Header().Get(headerSession)
}

// burst reports progress so often at once, and then goes on.
func burst(times int, then func(context.Context) (*mcp.CallToolResult, error)) *mcp.Server {
	return withTool("burst", func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		for i := range times {
			p := &mcp.ProgressNotificationParams{ProgressToken: req.Params.GetProgressToken(), Progress: float64(i)}
			if err := req.Session.NotifyProgress(ctx, p); err != nil {
				return nil, err
			}
		}
		return then(ctx)
	})()
}

const burstBody = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"burst","_meta":{"progressToken":1}}}`

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestASlowReaderIsNoDeadProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(burst(12, func(context.Context) (*mcp.CallToolResult, error) {
			time.Sleep(90 * time.Second)
			return textResult("the result"), nil
		}), memory.New(), &Options{Logger: quiet()})
		id := directSession(h)
		post := &slowWriter{ResponseRecorder: httptest.NewRecorder(), each: 8 * time.Second}
		done := make(chan struct{})
		go func() {
			defer close(done)
			direct(h, post, http.MethodPost, burstBody, headerSession, id)
		}()
		time.Sleep(40 * time.Second)
		_, rest, ok := strings.Cut(post.body(), "id: ")
		require.True(t, ok)
		first, _, _ := strings.Cut(rest, "\n")
		get := httptest.NewRecorder() // the client comes back: its first connection was no good
		direct(h, get, http.MethodGet, "", headerSession, id, headerLastEvent, first)
		<-done
		assert.Contains(t, get.Body.String(), "the result", "the process lives, and has the result")
	})
}

func TestASlowReaderDoesNotOutlastTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(burst(200, func(ctx context.Context) (*mcp.CallToolResult, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}), memory.New(), &Options{Logger: quiet(), CallTimeout: 30 * time.Second})
		began := time.Now()
		w := &slowWriter{ResponseRecorder: httptest.NewRecorder(), each: 9 * time.Second}
		direct(h, w, http.MethodPost, burstBody, headerSession, directSession(h))
		assert.Less(t, time.Since(began), 90*time.Second, "the limit, and the few writes that are under way or end it")
	})
}

// pipes is a listener whose connections hold nothing: what one side writes waits until the other reads.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// servePipes serves a handler over pipes. post sends a request; over has an element for each request that has ended.
func servePipes(t *testing.T, h http.Handler) (post func(session, body string) (net.Conn, *bufio.Reader), over chan struct{}) {
	listener, over := make(pipes), make(chan struct{}, 10)
	srv := &http.Server{ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r)
		over <- struct{}{}
	})}
	go func() { _ = srv.Serve(listener) }()
	t.Cleanup(func() { close(listener); _ = srv.Close() })
	return func(session, body string) (net.Conn, *bufio.Reader) {
		client, server := net.Pipe()
		t.Cleanup(func() { client.Close() })
		listener <- server
		go func() {
			_, _ = fmt.Fprintf(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"+
				"Accept: application/json, text/event-stream\r\nMcp-Session-Id: %s\r\nContent-Length: %d\r\n\r\n%s", session, len(body), body)
		}()
		return client, bufio.NewReaderSize(client, 16)
	}, over
}

func TestTheEndOfAStreamWaitsForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(withTool("poll", func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			req.Extra.CloseSSEStream(mcp.CloseSSEStreamArgs{})
			return textResult("done"), nil
		})(), memory.New(), &Options{Logger: quiet(), CallTimeout: 5 * time.Second})
		post, over := servePipes(t, h)
		_, in := post(directSession(h), callBody("7", "poll", `{}`))
		for line, retry := "", false; !retry || line != "data:\n"; { // up to the event that says when to come back
			var err error
			line, err = in.ReadString('\n')
			require.NoError(t, err)
			retry = retry || strings.HasPrefix(line, "retry: ")
		}
		for range 2 { // the blank line, and the end of the chunk; then nothing more is read
			_, err := in.ReadString('\n')
			require.NoError(t, err)
		}
		began := time.Now()
		<-over
		assert.Less(t, time.Since(began), 30*time.Second)
	})
}

func TestALargeResponseReachesAClientOnASlowLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 4 << 20
		h := New(testServer(), memory.New(), &Options{Logger: quiet(), StreamAfter: -1})
		post, _ := servePipes(t, h)
		_, in := post(directSession(h), callBody("7", "large", `{"bytes":`+strconv.Itoa(size)+`}`))
		res, err := http.ReadResponse(in, nil)
		require.NoError(t, err)
		n, part := 0, make([]byte, 64<<10)
		for err == nil { // 64 KiB a second
			var k int
			k, err = io.ReadFull(res.Body, part)
			n += k
			time.Sleep(time.Second)
		}
		assert.Greater(t, n, size)
	})
}

// batching is a store that reads a hundred topics at a time, one after the other, as DynamoDB does.
type batching struct {
	store.Store
	each time.Duration
	read int
}

func (b *batching) TopicVersions(ctx context.Context, topics []string) (map[string]int64, error) {
	for n := 0; n < len(topics); n += 100 {
		select {
		case <-time.After(b.each):
			b.read += min(100, len(topics)-n)
		case <-ctx.Done():
			return nil, store.WrapContext(ctx, "topics")
		}
	}
	return b.Store.TopicVersions(ctx, topics)
}

func TestNobodysManyTopicsKeepAnybodyFromHisOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &batching{Store: memory.New(), each: 20 * time.Millisecond} // 10 s for all
		h := New(testServer(), st, &Options{Logger: quiet()})
		var many [][]string
		for i := range 99 {
			var names []string
			for j := range 500 {
				names = append(names, fmt.Sprintf("%d/%d", i, j))
				require.True(t, h.topics.join(names[j]))
			}
			many = append(many, names)
		}
		require.True(t, h.topics.join("own"))
		for range 3 {
			require.NoError(t, st.RaiseTopic(t.Context(), "own"))
			began := time.Now()
			versions, err := h.topics.current(t.Context(), st, []string{"own"}, time.Second)
			require.NoError(t, err)
			want, err := st.Store.TopicVersions(t.Context(), []string{"own"})
			require.NoError(t, err)
			assert.Equal(t, want, versions)
			assert.Less(t, time.Since(began), 2*topicWait)
			_, err = h.topics.current(t.Context(), st, many[0], 0)
			require.NoError(t, err)
			time.Sleep(time.Minute)
		}
	})
}

func TestAProcessThatWatchesEnoughRefusesMore(t *testing.T) {
	h := New(testServer(), memory.New(), &Options{Logger: quiet()})
	id := directSession(h)
	for i := range maxTopics - 2 {
		require.True(t, h.topics.join(strconv.Itoa(i)))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for name, r := range map[string]*http.Request{
		"GET":    httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil),
		"listen": httptest.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader(listenBody(`{"resourceSubscriptions":["a","b","c"]}`))),
	} {
		r.Header.Set("Accept", "application/json, text/event-stream")
		if r.Header.Set(headerSession, id); name == "listen" {
			r.Header.Del(headerSession)
			r.Header.Set("Content-Type", "application/json")
			for i := 0; i < len(listenHeaders); i += 2 {
				r.Header.Set(listenHeaders[i], listenHeaders[i+1])
			}
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		assert.Equal(t, 429, w.Code, "%s: %s", name, w.Body)
	}
	assert.Len(t, h.topics.topics, maxTopics-2, "nothing of what was refused is left")
	r := httptest.NewRecorder()
	direct(h, r, http.MethodPost, listTools, headerSession, id)
	assert.Equal(t, 200, r.Code)
}

// A place is taken before the store is asked, and the body goes when it has been read.
func TestAListeningStreamCostsLittle(t *testing.T) {
	e := open(t, setup{opts: Options{MaxStreams: 20}}, false)
	body := strings.Replace(listenBody(`{"toolsListChanged":true}`), `"params":{`, `"params":{"pad":"`+strings.Repeat("x", 3<<20)+`",`, 1)
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for range 20 {
		s := e.open(http.MethodPost, body, listenHeaders...)
		require.Equal(t, 200, s.status)
		_, _ = s.next()
	}
	assert.Less(t, (int64(heap())-int64(before))/20, int64(500<<10))
	e.store.spent()
	assert.Equal(t, 429, e.post(listenBody(`{"toolsListChanged":true}`), listenHeaders...).status)
	assert.NotContains(t, e.store.spent(), "topics")
}
