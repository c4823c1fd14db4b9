package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/handler"
	"github.com/hydrant-mcp/hydrant/internal/cmd/soak/client"
	"github.com/hydrant-mcp/hydrant/store"
	"github.com/hydrant-mcp/hydrant/store/memory"
)

// Two instances have different keys: what one has given a client means nothing to the other, and is refused cleanly. What
// needs no key works everywhere.
func TestAWrongKey(t *testing.T) {
	inWorld(t, setup{instances: 1}, func(w *world) {
		ours := w.session(w.client, latest)
		event, state := "", ""
		_, _, body := w.do(ours, http.MethodPost,
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"quick","arguments":{"key":"k"}}}`, "Accept", "text/event-stream")
		for line := range strings.Lines(body) {
			if id, ok := strings.CutPrefix(line, "id: "); ok && event == "" {
				event = strings.TrimSpace(id)
			}
		}
		require.NotEmpty(w.t, event)
		const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}`
		modern := &client.Session{Client: w.client, Version: client.Modern}
		headers := []string{"Mcp-Method", "tools/call", "Mcp-Name", "rounds"}
		_, _, body = w.do(modern, http.MethodPost,
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"rounds","arguments":{"key":"m"},`+meta+`}}`, headers...)
		_, rest, ok := strings.Cut(body, `"requestState":"`)
		require.True(w.t, ok, body)
		state, _, _ = strings.Cut(rest, `"`)

		other := newWorld(w.t, setup{instances: 1, under: w.under, opts: handler.Options{Keys: [][]byte{[]byte(strings.Repeat("k", 32))}}})
		defer other.stop()
		theirs := &client.Session{Client: other.client, ID: ours.ID, Version: latest}
		status, _, body := other.do(theirs, http.MethodGet, "", "Last-Event-ID", event)
		assert.Equal(w.t, 400, status)
		assert.Contains(w.t, body, "-32600")
		status, _, body = other.do(&client.Session{Client: other.client, Version: client.Modern}, http.MethodPost,
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"rounds","arguments":{"key":"m"},"requestState":"`+state+
				`","inputResponses":{"q":{"action":"accept","content":{"answer":"x"}}},`+meta+`}}`, headers...)
		assert.Equal(w.t, 400, status, body)
		assert.Contains(w.t, body, "-32602")
		assert.Empty(w.t, other.runs.count, "the tool has not run")
		o := theirs.Call(w.t.Context(), client.Tool("quick", `{"key":"works"}`))
		assert.Equal(w.t, "works", o.Text(), "sessions need no key")
		status, _, body = w.do(ours, http.MethodGet, "", "Last-Event-ID", event)
		assert.Equal(w.t, 200, status)
		assert.Contains(w.t, body, `"k"`)
	})
}

// The clock of whoever wrote a record was wrong, or ours is.
func TestClockJumps(t *testing.T) {
	inWorld(t, setup{opts: handler.Options{SessionTTL: time.Hour, SessionLifetime: 24 * time.Hour}}, func(w *world) {
		made := 0
		store := func(created, expires time.Duration) *client.Session {
			s := w.session(w.client, latest)
			record, err := w.under.Session(w.t.Context(), keyOf(s))
			require.NoError(w.t, err)
			other := *record
			made++
			id := strings.Repeat("B", len(s.ID)-1) + string(rune('A'+made))
			other.Created, other.Expires = time.Now().Add(created), time.Now().Add(expires)
			copied := &client.Session{Client: w.client, ID: id, Version: latest}
			other.Key = keyOf(copied)
			require.NoError(w.t, w.under.CreateSession(w.t.Context(), &other))
			return copied
		}
		const list = listTools
		status, _, _ := w.do(store(10*time.Hour, 11*time.Hour), http.MethodPost, list)
		assert.Equal(w.t, 200, status, "made in the future")
		status, _, _ = w.do(store(-100*time.Hour, time.Hour), http.MethodPost, list)
		assert.Equal(w.t, 404, status, "older than a session may be")
		status, _, _ = w.do(store(-2*time.Hour, -time.Hour), http.MethodPost, list)
		assert.Equal(w.t, 404, status, "over, by its writer's clock")
	})
	// The clock leaps forward in the middle of a call, by more than a lease: the call itself goes on.
	inWorld(t, setup{}, func(w *world) {
		s := w.session(w.client, latest)
		o := dropped(w, s, "slow", `{"key":"k","ms":180000}`)
		assert.Equal(w.t, "k", o.Text(), o.Trace)
	})
}

