package handler

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/store"
)

// What a review of the request path has found. Each test is the short form of how it went wrong.

// ambiguous is a store whose writes happen and report failure, so many of them.
type ambiguous struct {
	store.Store
	updates, events, reads, puts atomic.Int32
	asked                        atomic.Int32
}

var errAmbiguous = store.Wrap("test", store.ErrUnavailable, nil)

func (a *ambiguous) UpdateExchange(ctx context.Context, x *store.Exchange) error {
	revision := x.Revision
	err := a.Store.UpdateExchange(ctx, x)
	if err == nil && a.updates.Add(-1) >= 0 {
		x.Revision = revision // the caller does not learn the new one
		return errAmbiguous
	}
	return err
}

func (a *ambiguous) AppendEvent(ctx context.Context, exchange string, e store.Event, expires time.Time) error {
	err := a.Store.AppendEvent(ctx, exchange, e, expires)
	if err == nil && a.events.Add(-1) >= 0 {
		return errAmbiguous
	}
	return err
}

func (a *ambiguous) PutAnswer(ctx context.Context, exchange, question string, answer []byte, expires time.Time) error {
	err := a.Store.PutAnswer(ctx, exchange, question, answer, expires)
	if err == nil && a.puts.Add(-1) >= 0 {
		return errAmbiguous
	}
	return err
}

func (a *ambiguous) Answer(ctx context.Context, exchange, question string) ([]byte, error) {
	a.asked.Add(1)
	if strings.HasPrefix(question, "round.") && a.reads.Add(-1) >= 0 {
		return nil, errAmbiguous
	}
	return a.Store.Answer(ctx, exchange, question)
}

func (a *ambiguous) Watch(ctx context.Context, w store.Watched, changed func()) error {
	return a.Store.(store.Watcher).Watch(ctx, w, changed)
}

func (e *endpoint) makeAmbiguous() *ambiguous {
	a := &ambiguous{Store: e.store.Store}
	e.store.Store = a
	return a
}

func TestAHeartbeatThatHappenedThoughItFailedIsOurs(t *testing.T) {
	e := open(t, setup{}, true)
	a := e.makeAmbiguous()
	s := e.session(version20251125)
	x := &exchange{request: &request{h: New(testServer(), a, nil), name: defaultName}, key: e.stored(s).Key, session: e.stored(s),
		msg: message{id: json.RawMessage("1"), method: "tools/call"}}
	box, err := x.openOutbox(t.Context())
	require.NoError(t, err)
	a.updates.Store(1)
	require.Error(t, box.beat(t.Context()))
	require.NoError(t, box.beat(t.Context()), "the record is still ours")
	box.record.Owner = "somebody else"
	a.updates.Store(1)
	require.Error(t, box.beat(t.Context()))
}

func TestEventsThatHappenedThoughTheyFailedAreSkipped(t *testing.T) {
	e := open(t, setup{}, true)
	a := e.makeAmbiguous()
	s := e.session(version20251125)
	for lost := range int32(3) {
		a.events.Store(lost)
		frames := s.open(http.MethodPost, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"progress","_meta":{"progressToken":1}}}`).rest()
		last := frames[len(frames)-1]
		require.True(t, last.response())
		if lost == 0 {
			assert.NotEmpty(t, last.id)
		}
		assert.Len(t, responses(s.resume(frames[0].id).rest()), 1, "the response can be fetched whatever was lost before")
	}
}

func TestAClaimThatHappenedThoughItFailedIsOurs(t *testing.T) {
	for name, prepare := range map[string]func(*ambiguous){
		"the claim":              func(a *ambiguous) { a.updates.Store(1) },
		"the reading of a round": func(a *ambiguous) { a.reads.Store(1) },
	} {
		v := &interview{}
		e := open(t, setup{server: v.server, runtime: Runtime{Buffered: true}}, true)
		s := e.initialize(version20251125, allCapabilities)
		first := s.open(http.MethodPost, callBody("7", "three", `{"n":1}`)).rest()
		s.person(same, first)
		prepare(e.makeAmbiguous())
		frames := s.converse(s.resume(first[len(first)-1].id), same)
		assert.Contains(t, frames[len(frames)-1].data, threeAnswers, name)
		assert.Equal(t, 4, v.ran("three"), name)
	}
}

// A tool that talks all the time must not keep the call from hearing its answer.
func TestProgressDoesNotStarveAnswers(t *testing.T) {
	server := func() *mcp.Server {
		s := testServer()
		s.AddTool(&mcp.Tool{Name: "chatty", InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				ctx, stop := context.WithCancel(ctx)
				done := make(chan struct{})
				go func() {
					defer close(done)
					for tick := time.NewTicker(20 * time.Millisecond); ; {
						select {
						case <-tick.C:
							_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: req.Params.GetProgressToken(), Progress: 1})
						case <-ctx.Done():
							tick.Stop()
							return
						}
					}
				}()
				r, err := req.Session.Elicit(ctx, &mcp.ElicitParams{Message: "who?"})
				stop()
				<-done
				if err != nil {
					return nil, err
				}
				return textResult(r.Action), nil
			})
		return s
	}
	e := open(t, setup{server: server}, true)
	s := e.initialize(version20251125, allCapabilities)
	frames := s.converse(s.open(http.MethodPost, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"chatty","_meta":{"progressToken":1}}}`), same)
	assert.Contains(t, frames[len(frames)-1].data, "accept")
}

