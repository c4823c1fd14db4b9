package handler

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/internal/rawjson"
	"github.com/hydrant-mcp/hydrant/store"
)

// A frame is what stands between two blank lines of an event stream.
type frame struct {
	id, data, retry, comment string
	hasData                  bool
}

func (f frame) id0() string { id, _ := rawjson.Get(json.RawMessage(f.data), "id"); return string(id) }

func (f frame) method() string { return stringOf(json.RawMessage(f.data), "method") }

func stringOf(v json.RawMessage, key string) string {
	raw, _ := rawjson.Get(v, key)
	s, _ := rawjson.String(raw)
	return s
}

// response says whether the frame is a response.
func (f frame) response() bool { return f.data != "" && f.method() == "" && f.id0() != "" }

// A stream is an open event stream.
type stream struct {
	t      *testing.T
	status int
	header http.Header
	frames chan frame // closed at its end
	drop   func()
}

// open sends a request and reads the stream that answers it; a body that is no stream comes as one frame.
func (e *endpoint) open(method, body string, headers ...string) *stream {
	e.t.Helper()
	ctx, cancel := context.WithCancel(e.t.Context())
	req, err := http.NewRequestWithContext(ctx, method, e.url, strings.NewReader(body))
	require.NoError(e.t, err)
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
	} else {
		req.Header.Set("Accept", "text/event-stream")
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	e.sees(req, body)
	res, err := e.client.Do(req)
	require.NoError(e.t, err)
	s := &stream{t: e.t, status: res.StatusCode, header: res.Header, frames: make(chan frame, 1000)}
	done := make(chan struct{})
	s.drop = func() { cancel(); <-done }
	e.t.Cleanup(s.drop)
	go func() {
		defer close(done)
		defer close(s.frames)
		defer res.Body.Close()
		if !strings.HasPrefix(res.Header.Get("Content-Type"), typeStream) {
			body, _ := io.ReadAll(res.Body)
			s.frames <- frame{data: string(body), hasData: true}
			return
		}
		in := bufio.NewScanner(res.Body)
		in.Buffer(nil, 64<<20)
		var f frame
		for in.Scan() {
			switch line := in.Text(); {
			case line == "":
				s.frames <- f
				f = frame{}
			case strings.HasPrefix(line, ":"):
				f.comment = line
			case strings.HasPrefix(line, "id: "):
				f.id = line[4:]
				e.secret(f.id)
			case strings.HasPrefix(line, "retry: "):
				f.retry = line[7:]
			case strings.HasPrefix(line, "data:"):
				f.data, f.hasData = strings.TrimPrefix(line[5:], " "), true
			}
		}
	}()
	return s
}

const patience = 20 * time.Second

// next gives the next frame that is no comment; ok is false at the end.
func (s *stream) next() (f frame, ok bool) {
	s.t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case f, ok := <-s.frames:
			if ok && f.comment != "" {
				continue
			}
			return f, ok
		case <-timeout:
			require.Fail(s.t, "the stream is silent")
		}
	}
}

// rest reads the stream to its end.
func (s *stream) rest() (all []frame) {
	s.t.Helper()
	for {
		f, ok := s.next()
		if !ok {
			return all
		}
		all = append(all, f)
	}
}

func (s *session) open(method, body string, headers ...string) *stream {
	s.t.Helper()
	return s.endpoint.open(method, body, append([]string{headerSession, s.id}, headers...)...)
}

func (s *session) resume(id string) *stream {
	s.t.Helper()
	return s.open(http.MethodGet, "", headerLastEvent, id)
}

// follow comes back until the response is there, as a client does, and gives all that came.
func (s *session) follow(from *stream) []frame {
	s.t.Helper()
	return s.comeBack(from, 200, func(frame) {})
}

// comeBack follows a call to its response, over so many streams at most, and shows each frame before it to see.
func (s *session) comeBack(from *stream, streams int, see func(frame)) (all []frame) {
	s.t.Helper()
	last := ""
	for range streams {
		for {
			f, ok := from.next()
			if !ok {
				break
			}
			all = append(all, f)
			if f.id != "" {
				last = f.id
			}
			if f.response() {
				return all
			}
			see(f)
		}
		require.NotEmpty(s.t, last, "the stream ended and left nothing to come back to: %v", all)
		from = s.resume(last)
		require.Equal(s.t, 200, from.status)
	}
	require.Fail(s.t, "no response")
	return nil
}

func responses(frames []frame) (all []frame) {
	for _, f := range frames {
		if f.response() {
			all = append(all, f)
		}
	}
	return all
}

