package handler

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/store"
)

const allCapabilities = `{"elicitation":{},"sampling":{},"roots":{}}`

// An interview is a server that asks, in both of the SDK's styles, and counts how often its handlers run.
type interview struct {
	mu   sync.Mutex
	runs map[string]int
	hold chan struct{} // if not nil, the second round of "three" waits for it
}

func (v *interview) ran(what string) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.runs[what]
}

func (v *interview) count(what string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.runs == nil {
		v.runs = map[string]int{}
	}
	v.runs[what]++
}

func (v *interview) server() *mcp.Server {
	s := testServer()
	tool := func(name string, h mcp.ToolHandler) {
		s.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}, h)
	}
	// Asks through the session, and waits.
	tool("elicit", func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		r, err := req.Session.Elicit(ctx, &mcp.ElicitParams{Message: "who?"})
		if err != nil {
			return nil, err
		}
		return textResult(fmt.Sprint(r.Action, " ", r.Content["name"])), nil
	})
	tool("roots", func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		r, err := req.Session.ListRoots(ctx, nil) //nolint:staticcheck // deprecated, and still in use
		if err != nil {
			return nil, err
		}
		return textResult(r.Roots[0].URI), nil
	})
	// Asks three times in a row by returning what it wants to know.
	tool("three", func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		v.count("three")
		state := req.Params.RequestState
		for key, r := range req.Params.InputResponses {
			e, ok := r.(*mcp.ElicitResult)
			if !ok {
				return nil, fmt.Errorf("%s: %T", key, r)
			}
			state += fmt.Sprint(key, "=", e.Content["name"], ";")
		}
		round := strings.Count(state, ";")
		if round == 1 && v.hold != nil {
			select {
			case <-v.hold:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		if round == 3 {
			return textResult(state + " for " + string(req.Params.Arguments)), nil
		}
		return &mcp.CallToolResult{
			RequestState:  state,
			InputRequests: mcp.InputRequestMap{fmt.Sprint("q", round+1): &mcp.ElicitParams{Message: fmt.Sprint("question ", round+1)}},
		}, nil
	})
	tool("several", func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if len(req.Params.InputResponses) == 2 {
			a, b := req.Params.InputResponses["a"].(*mcp.ElicitResult), req.Params.InputResponses["b"].(*mcp.ElicitResult)
			return textResult(fmt.Sprint(a.Content["name"], b.Content["name"])), nil
		}
		return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{
			"a": &mcp.ElicitParams{Message: "a?"}, "b": &mcp.ElicitParams{Message: "b?"},
		}}, nil
	})
	return s
}

// A person answers what is asked on streams, as name says, each time on whatever instance comes next.
func (s *session) person(name func(message string) string, frames []frame) {
	s.t.Helper()
	for _, f := range frames {
		if f.method() == "" || !strings.Contains(f.data, `"id"`) {
			continue
		}
		r := s.post(s.answerTo(f, name))
		require.Equal(s.t, 202, r.status, r.body)
	}
}

func (s *session) answerTo(f frame, name func(string) string) string {
	var q struct {
		ID     json.RawMessage
		Method string
		Params struct{ Message string }
	}
	require.NoError(s.t, json.Unmarshal([]byte(f.data), &q))
	result := fmt.Sprintf(`{"action":"accept","content":{"name":%q}}`, name(q.Params.Message))
	if q.Method == "roots/list" {
		result = `{"roots":[{"uri":"file:///home"}]}`
	}
	return `{"jsonrpc":"2.0","id":` + string(q.ID) + `,"result":` + result + `}`
}

// converse follows a call to its response, answering what is asked.
func (s *session) converse(from *stream, name func(string) string) []frame {
	s.t.Helper()
	return s.comeBack(from, 100, func(f frame) { s.person(name, []frame{f}) })
}

// question gives the next question of a stream.
func (s *stream) question() (q frame) {
	for q.method() == "" {
		q, _ = s.next()
	}
	return q
}

func same(message string) string { return "<" + message + ">" }

func TestAskingThroughTheSession(t *testing.T) {
	for _, version := range legacyVersions {
		v := &interview{}
		e := open(t, setup{server: v.server}, true)
		s := e.initialize(version, allCapabilities)
		frames := s.converse(s.open(http.MethodPost, callBody("7", "elicit", `{}`)), same)
		assert.Contains(t, frames[len(frames)-1].data, "accept \\u003cwho?\\u003e", version)
		frames = s.converse(s.open(http.MethodPost, callBody("8", "roots", `{}`)), same)
		assert.Contains(t, frames[len(frames)-1].data, "file:///home")
	}
}

