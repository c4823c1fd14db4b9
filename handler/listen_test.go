package handler

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/internal/ctxmutex"
	"github.com/hydrant-mcp/hydrant/internal/rawjson"
	"github.com/hydrant-mcp/hydrant/store"
	"github.com/hydrant-mcp/hydrant/store/memory"
)

var listenHeaders = []string{headerVersion, version20260728, headerMethod, "subscriptions/listen"}

func listenBody(wanted string) string {
	return `{"jsonrpc":"2.0","id":9007199254740993,"method":"subscriptions/listen","params":{"notifications":` + wanted +
		`,"_meta":{` + metaFields + `{}}}}`
}

// announcer is a handler on another instance: it shares the store and nothing else.
func (e *endpoint) announcer() *Handler { return New(testServer(), e.store, nil) }

func TestAnnouncementsReachEveryStreamOnce(t *testing.T) {
	e := open(t, setup{}, true)
	s := e.session(version20251125)
	const one, two = "test://one", "test://two"
	require.Zero(t, s.post(`{"jsonrpc":"2.0","id":6,"method":"resources/subscribe","params":{"uri":"`+one+`"}}`).code())
	get := s.open(http.MethodGet, "")
	require.Equal(t, 200, get.status)
	listen := e.open(http.MethodPost, listenBody(`{"toolsListChanged":true,"resourceSubscriptions":["`+one+`","`+two+`"]}`), listenHeaders...)
	ack, _ := listen.next()
	assert.JSONEq(t, `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{
		"_meta":{"io.modelcontextprotocol/subscriptionId":9007199254740993},
		"notifications":{"toolsListChanged":true,"resourceSubscriptions":["test://one","test://two"]}}}`, ack.data)
	assert.Contains(t, ack.data, "9007199254740993")
	<-get.frames // the comment: it listens

	h := e.announcer()
	require.NoError(t, h.NotifyListChanged(t.Context(), ListPrompts)) // nobody modern asked for it
	f, _ := get.next()
	assert.Equal(t, "notifications/prompts/list_changed", f.method())
	require.NoError(t, h.NotifyResourceUpdated(t.Context(), two))
	f, _ = listen.next()
	assert.Equal(t, "notifications/resources/updated", f.method())
	assert.Contains(t, f.data, two)
	assert.Contains(t, f.data, `"io.modelcontextprotocol/subscriptionId":9007199254740993`)
	require.NoError(t, h.NotifyResourceUpdated(t.Context(), one))
	for _, stream := range []*stream{get, listen} {
		f, _ := stream.next()
		assert.Equal(t, "notifications/resources/updated", f.method(), "each once, and two is not for the session")
		assert.Contains(t, f.data, one)
	}
	require.NoError(t, h.NotifyListChanged(t.Context(), ListTools))
	for _, stream := range []*stream{get, listen} {
		f, _ := stream.next()
		assert.Equal(t, "notifications/tools/list_changed", f.method())
	}
	assert.Error(t, h.NotifyListChanged(t.Context(), "nonsense"))
	assert.ErrorIs(t, NotifyListChanged(t.Context(), ListTools), ErrOutside)
	assert.ErrorIs(t, NotifyResourceUpdated(t.Context(), one), ErrOutside)
}

func TestAToolAnnouncesThroughItsContext(t *testing.T) {
	server := func() *mcp.Server {
		s := testServer()
		s.AddTool(&mcp.Tool{Name: "touch", InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return textResult("ok"), NotifyResourceUpdated(ctx, "test://one")
			})
		return s
	}
	e := open(t, setup{server: server}, true)
	listen := e.open(http.MethodPost, listenBody(`{"resourceSubscriptions":["test://one"]}`), listenHeaders...)
	_, _ = listen.next()
	assert.Equal(t, "ok", e.modernCall("touch", `{}`).text())
	f, _ := listen.next()
	assert.Equal(t, "notifications/resources/updated", f.method())
	e.store.failOnly("raise", store.Wrap("test", store.ErrUnavailable, nil))
	assert.NotZero(t, e.modernCall("touch", `{}`).code(), "what was not announced is not said to be")
}