// A gate is a tool that sends progress and waits to be let on, as a stream's tests need it. Servers are built anew for
// every request; the gate is shared by all of them.
type gate struct {
	open    chan struct{}
	started chan struct{}
	mu      sync.Mutex
	runs    int
}

func newGate() *gate { return &gate{open: make(chan struct{}), started: make(chan struct{}, 100)} }

func (g *gate) ran() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.runs
}

func (g *gate) server() *mcp.Server {
	s := testServer()
	s.AddTool(&mcp.Tool{Name: "gate", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			g.mu.Lock()
			g.runs++
			g.mu.Unlock()
			progress := func(n float64) error {
				if req.Params.GetProgressToken() == nil {
					return nil
				}
				return req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: req.Params.GetProgressToken(), Progress: n})
			}
			if err := progress(1); err != nil {
				return nil, err
			}
			g.started <- struct{}{}
			select {
			case <-g.open:
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
			if err := progress(2); err != nil {
				return nil, err
			}
			return textResult("through"), nil
		})
	return s
}

const gateBody = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"gate","_meta":{"progressToken":"p"}}}`

func TestSSE24ResponseSurvivesADeadConnection(t *testing.T) {
	for _, version := range legacyVersions {
		g := newGate()
		e := open(t, setup{server: g.server}, true)
		s := e.session(version)
		first := s.open(http.MethodPost, gateBody)
		f, _ := first.next()
		require.NotEmpty(t, f.id, version)
		first.drop()
		close(g.open)
		frames := s.follow(s.resume(f.id))
		last := frames[len(frames)-1]
		assert.Equal(t, "7", last.id0())
		assert.Contains(t, last.data, "through")
		assert.Len(t, responses(frames), 1)
		assert.Equal(t, 1, g.ran())
	}
}

func TestSSE26ReplayIsForTheSameSessionOnly(t *testing.T) {
	g := newGate()
	e := open(t, setup{server: g.server}, true)
	a, b := e.session(version20251125), e.session(version20251125)
	close(g.open)
	frames := a.open(http.MethodPost, gateBody).rest()
	require.GreaterOrEqual(t, len(frames), 3)
	for _, f := range frames {
		r := b.send(http.MethodGet, "", "Accept", typeStream, headerLastEvent, f.id)
		assert.Equal(t, 400, r.status)
		assert.NotContains(t, r.body, "through")
	}
	for _, forged := range []string{"x", "", strings.Repeat("A", 4000), frames[0].id[:len(frames[0].id)-2] + "AA", frames[0].id + "A"} {
		if forged == "" {
			continue
		}
		r := a.send(http.MethodGet, "", "Accept", typeStream, headerLastEvent, forged)
		assert.Equal(t, 400, r.status, forged)
		assert.Equal(t, -32600, r.code())
	}
	r := e.send(http.MethodGet, "", "Accept", typeStream, headerLastEvent, frames[0].id, headerSession, newSessionID())
	assert.Equal(t, 404, r.status)
}

func TestSSE27ReplayIsOfTheSameStreamOnly(t *testing.T) {
	g := newGate()
	e := open(t, setup{server: g.server}, true)
	s := e.session(version20251125)
	p := s.open(http.MethodPost, strings.ReplaceAll(gateBody, `"p"`, `"P"`))
	q := s.open(http.MethodPost, strings.ReplaceAll(strings.ReplaceAll(gateBody, `"p"`, `"Q"`), `"id":7`, `"id":8`))
	f, _ := p.next()
	p.drop()
	close(g.open)
	replayed := s.follow(s.resume(f.id))
	for _, f := range replayed {
		assert.NotContains(t, f.data, `"Q"`)
		assert.NotEqual(t, "8", f.id0())
	}
	for _, f := range s.follow(q) {
		assert.NotContains(t, f.data, `"P"`)
		assert.NotEqual(t, "7", f.id0())
	}
}

func TestSSE29EveryEventOncePerCursor(t *testing.T) {
	e := open(t, setup{}, true)
	s := e.session(version20251125)
	for range 3 {
		frames := s.open(http.MethodPost, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"progress","_meta":{"progressToken":1}}}`).rest()
		require.Len(t, frames, 5, "an id, three notifications, the response")
		for i, at := range frames {
			rest := s.resume(at.id).rest()
			require.Len(t, rest, len(frames)-i-1, "after event %d", i)
			for k, f := range rest {
				assert.Equal(t, frames[i+1+k].data, f.data)
				assert.Equal(t, frames[i+1+k].id, f.id)
			}
		}
	}
}

