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
	"sync/atomic"
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
		event, state := w.eventID(ours, "k"), ""
		const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}`
		modern := &client.Session{Client: w.client, Version: client.Modern}
		headers := []string{"Mcp-Method", "tools/call", "Mcp-Name", "rounds"}
		_, _, body := w.do(modern, http.MethodPost,
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
		store := func(created, expires time.Duration) *client.Session {
			return w.copied(func(s *store.Session) { s.Created, s.Expires = time.Now().Add(created), time.Now().Add(expires) })
		}
		const list = listTools
		status, _, _ := w.do(store(10*time.Hour, 11*time.Hour), http.MethodPost, list)
		assert.Equal(w.t, 200, status, "made in the future")
		status, _, _ = w.do(store(-100*time.Hour, time.Hour), http.MethodPost, list)
		assert.Equal(w.t, 404, status, "older than a session may be")
		status, _, _ = w.do(store(-2*time.Hour, -time.Hour), http.MethodPost, list)
		assert.Equal(w.t, 404, status, "over, by its writer's clock")
	})
}

// A skewed store is that of a process whose clock is ahead of everybody else's: the times that it reads are earlier by that,
// and those that it writes are later.
type skewed struct {
	store.Store
	ahead *atomic.Int64
}

func (s skewed) shift(t time.Time, sign int64) time.Time {
	return t.Add(time.Duration(sign * s.ahead.Load()))
}

func (s skewed) session(r *store.Session, sign int64) *store.Session {
	if r != nil {
		r.Created, r.Expires = s.shift(r.Created, sign), s.shift(r.Expires, sign)
	}
	return r
}

func (s skewed) exchange(x *store.Exchange, sign int64) *store.Exchange {
	if x != nil {
		x.Lease, x.Expires = s.shift(x.Lease, sign), s.shift(x.Expires, sign)
	}
	return x
}

// Session implements [store.Store].
func (s skewed) Session(ctx context.Context, key string) (*store.Session, error) {
	r, err := s.Store.Session(ctx, key)
	return s.session(r, -1), err
}

// Exchange implements [store.Exchanges].
func (s skewed) Exchange(ctx context.Context, key string) (*store.Exchange, error) {
	x, err := s.Store.Exchange(ctx, key)
	return s.exchange(x, -1), err
}

// UpdateExchange implements [store.Exchanges].
func (s skewed) UpdateExchange(ctx context.Context, x *store.Exchange) error {
	err := s.Store.UpdateExchange(ctx, s.exchange(x, 1))
	s.exchange(x, -1)
	return err
}

// Look implements [store.Store].
func (s skewed) Look(ctx context.Context, key string, slots []store.Slot) (*store.Session, map[store.Slot][]byte, error) {
	r, answers, err := s.Store.Look(ctx, key, slots)
	return s.session(r, -1), answers, err
}

// The clock of whoever reads a lease is not that of whoever renews it. A lease of 21 seconds is renewed every 10: up to 11 of
// difference kill nobody who lives, also when they come in one leap. What is dead is found out later by the difference.
func TestClocksThatDisagree(t *testing.T) {
	for name, c := range map[string]struct {
		ahead, leap time.Duration // of the reader's clock, and by how much more in mid-call
		dies        bool          // the process that runs the call
		within      time.Duration // from then on
	}{
		"ahead":              {ahead: 10 * time.Second},
		"behind":             {ahead: -10 * time.Second},
		"a leap ahead":       {leap: 10 * time.Second},
		"a leap back":        {ahead: 10 * time.Second, leap: -20 * time.Second},
		"dead":               {dies: true, within: 30 * time.Second},
		"dead, ahead":        {ahead: 10 * time.Second, dies: true, within: 30 * time.Second},
		"dead, behind":       {ahead: -10 * time.Second, dies: true, within: 40 * time.Second},
		"dead, a leap back":  {leap: -10 * time.Second, dies: true, within: 40 * time.Second},
		"dead, a leap ahead": {leap: 10 * time.Second, dies: true, within: 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			var ahead atomic.Int64
			clock := func(i *instance, st store.Store) store.Store {
				if i.name == "0" {
					return st
				}
				return telling(skewed{st, &ahead}, st)
			}
			inWorld(t, setup{instances: 2, wrap: clock}, func(w *world) {
				ahead.Store(int64(c.ahead))
				s := w.session(w.client, latest)
				var died time.Time
				q := client.Tool("slow", `{"key":"k","ms":180000}`)
				q.Drop = func(n int) bool { // the first event is here after a second
					time.AfterFunc(7*time.Second, func() { ahead.Add(int64(c.leap)) })
					if died = time.Now(); c.dies {
						w.instances[0].kill()
					}
					return true
				}
				o := s.Call(w.t.Context(), q)
				require.Equal(w.t, "0", o.Instances[0], "it runs by the right clock")
				require.Equal(w.t, "1", o.Instances[1], "it is read by the other one")
				assert.Equal(w.t, c.dies, o.Interrupted(), o.Trace)
				assert.Equal(w.t, 1, w.runs.of("k"))
				if c.dies {
					assert.Less(w.t, o.Ended.Sub(died), c.within)
				} else {
					assert.Equal(w.t, "k", o.Text(), o.Trace)
				}
			})
		})
	}
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
	h := handler.New(newServer(&runs{count: map[string]int{}}, ""), st, &handler.Options{
		Logger: slog.New(slog.DiscardHandler), StreamAfter: -1, // a slow machine makes no streams of these
	})
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

// An open stream costs what net/http needs for its connection, and little more: of both eras, over both kinds of store.
func TestOpenStreamsAreCheap(t *testing.T) {
	const head = "Host: test\r\nAccept: application/json, text/event-stream\r\n"
	get := func(t *testing.T, c *client.Client) string {
		s, o := c.Initialize(t.Context(), latest)
		require.NotNil(t, s, o.Trace)
		o = s.Call(t.Context(), client.Request{Method: "resources/subscribe", Params: `{"uri":"test://one"}`})
		require.Equal(t, client.Answered, o.Fate)
		return "GET / HTTP/1.1\r\n" + head + "Mcp-Session-Id: " + s.ID + "\r\n\r\n"
	}
	listen := func(*testing.T, *client.Client) string {
		q := modern(`"notifications":{"toolsListChanged":true,"resourceSubscriptions":["test://one"]}`)(&world{})
		body := strings.Replace(q.body, "tools/call", "subscriptions/listen", 1)
		return fmt.Sprintf("POST / HTTP/1.1\r\n%sContent-Type: application/json\r\nMcp-Protocol-Version: %s\r\n"+
			"Mcp-Method: subscriptions/listen\r\nContent-Length: %d\r\n\r\n%s", head, client.Modern, len(body), body)
	}
	for name, c := range map[string]struct {
		request func(*testing.T, *client.Client) string
		st      store.Store
	}{
		"GET, the store tells":       {get, memory.New()},
		"GET, it is looked at":       {get, struct{ store.Store }{memory.New()}},
		"listening, the store tells": {listen, memory.New()},
		"listening, it is looked at": {listen, struct{ store.Store }{memory.New()}},
	} {
		t.Run(name, func(t *testing.T) {
			h := handler.New(newServer(&runs{count: map[string]int{}}, ""), c.st, &handler.Options{Logger: slog.New(slog.DiscardHandler)})
			ended := make(chan struct{})
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				ctx := handler.WithRuntime(r.Context(), handler.Runtime{Draining: ended})
				h.ServeHTTP(w, r.WithContext(ctx))
			}))
			defer srv.Close()
			defer close(ended)
			const streams, first = 300, 10 // the first ones make what is made once
			var requests []string
			for range first + streams {
				requests = append(requests, c.request(t, &client.Client{URL: srv.URL, HTTP: srv.Client()}))
			}
			// A connection of its own for each, without a client's buffers around it.
			open := func(request string) {
				conn, err := net.Dial("tcp", srv.Listener.Addr().String())
				require.NoError(t, err)
				t.Cleanup(func() { _ = conn.Close() })
				_, err = io.WriteString(conn, request)
				require.NoError(t, err)
				require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
				status := make([]byte, len("HTTP/1.1 200"))
				_, err = io.ReadFull(conn, status)
				require.NoError(t, err)
				require.Equal(t, "HTTP/1.1 200", string(status))
			}
			for _, request := range requests[:first] {
				open(request)
			}
			before := heap()
			for _, request := range requests[first:] {
				open(request)
			}
			each := (int64(heap()) - int64(before)) / streams
			t.Logf("%d bytes for each stream", each)
			assert.Less(t, each, int64(64<<10))
		})
	}
}