func TestTheNewestStreamTakesOver(t *testing.T) {
	e := open(t, setup{}, true)
	s := e.session(version20251125)
	old := s.open(http.MethodGet, "")
	<-old.frames
	fresh := s.open(http.MethodGet, "")
	<-fresh.frames
	require.NoError(t, e.announcer().NotifyListChanged(t.Context(), ListTools))
	f, _ := fresh.next()
	assert.Equal(t, "notifications/tools/list_changed", f.method())
	select {
	case f, open := <-old.frames:
		assert.Fail(t, "the old one is to be silent", "%v %v", f, open)
	default:
	}
	owner := func() string {
		x, err := e.store.Store.Exchange(t.Context(), streamKey(e.stored(s).Key))
		require.NoError(t, err)
		return x.Owner
	}
	newest := owner()
	fresh.drop()
	// The old one goes on where the new one ended: it says what is new, and nothing twice.
	assert.Eventually(t, func() bool { return owner() != newest }, patience, time.Millisecond)
	require.NoError(t, e.announcer().NotifyListChanged(t.Context(), ListPrompts))
	f, _ = old.next()
	assert.Equal(t, "notifications/prompts/list_changed", f.method())
}

func TestAnUpdateBetweenTwoStreamsIsNotLost(t *testing.T) {
	e := open(t, setup{}, true)
	s := e.session(version20251125)
	first := s.open(http.MethodGet, "", headerDeadline, "100ms")
	assert.NotEmpty(t, first.rest()[0].retry)
	require.NoError(t, e.announcer().NotifyListChanged(t.Context(), ListTools))
	f, _ := s.open(http.MethodGet, "").next()
	assert.Equal(t, "notifications/tools/list_changed", f.method())
}

func TestASubscriptionReachesAnOpenStream(t *testing.T) {
	e := open(t, setup{}, true)
	s := e.session(version20251125)
	get := s.open(http.MethodGet, "")
	<-get.frames
	require.Zero(t, s.post(`{"jsonrpc":"2.0","id":6,"method":"resources/subscribe","params":{"uri":"test://one"}}`).code())
	require.NoError(t, e.announcer().NotifyResourceUpdated(t.Context(), "test://one"))
	began := time.Now()
	f, _ := get.next()
	assert.Contains(t, f.data, "test://one")
	assert.Less(t, time.Since(began), checkEvery/2)
}

func TestAStreamEndsWithItsSession(t *testing.T) {
	e := open(t, setup{}, true)
	s := e.session(version20251125)
	get := s.open(http.MethodGet, "")
	<-get.frames
	require.Equal(t, 204, s.send(http.MethodDelete, "").status)
	require.NoError(t, e.announcer().NotifyListChanged(t.Context(), ListTools))
	assert.Empty(t, get.rest())
}

func TestListenHonoursOnlyWhatTheServerAnnounces(t *testing.T) {
	server := func() *mcp.Server {
		return mcp.NewServer(&mcp.Implementation{Name: "bare", Version: "1"}, &mcp.ServerOptions{Capabilities: &mcp.ServerCapabilities{}})
	}
	e := open(t, setup{server: server}, true)
	frames := e.open(http.MethodPost, listenBody(`{"toolsListChanged":true,"resourceSubscriptions":["test://one"]}`), listenHeaders...).rest()
	require.Len(t, frames, 2, "acknowledged, ended with a result: it could never carry anything")
	assert.Contains(t, frames[0].data, `"notifications":{}`)
	assert.JSONEq(t, `{"jsonrpc":"2.0","id":9007199254740993,"result":{"resultType":"complete",
		"_meta":{"io.modelcontextprotocol/subscriptionId":9007199254740993}}}`, frames[1].data)
	r := e.modern("subscriptions/listen", "", `{}`)
	assert.Equal(t, -32602, r.code())
}

// On a runtime that does not stream no invocation is ever pinned to a silent stream.
func TestABufferedRuntimeHoldsNoStream(t *testing.T) {
	e := open(t, setup{runtime: Runtime{Buffered: true}}, true)
	s := e.session(version20251125)
	r := s.send(http.MethodGet, "", "Accept", typeStream)
	assert.Equal(t, 405, r.status)
	assert.Equal(t, "POST, DELETE", r.header.Get("Allow"))
	frames := e.open(http.MethodPost, listenBody(`{"toolsListChanged":true}`), listenHeaders...).rest()
	require.Len(t, frames, 2)
	assert.Contains(t, frames[0].data, `"notifications":{}`)
	initialized := e.post(initBody(version20251125, `{}`))
	discovered := e.modern("server/discover", "", `{}`)
	for _, r := range []reply{initialized, discovered} {
		assert.NotContains(t, r.body, "listChanged")
		assert.NotContains(t, r.body, `"subscribe"`)
		caps, _ := rawjson.Get(r.result(), "capabilities")
		_, ok := rawjson.Get(caps, "tools")
		assert.True(t, ok, r.body)
	}
	r = s.post(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"progress","_meta":{"progressToken":0}}}`)
	assert.Equal(t, "application/json", r.header.Get("Content-Type"))
	assert.Equal(t, "done", r.text())
}

func TestABufferedRuntimeCanDeliverLate(t *testing.T) {
	e := open(t, setup{runtime: Runtime{Buffered: true}, opts: Options{LateNotifications: true}}, true)
	const body = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"progress","_meta":{"progressToken":0}}}`
	r := e.session(version20251125).post(body)
	require.Len(t, r.events, 4, "three notifications, and the response")
	assert.Equal(t, "done", r.text())
	r = e.session(version20251125).post(body, "Accept", "application/json")
	assert.Equal(t, "application/json", r.header.Get("Content-Type"))
	assert.Equal(t, "done", r.text())
}