func TestSSE31AGetNeverDisturbsACall(t *testing.T) {
	g := newGate()
	e := open(t, setup{server: g.server}, true)
	s := e.session(version20251125)
	call := s.open(http.MethodPost, gateBody)
	<-g.started
	one, two := s.open(http.MethodGet, ""), s.open(http.MethodGet, "")
	assert.Equal(t, 200, one.status)
	assert.Equal(t, 200, two.status)
	close(g.open)
	assert.Contains(t, s.follow(call)[3].data, "through")
}

func TestSSE32AStreamBeginsWithAnID(t *testing.T) {
	for version, primed := range map[string]bool{version20251125: true, version20250618: false, version20250326: false} {
		e := open(t, setup{}, true)
		frames := e.session(version).open(http.MethodPost, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"progress","_meta":{"progressToken":1}}}`).rest()
		first := frames[0]
		assert.NotEmpty(t, first.id, version)
		assert.True(t, first.hasData)
		assert.Equal(t, primed, first.data == "", version)
		for _, f := range frames[1:] {
			assert.NotEmpty(t, f.data, "older clients take an empty event for a message that is no JSON")
		}
	}
}

func TestSSE34AFinishedStreamEndsAtOnce(t *testing.T) {
	e := open(t, setup{}, true)
	s := e.session(version20251125)
	for _, body := range []string{`{"jsonrpc":"2.0","id":5,"method":"no/such"}`, callBody("5", "echo", `{}`)} {
		frames := s.open(http.MethodPost, body, "Accept", typeStream).rest()
		require.Len(t, responses(frames), 1)
		last := frames[len(frames)-1]
		again := s.resume(last.id)
		assert.Equal(t, 200, again.status)
		assert.Empty(t, again.rest())
	}
}

func TestSSE36ASilentStreamIsSeenAtOnce(t *testing.T) {
	e := open(t, setup{}, true)
	s := e.session(version20251125)
	get := s.open(http.MethodGet, "")
	select {
	case f := <-get.frames:
		assert.Equal(t, ":", f.comment)
	case <-time.After(patience):
		assert.Fail(t, "nothing came")
	}
}

// A silent call becomes a stream, so that the client holds an id before anything can be lost.
func TestASilentCallBecomesAStream(t *testing.T) {
	g := newGate()
	e := open(t, setup{server: g.server, opts: Options{StreamAfter: 10 * time.Millisecond, AliveAfter: 10 * time.Millisecond}}, true)
	body := callBody("7", "gate", `{}`)
	s := e.session(version20251125)
	call := s.open(http.MethodPost, body)
	f, _ := call.next()
	assert.NotEmpty(t, f.id)
	assert.Empty(t, f.data)
	modern := e.open(http.MethodPost, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"gate","_meta":{`+metaFields+`{}}}}`,
		headerVersion, version20260728, headerMethod, "tools/call", headerName, "gate")
	assert.Equal(t, typeStream, modern.header.Get("Content-Type"))
	close(g.open)
	last, ok := call.next()
	assert.True(t, ok)
	assert.Contains(t, last.data, "through")
	frames := modern.rest()
	require.Len(t, frames, 1, "no ids, nothing stored")
	assert.Empty(t, frames[0].id)
	assert.Contains(t, frames[0].data, "through")
}