func TestMULTI14AQuestionThatCannotBePutFailsAtOnce(t *testing.T) {
	v := &interview{}
	e := open(t, setup{server: v.server}, true)
	for name, s := range map[string]*session{"none": e.initialize(version20251125, `{}`), "others": e.initialize(version20251125, `{"sampling":{}}`)} {
		r := s.call("elicit", `{}`)
		assert.Contains(t, r.errorMessage()+r.text(), "not support", name)
		r = s.call("roots", `{}`)
		assert.Contains(t, r.errorMessage()+r.text(), `has not declared the capability: {"roots":{}}`, name)
		r = s.call("three", `{}`)
		assert.NotEmpty(t, r.errorMessage()+r.text(), name)
	}
	s := e.initialize(version20251125, allCapabilities)
	r := s.call("elicit", `{}`, "Accept", "application/json")
	assert.Contains(t, r.errorMessage()+r.text(), "does not accept an event stream")
	e.store.failOnly("event", store.Wrap("test", store.ErrUnavailable, nil))
	r = s.call("elicit", `{}`)
	assert.Contains(t, r.errorMessage()+r.text(), "the store refused the question")

	e = open(t, setup{server: v.server, runtime: Runtime{Buffered: true}, opts: Options{Ask: AskHold}}, true)
	r = e.initialize(version20251125, allCapabilities).call("elicit", `{}`)
	assert.Contains(t, r.errorMessage()+r.text(), "Return InputRequests from the handler", "says what to change")
}

func TestMULTI16AnswersInAnyOrderFromAnyInstance(t *testing.T) {
	v := &interview{}
	e := open(t, setup{server: v.server}, true)
	s := e.initialize(version20251125, allCapabilities)
	calls := []*stream{s.open(http.MethodPost, callBody("1", "elicit", `{}`)), s.open(http.MethodPost, callBody("1", "elicit", `{}`))}
	var questions []frame
	for _, c := range calls {
		for {
			f, ok := c.next()
			require.True(t, ok)
			if f.method() == "elicitation/create" {
				questions = append(questions, f)
				break
			}
		}
	}
	assert.NotEqual(t, questions[0].id0(), questions[1].id0())
	name := func(n int) func(string) string { return func(string) string { return fmt.Sprint("n", n) } }
	stranger := e.initialize(version20251125, allCapabilities)
	assert.Equal(t, 202, stranger.post(s.answerTo(questions[1], name(666))).status, "taken, and for nobody")
	for _, unknown := range []string{`"never-asked"`, `1`, `"` + strings.Repeat("A", 100) + `"`} {
		assert.Equal(t, 202, s.post(`{"jsonrpc":"2.0","id":`+unknown+`,"result":{}}`).status)
	}
	assert.Equal(t, 202, s.post(s.answerTo(questions[1], name(1))).status)
	assert.Equal(t, 202, s.post(s.answerTo(questions[1], name(99))).status, "once more, and ignored")
	assert.Equal(t, 202, s.post(s.answerTo(questions[0], name(0))).status)
	for n, c := range calls {
		frames := c.rest()
		assert.Contains(t, frames[len(frames)-1].data, fmt.Sprint("accept n", n))
	}
}

func TestAnswersThatAreErrors(t *testing.T) {
	v := &interview{}
	e := open(t, setup{server: v.server}, true)
	s := e.initialize(version20251125, allCapabilities)
	c := s.open(http.MethodPost, callBody("1", "elicit", `{}`))
	q := c.question()
	assert.Equal(t, 202, s.post(`{"jsonrpc":"2.0","id":`+q.id0()+`,"error":{"code":-1,"message":"the person has left"}}`).status)
	frames := c.rest()
	assert.Contains(t, frames[len(frames)-1].data, "the person has left")
}