func TestManyStreamsReadTheirTopicsTogether(t *testing.T) {
	st := &countingTopics{Store: memory.New()}
	h := hub{reading: ctxmutex.New()}
	const streams = 50
	var topics [][]string
	for i := range streams {
		topics = append(topics, []string{"common", fmt.Sprint("own", i)})
		for _, name := range topics[i] {
			h.join(name)
		}
	}
	for _, own := range topics {
		_, err := h.current(t.Context(), st, own, topicEvery)
		require.NoError(t, err)
	}
	assert.Equal(t, 1, st.calls, "one batch for all of them")
	assert.Equal(t, streams+1, st.topics)

	_, err := h.current(t.Context(), st, topics[0], 0)
	require.NoError(t, err)
	assert.Equal(t, 2, st.calls)
	assert.Equal(t, streams+1+2, st.topics, "who has been told reads what it was told of")
	for _, own := range topics {
		h.leave(own)
	}
	assert.Empty(t, h.topics)
}

type countingTopics struct {
	store.Store
	calls, topics int
	before        func()
	fails         error
}

func (c *countingTopics) TopicVersions(ctx context.Context, topics []string) (map[string]int64, error) {
	c.calls++
	c.topics += len(topics)
	if c.before != nil {
		c.before()
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if c.fails != nil {
		return nil, c.fails
	}
	return c.Store.TopicVersions(ctx, topics)
}

// What rises while a stream cannot find out whether it is still its session's is announced when it can.
func TestAnAnnouncementOutlivesAnOutage(t *testing.T) {
	e := open(t, setup{}, true)
	s := e.session(version20251125)
	get := s.open(http.MethodGet, "")
	<-get.frames
	asked := func() int {
		e.store.mu.Lock()
		defer e.store.mu.Unlock()
		return e.store.calls["read"]
	}
	e.store.failOnly("read", store.Wrap("test", store.ErrUnavailable, nil)) // the session's record
	before := asked()
	require.NoError(t, e.announcer().NotifyListChanged(t.Context(), ListTools))
	require.Eventually(t, func() bool { return asked() > before }, patience, time.Millisecond)
	e.store.fail(nil)
	f, _ := get.next()
	assert.Equal(t, "notifications/tools/list_changed", f.method())
}

// A client that leaves in the middle of a reading for all spoils it for nobody.
func TestTopicsAreReadForOthersToo(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	st := &countingTopics{Store: memory.New(), before: leave}
	h := hub{reading: ctxmutex.New()}
	h.join("t")
	_, err := h.current(ctx, st, []string{"t"}, 0)
	require.NoError(t, err)

	st.before = func() {}
	st.fails = store.Wrap("test", store.ErrUnavailable, nil)
	_, err = h.current(t.Context(), st, []string{"t"}, 0)
	require.ErrorIs(t, err, store.ErrUnavailable)
	calls := st.calls
	_, err = h.current(t.Context(), st, []string{"t"}, topicEvery)
	require.ErrorIs(t, err, store.ErrUnavailable, "a moment later")
	assert.Equal(t, calls, st.calls, "it is not asked again and again")
}

// Streams that are told at the same time do not queue up, each with a reading of its own.
func TestStreamsThatAreToldReadTogether(t *testing.T) {
	const streams = 50
	begun, proceed := make(chan struct{}), make(chan struct{})
	var once sync.Once
	st := &countingTopics{Store: memory.New(), before: func() {
		once.Do(func() {
			close(begun)
			<-proceed
		})
	}}
	h := hub{reading: ctxmutex.New()}
	var wg sync.WaitGroup
	read := func(name string) {
		h.join(name)
		wg.Go(func() {
			_, err := h.current(t.Context(), st, []string{name}, 0)
			assert.NoError(t, err)
		})
	}
	read("first")
	<-begun
	for i := range streams {
		read(fmt.Sprint(i))
	}
	require.Eventually(t, func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, known := range h.topics {
			if known.wanted.IsZero() {
				return false
			}
		}
		return true
	}, patience, time.Millisecond)
	close(proceed)
	wg.Wait()
	assert.Equal(t, 2, st.calls)
	assert.Equal(t, 1+streams, st.topics)
}