// The client is away and so is the store, for a moment, when the call ends.
func TestAFinalResponseIsStoredWhenTheStoreIsBack(t *testing.T) {
	g := newGate()
	e := open(t, setup{server: g.server}, true)
	s := e.session(version20251125)
	call := s.open(http.MethodPost, gateBody)
	f, _ := call.next()
	<-g.started
	call.drop()
	e.store.failOnly("event", store.Wrap("test", store.ErrThrottled, nil))
	close(g.open)
	assert.Eventually(t, func() bool { return e.store.spent()["event"] > 1 }, patience, time.Millisecond, "it is tried again")
	e.store.fail(nil)
	frames := s.follow(s.resume(f.id))
	assert.Contains(t, frames[len(frames)-1].data, "through")
}

func TestListenIsNoMethodOfTheLegacyEra(t *testing.T) {
	const body = `{"jsonrpc":"2.0","id":2,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true}}}`
	e := open(t, setup{}, true)
	assert.Equal(t, -32601, e.session(version20251125).post(body).code())
	assert.Contains(t, e.session(version20250326).post(`[`+body+`]`).body, `-32601`)
	assert.Equal(t, -32601, open(t, setup{opts: Options{Legacy: LegacyStateless}, noStore: true}, true).post(body).code())
}

func TestABatchFailsBeforeAnythingRunsIfAnAnswerCannotBeStored(t *testing.T) {
	v := &interview{}
	e := open(t, setup{server: v.server}, true)
	s := e.initialize(version20250326, allCapabilities)
	c := s.open(http.MethodPost, callBody("1", "elicit", `{}`))
	q := c.question()
	e.store.failOnly("answer", store.Wrap("test", store.ErrUnavailable, nil))
	batch := `[` + callBody("2", "three", `{}`) + `,` + s.answerTo(q, same) + `]`
	assert.Equal(t, 503, s.post(batch).status)
	assert.Zero(t, v.ran("three"))
	e.store.fail(nil)
	assert.Equal(t, 202, s.post(`[`+s.answerTo(q, same)+`]`).status)
	assert.NotEmpty(t, responses(c.rest()))
}

func TestInitializeIsNeverAStream(t *testing.T) {
	slow := func() *mcp.Server {
		s := testServer()
		s.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
			return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
				if method == "initialize" {
					time.Sleep(50 * time.Millisecond) // longer than AliveAfter
				}
				return next(ctx, method, req)
			}
		})
		return s
	}
	e := open(t, setup{server: slow, opts: Options{AliveAfter: time.Millisecond, StreamAfter: time.Millisecond}}, true)
	assert.NotEmpty(t, e.initialize(version20251125, `{}`).id)
}