// 202 is written only when the inbox has the answer.
func TestAnAnswerThatCannotBeStoredIsNotAcknowledged(t *testing.T) {
	v := &interview{}
	e := open(t, setup{server: v.server}, true)
	s := e.initialize(version20251125, allCapabilities)
	c := s.open(http.MethodPost, callBody("1", "elicit", `{}`))
	q := c.question()
	e.store.failOnly("answer", store.Wrap("test", store.ErrThrottled, nil))
	assert.Equal(t, 503, s.post(s.answerTo(q, same)).status)
	e.store.fail(nil)
	assert.Equal(t, 202, s.post(s.answerTo(q, same)).status)
	frames := c.rest()
	assert.Contains(t, frames[len(frames)-1].data, "who?")
}

const threeAnswers = `q1=\u003cquestion 1\u003e;q2=\u003cquestion 2\u003e;q3=\u003cquestion 3\u003e; for {\"n\":1}`

func TestThreeRoundsHeld(t *testing.T) {
	for _, version := range legacyVersions {
		v := &interview{}
		e := open(t, setup{server: v.server}, true)
		s := e.initialize(version, allCapabilities)
		frames := s.converse(s.open(http.MethodPost, callBody("7", "three", `{"n":1}`)), same)
		assert.Contains(t, frames[len(frames)-1].data, threeAnswers, version)
		assert.Len(t, responses(frames), 1)
	}
}

// suspended are the two ways to it: a runtime that does not stream, and an option.
var suspended = map[string]setup{
	"buffered": {runtime: Runtime{Buffered: true}},
	"held":     {runtime: Runtime{Buffered: true}, opts: Options{HoldPolls: true}},
	"by option": {opts: Options{AskFor: func(method, name string) AskMode {
		if method == "tools/call" && name != "elicit" {
			return AskSuspend
		}
		return AskAuto
	}}},
}

func TestThreeRoundsSuspended(t *testing.T) {
	for name, su := range suspended {
		t.Run(name, func(t *testing.T) {
			v := &interview{}
			su.server = v.server
			e := open(t, su, true)
			s := e.initialize(version20251125, allCapabilities)
			first := s.open(http.MethodPost, callBody("7", "three", `{"n":1}`)).rest()
			require.NotEmpty(t, first)
			q := first[len(first)-1]
			assert.Equal(t, "elicitation/create", q.method())
			assert.NotEmpty(t, q.id)
			assert.NotEmpty(t, q.retry)
			assert.Equal(t, 1, v.ran("three"), "nothing runs while the person thinks")
			s.person(same, first)
			frames := s.converse(s.resume(q.id), same)
			last := frames[len(frames)-1]
			assert.Contains(t, last.data, threeAnswers)
			assert.NotContains(t, last.data, "resultType", "what modern state adds is not for this client")
			assert.NotContains(t, last.data, "serverInfo")
			assert.Equal(t, 4, v.ran("three"))
			for i, f := range frames { // all of it can be fetched again
				if f.id != "" && f.data != "" && !strings.Contains(f.data, "waiting") {
					assert.Len(t, responses(s.resume(f.id).rest()), min(1, len(frames)-1-i), f.data)
				}
			}
			frames = s.converse(s.open(http.MethodPost, callBody("8", "several", `{}`)), same)
			assert.Contains(t, frames[len(frames)-1].data, `\u003ca?\u003e\u003cb?\u003e`)
		})
	}
}

