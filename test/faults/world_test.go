package faults

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/handler"
	"github.com/hydrant-mcp/hydrant/internal/cmd/soak/client"
	"github.com/hydrant-mcp/hydrant/store"
	"github.com/hydrant-mcp/hydrant/store/faulty"
	"github.com/hydrant-mcp/hydrant/store/memory"
)

// A world is several instances on one store, a network between them and their clients, and a clock of its own: leases of
// 20 seconds and retries after a second cost nothing. It all runs in one process, so that a test can look at everything.
type world struct {
	t      *testing.T
	under  store.Store // what the instances share, without faults
	tells  bool
	faults *faulty.Faults
	log    *logBook
	runs   *runs
	client *client.Client

	instances []*instance
	next      atomic.Int64
	attends   atomic.Int64 // operations of the store that were part of an open request
}

// setup is what a world is made of; zero values are defaults.
type setup struct {
	plan      faulty.Plan
	opts      handler.Options
	instances int         // default: 3
	under     store.Store // default: in memory
	tells     bool        // whether the store tells what changes, if it can
	runtime   handler.Runtime
	// wrap puts something around the store of an instance; nil: nothing.
	wrap func(i *instance, st store.Store) store.Store
}

// callsEnd is when every call has ended, by Options.CallTimeout.
const callsEnd = 20 * time.Minute

// inWorld runs a test in a world, on the world's own clock: once over a store that is looked at, and once over one that
// tells what changes.
func inWorld(t *testing.T, s setup, test func(w *world)) {
	t.Helper()
	for name, tells := range map[string]bool{"looked at": false, "tells": true} {
		s.tells = tells
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, s)
				defer w.end()
				test(w)
			})
		})
	}
}

func newWorld(t *testing.T, s setup) *world {
	w := &world{t: t, under: s.under, tells: s.tells, faults: faulty.New(s.plan), log: &logBook{t: t}, runs: &runs{count: map[string]int{}}}
	if w.under == nil {
		w.under = memory.New()
	}
	if !s.tells {
		w.under = struct{ store.Store }{w.under}
	}
	if len(s.opts.Keys) == 0 {
		s.opts.Keys = [][]byte{make([]byte, 32)}
	}
	s.opts.Logger = slog.New(slog.NewJSONHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	for i := range max(s.instances, 1+2*btoi(s.instances == 0)) {
		w.instances = append(w.instances, newInstance(strconv.Itoa(i), w, s))
	}
	w.client = w.newClient(nil)
	return w
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// end ends a world that has a clock of its own.
func (w *world) end() {
	time.Sleep(callsEnd) // calls that nobody waits for any more go on until then
	w.stop()
	synctest.Wait()
}

func (w *world) stop() {
	w.client.HTTP.CloseIdleConnections()
	for _, i := range w.instances {
		i.kill()
	}
}

// newClient gives a client whose every connection goes to the next instance that lives.
func (w *world) newClient(cut func() int64) *client.Client {
	return &client.Client{
		URL: "http://hydrant.test/mcp",
		Cut: cut,
		HTTP: &http.Client{Transport: &http.Transport{
			DisableKeepAlives: true, DisableCompression: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				for range w.instances {
					i := w.instances[int(w.next.Add(1))%len(w.instances)]
					if conn, err := i.dial(ctx); err == nil {
						return conn, nil
					}
				}
				return nil, errRefused
			},
		}},
		Patience: 10 * time.Minute,
	}
}

// session opens a session, whatever the store does.
func (w *world) session(c *client.Client, version string) *client.Session {
	w.t.Helper()
	for range 50 {
		if s, _ := c.Initialize(w.t.Context(), version); s != nil {
			return s
		}
	}
	require.Fail(w.t, "no session")
	return nil
}

// An instance is a process: a handler, and the connections to it.
type instance struct {
	net.Listener
	name    string
	handler *handler.Handler
	server  *http.Server
	conns   chan net.Conn
	dead    chan struct{}
	once    sync.Once
}

var errRefused = fmt.Errorf("connection refused")

func newInstance(name string, w *world, s setup) *instance {
	i := &instance{name: name, conns: make(chan net.Conn), dead: make(chan struct{})}
	st := w.faults.Wrap(faulty.Around(i.cutOff).Wrap(w.under))
	if s.wrap != nil {
		st = s.wrap(i, st)
	}
	i.handler = handler.New(newServer(w.runs, name), faulty.Around(w.attended).Wrap(st), &s.opts)
	i.server = &http.Server{
		Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set(client.HeaderInstance, name)
			var answered atomic.Bool
			defer answered.Store(true)
			ctx := context.WithValue(handler.WithRuntime(r.Context(), s.runtime), answeredKey{}, &answered)
			w.log.forbid(r.Header.Get("Mcp-Session-Id"), r.Header.Get("Last-Event-ID"))
			i.handler.ServeHTTP(rw, r.WithContext(ctx))
			w.log.forbid(rw.Header().Get("Mcp-Session-Id"))
		}),
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	go func() { _ = i.server.Serve(i) }()
	return i
}