// The disk that takes the log is full.
func TestALogThatCannotBeWritten(t *testing.T) {
	full := slog.New(slog.NewJSONHandler(failingWriter{}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	h := handler.New(newServer(&runs{count: map[string]int{}}, ""), memory.New(), &handler.Options{Logger: full})
	srv := httptest.NewServer(h)
	defer srv.Close()
	c := &client.Client{URL: srv.URL, HTTP: srv.Client()}
	s, o := c.Initialize(t.Context(), latest)
	require.NotNil(t, s, o.Trace)
	for _, tool := range []string{"quick", "panic", "nowhere"} {
		o := s.Call(t.Context(), client.Tool(tool, `{"key":"k"}`))
		assert.Equal(t, client.Answered, o.Fate, tool)
	}
	status, _, _, err := (&client.Session{Client: c, ID: "gone", Version: latest}).Do(t.Context(), http.MethodPost, listTools)
	require.NoError(t, err)
	assert.Equal(t, 404, status)
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

// elsewhere is a store whose memory is not this process's: what a session costs here is what the handler keeps of it.
type elsewhere struct {
	store.Store
	mu     sync.Mutex
	record store.Session
	made   int
}

func (e *elsewhere) CreateSession(_ context.Context, s *store.Session) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.record, e.made = *s, e.made+1
	return nil
}

func (e *elsewhere) Session(_ context.Context, key string) (*store.Session, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.record
	s.Key = key
	return &s, nil
}

func heap() uint64 {
	runtime.GC()
	runtime.GC() // what has finalizers
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// An idle session is a record in the store, and nothing in a process.
func TestIdleSessionsCostNothing(t *testing.T) {
	st := &elsewhere{}
	h := handler.New(newServer(&runs{count: map[string]int{}}, ""), st, &handler.Options{Logger: slog.New(slog.DiscardHandler)})
	open := func(n int) {
		for range n {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, post(initializeBody, ""))
			require.Equal(t, 200, w.Code)
			id := w.Header().Get("Mcp-Session-Id")
			for _, body := range []string{`{"jsonrpc":"2.0","method":"notifications/initialized"}`, listTools} {
				h.ServeHTTP(httptest.NewRecorder(), post(body, id))
			}
		}
	}
	st.Store = refusing{}
	open(200) // whatever is made once
	before := heap()
	const sessions = 10_000
	open(sessions)
	grown := int64(heap()) - int64(before)
	assert.Equal(t, sessions+200, st.made)
	assert.Less(t, grown/sessions, int64(100), "bytes for each session; %d together", grown)
	runtime.KeepAlive(h)
}

// refusing takes updates and forgets them.
type refusing struct{ store.Store }

func (refusing) UpdateSession(context.Context, *store.Session) error { return nil }

const initializeBody = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},` +
	`"clientInfo":{"name":"t","version":"1"}}}`

func post(body, session string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if session != "" {
		r.Header.Set("Mcp-Session-Id", session)
	}
	return r
}

// An open stream costs what net/http needs for its connection, and little more.
func TestOpenStreamsAreCheap(t *testing.T) {
	st := memory.New()
	h := handler.New(newServer(&runs{count: map[string]int{}}, ""), st, &handler.Options{
		Logger: slog.New(slog.DiscardHandler), MaxStreams: 5000,
	})
	ended := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := handler.WithRuntime(r.Context(), handler.Runtime{Draining: ended})
		h.ServeHTTP(w, r.WithContext(ctx))
	}))
	defer srv.Close()
	c := &client.Client{URL: srv.URL, HTTP: srv.Client()}
	listening := func() *client.Session {
		s, o := c.Initialize(t.Context(), latest)
		require.NotNil(t, s, o.Trace)
		o = s.Call(t.Context(), client.Request{Method: "resources/subscribe", Params: `{"uri":"test://one"}`})
		require.Equal(t, client.Answered, o.Fate)
		return s
	}
	address := strings.TrimPrefix(srv.URL, "http://")
	var conns []net.Conn
	defer func() {
		for _, conn := range conns {
			_ = conn.Close()
		}
	}()
	// A connection of its own for each, without a client's buffers around it.
	open := func(s *client.Session) {
		conn, err := net.Dial("tcp", address)
		require.NoError(t, err)
		conns = append(conns, conn)
		_, err = fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nAccept: text/event-stream\r\nMcp-Session-Id: %s\r\n\r\n", address, s.ID)
		require.NoError(t, err)
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(20*time.Second)))
		head := make([]byte, len("HTTP/1.1 200"))
		_, err = io.ReadFull(conn, head)
		require.NoError(t, err)
		require.Equal(t, "HTTP/1.1 200", string(head))
	}
	const streams = 1000
	var sessions []*client.Session
	for range streams + 10 {
		sessions = append(sessions, listening())
	}
	for _, s := range sessions[:10] {
		open(s)
	}
	before := heap()
	for _, s := range sessions[10:] {
		open(s)
	}
	each := (int64(heap()) - int64(before)) / streams
	t.Logf("%d bytes for each stream", each)
	assert.Less(t, each, int64(64<<10))
	close(ended)
}