func TestAPollBeforeTheAnswerCarriesANewID(t *testing.T) {
	for _, token := range []string{"", `,"_meta":{"progressToken":5}`} {
		v := &interview{}
		e := open(t, setup{server: v.server, runtime: Runtime{Buffered: true}}, true)
		s := e.initialize(version20251125, allCapabilities)
		first := s.open(http.MethodPost, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"three"`+token+`}}`).rest()
		at := first[0]
		for range 3 {
			frames := s.resume(at.id).rest()
			require.Len(t, frames, 1)
			assert.NotEqual(t, at.id, frames[0].id)
			assert.NotEmpty(t, frames[0].retry)
			if token == "" {
				assert.Equal(t, "notifications/message", frames[0].method())
			} else {
				assert.Equal(t, "notifications/progress", frames[0].method())
				assert.Contains(t, frames[0].data, `"progressToken":5`)
			}
			at = frames[0]
		}
		s.person(same, first)
		assert.Equal(t, "elicitation/create", s.resume(at.id).rest()[0].method())
	}
}

// Two clients' connections, or two instances, come at the same time: the handler is called once.
func TestOnlyTheClaimantCallsTheTool(t *testing.T) {
	v := &interview{hold: make(chan struct{})}
	e := open(t, setup{server: v.server, opts: Options{Ask: AskSuspend}}, true)
	s := e.initialize(version20251125, allCapabilities)
	first := s.open(http.MethodPost, callBody("7", "three", `{}`)).rest()
	q := first[len(first)-1]
	s.person(same, first)
	var streams []*stream
	for range 6 {
		streams = append(streams, s.resume(q.id))
	}
	assert.Eventually(t, func() bool { return v.ran("three") == 2 }, patience, time.Millisecond)
	close(v.hold)
	for _, st := range streams {
		f, ok := st.next()
		require.True(t, ok)
		assert.Equal(t, "elicitation/create", f.method())
		assert.Contains(t, f.data, "question 2")
		st.drop()
	}
	assert.Equal(t, 2, v.ran("three"))
}

func TestACrashInTheMiddleOfARoundEndsHonestly(t *testing.T) {
	v := &interview{hold: make(chan struct{})}
	e := open(t, setup{server: v.server, opts: Options{Ask: AskSuspend}}, true)
	s := e.initialize(version20251125, allCapabilities)
	first := s.open(http.MethodPost, callBody("7", "three", `{}`)).rest()
	q := first[len(first)-1]
	s.person(same, first)
	dying := s.resume(q.id)
	assert.Eventually(t, func() bool { return v.ran("three") == 2 }, patience, time.Millisecond)
	dying.drop()
	x, err := e.store.Store.Exchange(t.Context(), e.store.lastExchange())
	require.NoError(t, err)
	assert.Equal(t, stateRunning, x.State)
	x.Lease = time.Now().Add(-time.Second)
	require.NoError(t, e.store.Store.UpdateExchange(t.Context(), x))
	frames := s.follow(s.resume(q.id))
	assert.Contains(t, frames[len(frames)-1].data, "may have run")
	assert.Contains(t, frames[len(frames)-1].data, `"isError":true`)
	close(v.hold)
	assert.Equal(t, 2, v.ran("three"), "never again")
}

func TestAQuestionThatNobodyAnswersEnds(t *testing.T) {
	v := &interview{}
	e := open(t, setup{server: v.server, runtime: Runtime{Buffered: true}, opts: Options{AskTimeout: time.Millisecond}}, true)
	s := e.initialize(version20251125, allCapabilities)
	first := s.open(http.MethodPost, callBody("7", "three", `{}`)).rest()
	frames := s.follow(s.resume(first[len(first)-1].id))
	assert.Contains(t, frames[len(frames)-1].data, "not answered in time")
	assert.Contains(t, frames[len(frames)-1].data, `"isError":true`, "an error would make some clients go on polling")
	assert.Equal(t, 1, v.ran("three"))
}

func TestSeveralSuspendedCallsAtOnce(t *testing.T) {
	v := &interview{}
	e := open(t, setup{server: v.server, runtime: Runtime{Buffered: true}}, true)
	s := e.initialize(version20251125, allCapabilities)
	var wg sync.WaitGroup
	for i := range 5 {
		wg.Go(func() {
			frames := s.converse(s.open(http.MethodPost, callBody("1", "three", fmt.Sprintf(`{"n":%d}`, i))),
				func(q string) string { return fmt.Sprint(q, "-", i) })
			assert.Contains(t, frames[len(frames)-1].data, fmt.Sprintf(`q1=question 1-%d;q2=question 2-%d;q3=question 3-%d; for {\"n\":%d}`, i, i, i, i))
		})
	}
	wg.Wait()
}

func TestASuspensionThatCannotBeStored(t *testing.T) {
	v := &interview{}
	e := open(t, setup{server: v.server, runtime: Runtime{Buffered: true}}, true)
	s := e.initialize(version20251125, allCapabilities)
	for n, op := range []string{"answer", "exchange", "event"} {
		e.store.failOnly(op, store.Wrap("test", store.ErrUnavailable, nil))
		r := s.call("three", `{}`)
		assert.Equal(t, 200, r.status, "%s: the tool has run, and nothing may make the client repeat that unaware", op)
		assert.Equal(t, "9", r.id())
		assert.Contains(t, r.body, "could not be asked")
		assert.NotContains(t, r.body, "retryable")
		assert.Equal(t, n+1, v.ran("three"))
	}
}