// answeredKey finds, in the context of a request, whether ServeHTTP has returned.
type answeredKey struct{}

// telling gives a store that is made of another one the Watch of that, if it has one.
func telling(made, of store.Store) store.Store {
	if w, ok := of.(store.Watcher); ok {
		return struct {
			store.Store
			store.Watcher
		}{made, w}
	}
	return made
}

// attended fails the test when an operation of the store is not part of a request that is still open: nothing of ours runs
// after the answer. What is read for several requests at once is read by one of them, which waits for it: its context has
// been given another end, and has its values still. What a tool tries that was left behind has a context that has ended, and
// so never begins.
func (w *world) attended(ctx context.Context, op faulty.Operation, call func(context.Context) error) error {
	answered, ok := ctx.Value(answeredKey{}).(*atomic.Bool)
	if err := store.WrapContext(ctx, "test"); err != nil {
		return err
	}
	if !ok || answered.Load() {
		assert.Fail(w.t, "an operation of the store begins that belongs to no open request", op)
		return store.Wrap("test", store.ErrUnavailable, nil)
	}
	w.attends.Add(1)
	err := call(ctx)
	assert.False(w.t, answered.Load(), "the answer has gone out before this operation of the store has ended: %s", op)
	return err
}

// kill ends an instance as SIGKILL does, as far as anybody outside can see: its connections break, and nothing of it
// reaches the store any more.
func (i *instance) kill() {
	i.once.Do(func() {
		close(i.dead)
		_ = i.server.Close()
	})
}

// cutOff lets nothing of a dead instance through.
func (i *instance) cutOff(ctx context.Context, _ faulty.Operation, call func(context.Context) error) error {
	select {
	case <-i.dead:
		return store.Wrap("test", store.ErrUnavailable, nil)
	default:
		return call(ctx)
	}
}

func (i *instance) dial(ctx context.Context) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case i.conns <- onLoopback{far}:
		return near, nil
	case <-i.dead:
		return nil, errRefused
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// onLoopback is a connection to a loopback address, as far as its server can see.
type onLoopback struct{ net.Conn }

// LocalAddr implements [net.Conn].
func (onLoopback) LocalAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }

// Accept implements [net.Listener].
func (i *instance) Accept() (net.Conn, error) {
	select {
	case conn := <-i.conns:
		return conn, nil
	case <-i.dead:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (i *instance) Close() error { return nil }

// Addr implements [net.Listener].
func (i *instance) Addr() net.Addr { return &net.TCPAddr{} }

// runs counts how often tools ran: by call, and for tools that ask in rounds by round.
type runs struct {
	mu    sync.Mutex
	count map[string]int
}

func (r *runs) ran(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count[key]++
}

func (r *runs) of(key string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count[key]
}

// total is how often tools ran.
func (r *runs) total() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, times := range r.count {
		n += times
	}
	return n
}

// twice gives what ran more than once.
func (r *runs) twice() (keys []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, n := range r.count {
		if n > 1 {
			keys = append(keys, fmt.Sprintf("%s: %d times", key, n))
		}
	}
	return keys
}

// maxRound is how often the tool rounds asks.
const maxRound = 3

// newServer has a tool for each way of working. All take a key, and return it.
func newServer(r *runs, instance string) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ServerOptions{
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
	})
	type input struct {
		Key          string
		Ms, N, Bytes int
	}
	tool := func(name string, run func(context.Context, *mcp.CallToolRequest, input) (*mcp.CallToolResult, error)) {
		s.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				var in input
				if err := json.Unmarshal(req.Params.Arguments, &in); err != nil {
					return nil, err
				}
				return run(ctx, req, in)
			})
	}
	tool("quick", func(_ context.Context, _ *mcp.CallToolRequest, in input) (*mcp.CallToolResult, error) {
		r.ran(in.Key)
		return text(in.Key), nil
	})
	tool("slow", func(ctx context.Context, req *mcp.CallToolRequest, in input) (*mcp.CallToolResult, error) {
		r.ran(in.Key)
		r.ran(in.Key + " on " + instance)
		for i := range max(in.N, 1) {
			if in.N > 0 && req.Params.GetProgressToken() != nil {
				_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
					ProgressToken: req.Params.GetProgressToken(), Progress: float64(i + 1),
				})
			}
			select {
			case <-time.After(time.Duration(in.Ms) * time.Millisecond):
			case <-ctx.Done():
				r.ran("cancelled " + in.Key)
				return nil, ctx.Err()
			}
		}
		return text(in.Key), nil
	})
	tool("panic", func(context.Context, *mcp.CallToolRequest, input) (*mcp.CallToolResult, error) { panic("boom") })
	s.AddResource(&mcp.Resource{URI: "test://one", Name: "one"}, // without any, none can be listened to
		func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			return &mcp.ReadResourceResult{}, nil
		})
	s.AddPrompt(&mcp.Prompt{Name: "panic"}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) { panic("boom") })
	tool("large", func(_ context.Context, _ *mcp.CallToolRequest, in input) (*mcp.CallToolResult, error) {
		r.ran(in.Key)
		return text(filler(in.Key, in.Bytes)), nil
	})
	tool("deaf", func(ctx context.Context, req *mcp.CallToolRequest, in input) (*mcp.CallToolResult, error) {
		r.ran(in.Key)
		time.Sleep(time.Duration(in.Ms) * time.Millisecond) // whatever ctx says
		r.ran("late " + in.Key)
		_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: req.Params.GetProgressToken()})
		return text(in.Key), handler.NotifyResourceUpdated(ctx, "test://late")
	})
	tool("ask", func(ctx context.Context, req *mcp.CallToolRequest, in input) (*mcp.CallToolResult, error) {
		r.ran(in.Key)
		time.Sleep(time.Duration(in.Ms) * time.Millisecond)
		a, err := req.Session.Elicit(ctx, &mcp.ElicitParams{Message: in.Key})
		if err != nil {
			return nil, fmt.Errorf("asking: %w", err)
		}
		return text(fmt.Sprint(a.Content["answer"])), nil
	})
	tool("rounds", func(_ context.Context, req *mcp.CallToolRequest, in input) (*mcp.CallToolResult, error) {
		round, answers := 0, ""
		if state := req.Params.RequestState; state != "" {
			_, _ = fmt.Sscanf(state, "%d %s", &round, &answers)
			a, _ := req.Params.InputResponses["q"].(*mcp.ElicitResult)
			if a != nil {
				answers += fmt.Sprint(a.Content["answer"]) + ";"
			}
		}
		r.ran(in.Key + " round " + strconv.Itoa(round))
		if round == maxRound {
			return text(answers), nil
		}
		return &mcp.CallToolResult{
			RequestState:  fmt.Sprintf("%d %s", round+1, answers),
			InputRequests: mcp.InputRequestMap{"q": &mcp.ElicitParams{Message: fmt.Sprintf("%s.%d", in.Key, round+1)}},
		}, nil
	})
	tool("touch", func(ctx context.Context, _ *mcp.CallToolRequest, in input) (*mcp.CallToolResult, error) {
		return text(in.Key), handler.NotifyResourceUpdated(ctx, in.Key)
	})
	return s
}