// A connection is cut at every byte after the first id; each time the client ends with exactly one response.
func TestInvariant4NothingIsLostOnceTheClientHoldsAnID(t *testing.T) {
	e := open(t, setup{}, true)
	s := e.session(version20251125)
	const body = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"progress","_meta":{"progressToken":1}}}`
	whole := s.post(body).body
	first := strings.Index(whole, "\n\n") + 2
	require.Greater(t, first, 2)
	for cut := first; cut <= len(whole); cut += 7 {
		received := s.post(body).body                 // not always of one length: notifications may share an event
		received = received[:min(cut, len(received))] // what the client has got when its connection breaks
		last, got := "", 0
		for _, block := range strings.SplitAfter(received, "\n\n") {
			if !strings.HasSuffix(block, "\n\n") {
				continue // an event that is not complete is none
			}
			for line := range strings.Lines(block) {
				if id, ok := strings.CutPrefix(line, "id: "); ok {
					last = strings.TrimSpace(id)
				}
			}
			if strings.Contains(block, `"result"`) {
				got++
			}
		}
		got += len(responses(s.resume(last).rest()))
		require.Equal(t, 1, got, "cut after %d bytes", cut)
	}
}

// The outbox cannot be written: an attached client is answered all the same, and the log says so.
func TestAStoreThatRefusesTheOutbox(t *testing.T) {
	e := open(t, setup{}, true)
	s := e.session(version20251125)
	e.store.failOnly("event", store.Wrap("test", store.ErrUnavailable, nil))
	frames := s.open(http.MethodPost, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"progress","_meta":{"progressToken":1}}}`).rest()
	require.Len(t, responses(frames), 1)
	assert.Contains(t, frames[len(frames)-1].data, "done")
	for _, f := range frames[1:] {
		assert.Empty(t, f.id, "nothing can be fetched with it")
	}
	assert.Equal(t, "ERROR", e.log.level("cannot be resumed"))
	e.store.failOnly("exchange", store.Wrap("test", store.ErrUnavailable, nil))
	frames = s.open(http.MethodPost, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"progress","_meta":{"progressToken":1}}}`).rest()
	require.Len(t, responses(frames), 1)
	assert.Empty(t, frames[0].id)
}

// The process that runs a call dies: whoever resumes is told so, and the call is not run again.
func TestAKilledProcessIsFoundOut(t *testing.T) {
	g := newGate()
	e := open(t, setup{server: g.server}, true)
	s := e.session(version20251125)
	call := s.open(http.MethodPost, gateBody)
	f, _ := call.next()
	<-g.started
	key := e.store.lastExchange()
	x, err := e.store.Store.Exchange(t.Context(), key)
	require.NoError(t, err)
	x.Lease = time.Now().Add(-time.Second) // as if its process had not said for long that it lives
	require.NoError(t, e.store.Store.UpdateExchange(t.Context(), x))
	frames := s.follow(s.resume(f.id))
	last := frames[len(frames)-1]
	assert.Contains(t, last.data, "may have run")
	assert.Contains(t, last.data, `"isError":true`)
	close(g.open) // it lived after all: its client gets what everybody else got
	rest := call.rest()
	assert.Contains(t, rest[len(rest)-1].data, "may have run")
	assert.Equal(t, 1, g.ran())
}

// A store that is away when a client comes back for a live stream: some clients would give up the session on an error.
func TestInvariant2AnOutageDuringResumption(t *testing.T) {
	g := newGate()
	e := open(t, setup{server: g.server, opts: Options{Keys: [][]byte{make([]byte, keySize)}}}, true)
	s := e.session(version20251125)
	call := s.open(http.MethodPost, gateBody)
	f, _ := call.next()
	<-g.started
	e.store.failOnly("read", store.Wrap("test", store.ErrUnavailable, nil))
	waiting := s.resume(f.id)
	assert.Equal(t, 200, waiting.status)
	frames := waiting.rest()
	require.Len(t, frames, 1)
	assert.NotEqual(t, f.id, frames[0].id, "a new id, or the client thinks that nothing has happened")
	assert.NotEmpty(t, frames[0].data)
	assert.NotEmpty(t, frames[0].retry)
	assert.Equal(t, 503, s.send(http.MethodGet, "", "Accept", typeStream, headerLastEvent, "forged").status)
	e.store.fail(nil)
	close(g.open)
	frames = s.follow(s.resume(frames[0].id))
	assert.Contains(t, frames[len(frames)-1].data, "through")
}

// A tool ends its stream, and the client polls (2025-11-25).
func TestAToolEndsItsStream(t *testing.T) {
	release := make(chan struct{})
	server := func() *mcp.Server {
		s := testServer()
		s.AddTool(&mcp.Tool{Name: "poll", InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				req.Extra.CloseSSEStream(mcp.CloseSSEStreamArgs{RetryAfter: 200 * time.Millisecond})
				<-release
				return textResult("polled"), nil
			})
		return s
	}
	e := open(t, setup{server: server}, true)
	s := e.session(version20251125)
	frames := s.open(http.MethodPost, callBody("7", "poll", `{}`)).rest()
	require.Len(t, frames, 2)
	assert.Equal(t, "200", frames[1].retry)
	assert.Empty(t, responses(frames))
	close(release)
	frames = s.follow(s.resume(frames[1].id))
	assert.Contains(t, frames[len(frames)-1].data, "polled")

	// Where nothing would run after the response, it does not end before.
	e = open(t, setup{server: server, runtime: Runtime{HoldResponses: true}, opts: Options{StreamAfter: -1}}, true)
	assert.Equal(t, "polled", e.session(version20251125).call("poll", `{}`).text())
}

func TestCancellationReachesTheCallOnAnyInstance(t *testing.T) {
	for _, version := range []string{version20251125, version20250326} {
		g := newGate()
		e := open(t, setup{server: g.server}, true)
		s := e.session(version)
		call := s.open(http.MethodPost, strings.ReplaceAll(gateBody, `"id":7`, `"id":"a"`))
		other := s.open(http.MethodPost, gateBody)
		<-g.started
		<-g.started
		r := s.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"\u0061"}}`)
		assert.Equal(t, 202, r.status)
		frames := call.rest()
		for _, f := range append(responses(frames), responses(s.resume(frames[0].id).rest())...) {
			assert.Contains(t, f.data, "-32800", "an error, so that nobody polls for ever; no result is delivered, nor later")
			assert.NotContains(t, f.data, `"result"`)
		}
		assert.Len(t, responses(frames), 1)
		close(g.open)
		assert.Len(t, responses(other.rest()), 1, "the other call goes on")
		assert.Equal(t, 200, s.post(callBody(`"a"`, "echo", `{}`)).status, "the id is free again")
	}
}