func TestLateNotificationsLeaveRoomForTheResponse(t *testing.T) {
	e := open(t, setup{runtime: Runtime{Buffered: true, MaxResponse: 500}, opts: Options{LateNotifications: true}}, true)
	r := e.session(version20251125).post(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"progress","_meta":{"progressToken":0}}}`)
	assert.LessOrEqual(t, len(r.body), 500)
	assert.Equal(t, "done", r.text())
}

func TestIntegersOfAStateKeepTheirDigits(t *testing.T) {
	same := func(a, b string) bool {
		return string(canonical(json.RawMessage(a))) == string(canonical(json.RawMessage(b)))
	}
	assert.False(t, same(`{"n":1234567890123456789}`, `{"n":1234567890123456700}`))
	assert.True(t, same(`{"n":1.0,"m":1e2}`, `{"m":100,"n":1}`))
	assert.True(t, same(`{"n":0.10}`, `{"n":1e-1}`))
	assert.True(t, same(`{}`, `null`))
	assert.False(t, same(`{"n":"1"}`, `{"n":1}`))
	assert.True(t, same(`{"n":1e400}`, `{"n":1e400}`))
}

func TestAStateIsNeverSentOpen(t *testing.T) {
	server := func() *mcp.Server {
		s := testServer()
		s.AddTool(&mcp.Tool{Name: "leaky", InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return &mcp.CallToolResult{RequestState: "secret", Content: []mcp.Content{}}, nil
			})
		return s
	}
	e := open(t, setup{server: server}, true)
	assert.NotContains(t, e.modernCall("leaky", `{}`).body, "secret")
	assert.NotContains(t, e.session(version20251125).call("leaky", `{}`).body, "secret")
	state := stringOf(e.modern("tools/call", `"name":"rounds","arguments":{}`, `{"elicitation":{}}`).result(), "requestState")
	r := e.modern("tools/call", `"name":"rounds","arguments":{},"requestState":`+string(encode(state))+`,"inputResponses":{"who":5}`, `{"elicitation":{}}`)
	assert.NotContains(t, r.body, "s1")
}

func TestStrictHeaders(t *testing.T) {
	e := open(t, setup{}, true)
	call := func(arguments string, headers ...string) int {
		return e.modern("tools/call", `"name":"region","arguments":`+arguments, `{}`, headers...).code()
	}
	assert.Equal(t, mcp.CodeHeaderMismatch, call(`{"n":42}`, "Mcp-Param-N", "0x2Ap0"))
	assert.Equal(t, mcp.CodeHeaderMismatch, call(`{"n":42}`, "Mcp-Param-N", "4.2e1"))
	assert.Zero(t, call(`{"n":42}`, "Mcp-Param-N", "42.0"))
	assert.Equal(t, mcp.CodeHeaderMismatch, call(`{"region":"é"}`, "Mcp-Param-Region", "é"), "it would have to be encoded")
	s := e.session(version20251125)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, e.url, strings.NewReader(listTools))
	require.NoError(t, err)
	req.Header["Content-Type"], req.Header[headerSession] = []string{"application/json"}, []string{s.id, newSessionID()}
	assert.Equal(t, 400, e.do(req).status, "two sessions")
	r := e.modernMeta("tools/list", "", metaFields+`{},"x":1e999`)
	assert.Equal(t, 400, r.status)
	assert.Equal(t, -32602, r.code())
}

func TestObjectsOfTheProtocolHaveFewKeys(t *testing.T) {
	e := open(t, setup{}, true)
	var many strings.Builder
	for i := range maxKeys + 1 {
		fmt.Fprintf(&many, `"k%d":0,`, i)
	}
	r := e.post(`{"jsonrpc":"2.0","id":1,"method":"ping","params":{` + strings.TrimSuffix(many.String(), ",") + `}}`)
	assert.Equal(t, -32600, r.code())
	s := e.session(version20251125)
	arguments := `{` + strings.TrimSuffix(many.String(), ",") + `}`
	assert.Equal(t, arguments, s.call("echo", arguments).text(), "arguments may have any number")
}

// What is not there any more ends with a word, not in silence.
func TestAnExchangeThatIsGone(t *testing.T) {
	e := open(t, setup{}, true)
	s := e.session(version20251125)
	keys, err := New(testServer(), e.store, nil).keys(t.Context())
	require.NoError(t, err)
	id := eventID{Exchange: newKey(), Session: short(e.stored(s).Key), Principal: short(""), ID: json.RawMessage(`"x"`),
		Until: time.Now().Add(time.Hour).Unix(), Call: true}
	frames := s.resume(keys.sign(purposeEvent, id)).rest()
	require.Len(t, frames, 1)
	assert.Equal(t, `"x"`, frames[0].id0())
	assert.Contains(t, frames[0].data, `"isError":true`)
	assert.Empty(t, s.resume(frames[0].id).rest())
}