func text(s string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}
}

// filler is a text of so many bytes that only its key has.
func filler(key string, bytes int) string {
	out := make([]byte, 0, bytes+len(key))
	for len(out) < bytes {
		out = append(out, key...)
	}
	return string(out[:bytes])
}

// echo answers a question with what it asked.
func echo(params json.RawMessage) string {
	var q struct{ Message string }
	_ = json.Unmarshal(params, &q)
	return fmt.Sprintf(`{"action":"accept","content":{"answer":%q}}`, q.Message)
}

// logBook is what the handlers have logged.
type logBook struct {
	t       *testing.T
	mu      sync.Mutex
	lines   []string
	secrets map[string]bool
}

// forbid names what is not to be logged from now on.
func (l *logBook) forbid(secrets ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.secrets == nil {
		l.secrets = map[string]bool{}
	}
	for _, v := range secrets {
		if len(v) >= 20 { // a shorter one is made up by a test
			l.secrets[v] = true
		}
	}
}

// Write implements [io.Writer].
func (l *logBook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(p))
	for v := range l.secrets {
		if strings.Contains(string(p), v) {
			l.t.Errorf("a secret is logged: %s", p)
		}
	}
	return len(p), nil
}

// keyOf is what the store knows a session by.
func keyOf(s *client.Session) string {
	sum := sha256.Sum256([]byte("default\x00" + s.ID))
	return hex.EncodeToString(sum[:])
}

// of gives the messages about a session, each with its level.
func (l *logBook) of(s *client.Session) (messages []string) {
	id := keyOf(s)[:12]
	for _, e := range l.entries() {
		if e.Session == id {
			messages = append(messages, e.Level+" "+e.Msg)
		}
	}
	return messages
}

type entry struct {
	Level, Msg, Session, Reason, Error string
	Code                               int
}

func (l *logBook) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = nil
}

// has says whether there is an entry at a level about a JSON-RPC code; 0: about anything.
func (l *logBook) has(level string, code int) bool {
	return slices.ContainsFunc(l.entries(), func(e entry) bool { return e.Level == level && (code == 0 || code == e.Code) })
}

func (l *logBook) entries() (all []entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		var e entry
		if json.Unmarshal([]byte(line), &e) == nil {
			all = append(all, e)
		}
	}
	return all
}

// random is a source for one worker of one test, the same in every run.
func random(seed uint64, worker int) *rand.Rand { return rand.New(rand.NewPCG(seed, uint64(worker))) }

// cuts breaks a share of all connections at a random byte of the response.
func cuts(r *rand.Rand, share float64) func() int64 {
	var mu sync.Mutex
	return func() int64 {
		mu.Lock()
		defer mu.Unlock()
		if r.Float64() >= share {
			return -1
		}
		return r.Int64N(1500)
	}
}