func TestAClientThatEndsItsSessionHasCancelledItsCalls(t *testing.T) {
	g := newGate()
	e := open(t, setup{server: g.server}, true)
	s := e.session(version20251125)
	call := s.open(http.MethodPost, gateBody)
	<-g.started
	require.Equal(t, 204, s.send(http.MethodDelete, "").status)
	ends := responses(call.rest())
	require.Len(t, ends, 1)
	assert.Contains(t, ends[0].data, "-32800")
}

func TestCancellationCostsNothingWhileCallsAreShort(t *testing.T) {
	e := open(t, setup{}, true)
	s := e.session(version20251125)
	e.store.spent()
	for range 20 {
		s.call("echo", `{}`)
	}
	assert.Equal(t, map[string]int{"read": 20}, e.store.spent())
}

func TestTheRingOfCancellationsIsBounded(t *testing.T) {
	e := open(t, setup{}, true)
	s := e.session(version20251125)
	for i := range store.MaxCancelled + 10 {
		require.Equal(t, 202, s.post(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, i)).status)
	}
	stored := e.stored(s)
	assert.Len(t, stored.Cancelled, store.MaxCancelled)
	assert.EqualValues(t, store.MaxCancelled+10, stored.Cancels)
	assert.Equal(t, fmt.Sprint(store.MaxCancelled+9), stored.Cancelled[store.MaxCancelled-1])
}

func TestStreamsEndPolitelyBeforeTheDeadline(t *testing.T) {
	g := newGate()
	e := open(t, setup{server: g.server}, true)
	s := e.session(version20251125)
	get := s.open(http.MethodGet, "", headerDeadline, "50ms").rest()
	require.Len(t, get, 1)
	assert.NotEmpty(t, get[0].retry)
	call := s.open(http.MethodPost, gateBody)
	f, _ := call.next()
	frames := s.open(http.MethodGet, "", headerLastEvent, f.id, headerDeadline, "50ms").rest()
	last := frames[len(frames)-1]
	assert.NotEmpty(t, last.id)
	assert.NotEmpty(t, last.retry)
	assert.NotEmpty(t, last.data)
	close(g.open)
	assert.Len(t, responses(s.follow(s.resume(last.id))), 1)
}

func TestStreamsEndPolitelyWhenTheProcessDrains(t *testing.T) {
	g := newGate()
	draining := make(chan struct{})
	e := open(t, setup{server: g.server, runtime: Runtime{Draining: draining}}, true)
	s := e.session(version20251125)
	get := s.open(http.MethodGet, "")
	call := s.open(http.MethodPost, gateBody)
	f, _ := call.next()
	<-g.started
	resumed := s.resume(f.id)
	listen := e.open(http.MethodPost, listenBody(`{"toolsListChanged":true}`), listenHeaders...)
	ack, _ := listen.next()
	assert.Equal(t, "notifications/subscriptions/acknowledged", ack.method())
	close(draining)
	frames := get.rest()
	assert.NotEmpty(t, frames[len(frames)-1].retry)
	frames = resumed.rest()
	assert.NotEmpty(t, frames[len(frames)-1].retry)
	frames = listen.rest()
	assert.True(t, frames[len(frames)-1].response(), "listen ends with a result")
	close(g.open)
	assert.Len(t, responses(call.rest()), 1, "a call goes on")
}

func TestALargeResponseIsReplayed(t *testing.T) {
	e := open(t, setup{}, true)
	s := e.session(version20251125)
	frames := s.open(http.MethodPost, callBody("7", "large", `{"bytes":2000000}`), "Accept", typeStream).rest()
	require.Len(t, responses(frames), 1)
	again := s.resume(frames[0].id).rest()
	require.Len(t, responses(again), 1)
	assert.Equal(t, frames[len(frames)-1].data, again[len(again)-1].data)
}
