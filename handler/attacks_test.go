package handler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/engine"
	"github.com/hydrant-mcp/hydrant/store"
	"github.com/hydrant-mcp/hydrant/store/memory"
)

// What a review of the request path as an attacker has found. Each test is one attack, and what comes of it.

// withTool is the test server with one more tool.
func withTool(name string, h mcp.ToolHandler) func() *mcp.Server {
	return func() *mcp.Server {
		s := testServer()
		s.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}, h)
		return s
	}
}

func asks(key, message string) *mcp.CallToolResult {
	return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{key: &mcp.ElicitParams{Message: message}}}
}

const elicits = `{"elicitation":{}}`

// retry sends a modern call again, with the state that the first one got.
func (e *endpoint) retry(first reply, tool, arguments, responses string, headers ...string) reply {
	e.t.Helper()
	state := stringOf(first.result(), "requestState")
	require.NotEmpty(e.t, state, first.body)
	return e.modern("tools/call", `"name":"`+tool+`","arguments":`+arguments+`,"requestState":`+string(encode(state))+
		`,"inputResponses":`+responses, elicits, headers...)
}

// encoding/json merges the values of a key that comes twice into a struct, and keeps the last one in a map.
func TestAStateIsForTheArgumentsWhateverADecoderMakesOfThem(t *testing.T) {
	modes(t, setup{server: withTool("pay", func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		var in struct {
			Pay struct {
				Amount int
				To     string
			}
		}
		if err := json.Unmarshal(req.Params.Arguments, &in); err != nil {
			return nil, err
		}
		if len(req.Params.InputResponses) == 0 {
			return asks("ok", fmt.Sprintf("pay %d to %s?", in.Pay.Amount, in.Pay.To)), nil
		}
		return textResult(fmt.Sprintf("paid %d to %s", in.Pay.Amount, in.Pay.To)), nil
	})}, func(t *testing.T, e *endpoint) {
		const once, twice = `{"pay":{"to":"bob"}}`, `{"pay":{"amount":1000000},"pay":{"to":"bob"}}`
		const yes = `{"ok":{"action":"accept","content":{}}}`
		first := e.modern("tools/call", `"name":"pay","arguments":`+once, elicits)
		r := e.retry(first, "pay", twice, yes)
		assert.Equal(t, 400, r.status, r.body)
		assert.Equal(t, "paid 0 to bob", e.retry(first, "pay", `{ "pay" : {"to":"b\u006fb"} }`, yes).text())
	})
	for v, want := range map[string]int{
		`{"a":1,"a":2}`: 2, `{"n":1e999,"a":{"b:":1,"\":":2}}`: 4, `[{"a":1},{"a":":"}]`: 2, `null`: 0, `{"a\\":{},"b":[":"]}`: 2,
	} {
		assert.Equal(t, want, colons(json.RawMessage(v)), v)
	}
}

func TestAnAnswerToWhatWasNotAskedIsRefused(t *testing.T) {
	modes(t, setup{server: withTool("two", func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if r, ok := req.Params.InputResponses["confirm"].(*mcp.ElicitResult); ok {
			return textResult("confirmed: " + r.Action), nil
		}
		if _, ok := req.Params.InputResponses["name"]; ok {
			return asks("confirm", "really?"), nil
		}
		return asks("name", "who?"), nil
	})}, func(t *testing.T, e *endpoint) {
		first := e.modern("tools/call", `"name":"two","arguments":{}`, elicits)
		r := e.retry(first, "two", `{}`, `{"confirm":{"action":"accept"}}`)
		assert.Equal(t, 400, r.status, r.body)
		second := e.retry(first, "two", `{}`, `{"name":{"action":"accept"}}`)
		assert.Equal(t, "confirmed: accept", e.retry(second, "two", `{}`, `{"confirm":{"action":"accept"}}`).text())
	})
}

// A client that is refused for something else, or that the store has failed, must be able to come back.
func TestAStateForOneUseIsUsedByWhatRuns(t *testing.T) {
	const answers = `{"who":{"action":"accept"}}`
	strong := func(string) []string { return []string{"strong"} }
	modes(t, setup{opts: Options{SingleUseState: true, Verifier: byName, ToolScopes: strong}}, func(t *testing.T, e *endpoint) {
		weakly, strongly := []string{"Authorization", "Bearer alice/weak"}, []string{"Authorization", "Bearer alice/strong"}
		first := e.modern("tools/call", `"name":"rounds","arguments":{}`, elicits, strongly...)
		require.Equal(t, 403, e.retry(first, "rounds", `{}`, answers, weakly...).status)
		a := e.makeAmbiguous()
		a.puts.Store(1)
		assert.Equal(t, 200, e.retry(first, "rounds", `{}`, answers, strongly...).status, "the write happened, though it failed")
		r := e.retry(first, "rounds", `{}`, answers, strongly...)
		assert.Equal(t, 400, r.status)
		assert.Contains(t, r.errorMessage(), "has been used")
	})
	e := open(t, setup{opts: Options{SingleUseState: true}}, true)
	first := e.modern("tools/call", `"name":"rounds","arguments":{}`, elicits)
	var ran atomic.Int32
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if e.retry(first, "rounds", `{}`, answers).status == 200 {
				ran.Add(1)
			}
		})
	}
	wg.Wait()
	assert.EqualValues(t, 1, ran.Load())
}

func TestABatchEndsWithItsSession(t *testing.T) {
	for name, end := range map[string]func(*session) int{
		"DELETE": func(s *session) int { return s.send(http.MethodDelete, "").status },
		"a cancellation": func(s *session) int {
			return s.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`).status
		},
	} {
		var ran atomic.Int32
		g := newGate()
		e := open(t, setup{server: func() *mcp.Server {
			s := g.server()
			s.AddTool(&mcp.Tool{Name: "effect", InputSchema: json.RawMessage(`{"type":"object"}`)},
				func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					ran.Add(1)
					return textResult("e"), nil
				})
			return s
		}}, true)
		s := e.session(version20250326)
		done := make(chan []frame)
		go func() { done <- s.open(http.MethodPost, `[`+gateBody+`,`+callBody("8", "effect", `{}`)+`]`).rest() }()
		<-g.started
		require.Less(t, end(s), 300, name)
		frames := <-done // while the gate stays shut
		text := ""
		for _, f := range frames {
			text += f.data
		}
		assert.Contains(t, text, "-32800", name)
		if name == "DELETE" {
			assert.Zero(t, ran.Load(), "nothing of a session that has ended begins")
			assert.Contains(t, text, "Session not found")
		}
	}
}

func TestABatchOfCancellationsIsOneWrite(t *testing.T) {
	e := open(t, setup{}, false)
	s := e.session(version20250326)
	e.store.spent()
	var all []string
	for i := range 30 {
		all = append(all, fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, i))
	}
	require.Equal(t, 202, s.post(`[`+strings.Join(all, ",")+`]`).status)
	assert.Equal(t, map[string]int{"read": 1, "update": 1}, e.store.spent())
	assert.EqualValues(t, 30, e.stored(s).Cancels)
	assert.Contains(t, e.stored(s).Cancelled, "29")
}

func TestASuspendedCallIsCancelled(t *testing.T) {
	for name, su := range map[string]setup{"buffered": {runtime: Runtime{Buffered: true}}, "streaming": {opts: Options{Ask: AskSuspend}}} {
		for _, answered := range []bool{true, false} {
			v := &interview{}
			su.server = v.server
			e := open(t, su, true)
			s := e.initialize(version20251125, allCapabilities)
			first := s.open(http.MethodPost, callBody("7", "several", `{}`)).rest()
			ran := v.ran("several")
			if answered {
				s.person(same, first)
			}
			require.Equal(t, 202, s.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`).status)
			frames := s.follow(s.resume(first[len(first)-1].id))
			assert.Contains(t, frames[len(frames)-1].data, "-32800", name)
			assert.Equal(t, ran, v.ran("several"), "%s: what is cancelled does not go on", name)
		}
	}
}

func TestDELETECancelsWhatIsOlderThanTheSessionsFirstExpiry(t *testing.T) {
	const ttl = 3 * time.Second // twice the time between two looks
	g := newGate()
	e := open(t, setup{server: g.server, opts: Options{SessionTTL: ttl}}, true)
	s := e.session(version20251125)
	call := s.open(http.MethodPost, gateBody)
	<-g.started
	for began := time.Now(); time.Since(began) < ttl+500*time.Millisecond; time.Sleep(200 * time.Millisecond) { // what slides needs time
		require.Equal(t, 200, s.post(listTools).status)
	}
	require.Equal(t, 204, s.send(http.MethodDelete, "").status)
	frames := call.rest()
	assert.Contains(t, frames[len(frames)-1].data, "-32800")
}

func TestAReadersIDLivesAsLongAsItsExchange(t *testing.T) {
	v := &interview{}
	e := open(t, setup{server: v.server, runtime: Runtime{Buffered: true}}, true)
	s := e.initialize(version20251125, allCapabilities)
	first := s.open(http.MethodPost, callBody("7", "three", `{}`)).rest()
	x, err := e.store.Store.Exchange(t.Context(), e.store.lastExchange())
	require.NoError(t, err)
	x.Expires = x.Expires.Add(30 * time.Minute) // as a later round does
	require.NoError(t, e.store.Store.UpdateExchange(t.Context(), x))
	frames := s.resume(first[0].id).rest()
	keys, err := New(testServer(), e.store, nil).keys(t.Context())
	require.NoError(t, err)
	var id eventID
	require.True(t, keys.open(purposeEvent, frames[len(frames)-1].id, &id))
	assert.EqualValues(t, x.Expires.Unix(), id.Until)
}

// Middleware of the server's, and its SubscribeHandler, may refuse a resource. There is no way round them in another era.
func TestListeningAsksTheServerAsSubscribingDoes(t *testing.T) {
	var mu sync.Mutex
	var log []string
	note := func(what, uri string) {
		mu.Lock()
		defer mu.Unlock()
		log = append(log, what+" "+uri)
	}
	e := open(t, setup{server: func() *mcp.Server {
		s := mcp.NewServer(&mcp.Implementation{Name: "t", Version: "1"}, &mcp.ServerOptions{
			SubscribeHandler: func(_ context.Context, r *mcp.SubscribeRequest) error {
				note("subscribe", r.Params.URI)
				if strings.HasPrefix(r.Params.URI, "secret:") {
					return errors.New("not yours")
				}
				return nil
			},
			UnsubscribeHandler: func(_ context.Context, r *mcp.UnsubscribeRequest) error {
				note("unsubscribe", r.Params.URI)
				return nil
			},
		})
		s.AddResource(&mcp.Resource{URI: "test://one", Name: "one"}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			return nil, errors.New("unused")
		})
		return s
	}}, false)
	seen := func() []string {
		mu.Lock()
		defer mu.Unlock()
		return append([]string(nil), log...)
	}
	r := e.post(listenBody(`{"resourceSubscriptions":["test://one","secret://bob"]}`), listenHeaders...)
	assert.Equal(t, "not yours", r.errorMessage())
	assert.Equal(t, []string{"subscribe test://one", "subscribe secret://bob", "unsubscribe test://one"}, seen())
	listen := e.open(http.MethodPost, listenBody(`{"resourceSubscriptions":["test://one"]}`), listenHeaders...)
	_, ok := listen.next()
	require.True(t, ok)
	listen.drop()
	assert.Eventually(t, func() bool { all := seen(); return len(all) == 5 && all[4] == "unsubscribe test://one" }, patience, time.Millisecond)
}

func TestHydrantsOwnQuestionsAreMarked(t *testing.T) {
	e := open(t, setup{server: func() *mcp.Server {
		s := testServer()
		s.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
			return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
				if extra := req.GetExtra(); !engine.Internal(ctx) && (extra == nil || extra.TokenInfo == nil) {
					return nil, errors.New("who are you?")
				}
				return next(ctx, method, req)
			}
		})
		return s
	}, opts: Options{Verifier: byName}}, true)
	s := e.initialize(version20251125, `{}`, "Authorization", "Bearer alice")
	get := s.open(http.MethodGet, "", "Authorization", "Bearer alice")
	assert.Equal(t, 200, get.status)
	assert.True(t, strings.HasPrefix(get.header.Get("Content-Type"), typeStream))
	listen := e.open(http.MethodPost, listenBody(`{"toolsListChanged":true}`), append([]string{"Authorization", "Bearer alice"}, listenHeaders...)...)
	assert.True(t, strings.HasPrefix(listen.header.Get("Content-Type"), typeStream))
}

// What initialize has ignored must not come alive when the session is restored, nor make it a record that cannot be read.
func TestInitializeIsReadOnceAndForAll(t *testing.T) {
	modes(t, setup{}, func(t *testing.T, e *endpoint) {
		for _, caps := range []string{`{"Roots":5}`, `{"roots":{},"ROOTS":"x"}`, `{"Experimental":1}`, `{"elicitation":{"Form":7}}`} {
			r := e.post(initBody(version20251125, caps))
			require.Equal(t, 200, r.status, caps)
			assert.Equal(t, 200, (&session{e, r.header.Get(headerSession)}).post(listTools).status, caps)
		}
		s := e.initialize(version20251125, `{"Sampling":{},"SAMPLING":{"tools":{}},"roots":{"LISTCHANGED":true}}`)
		text := s.call("session", `{}`).text()
		assert.NotContains(t, text, `"sampling":{`)
		assert.NotContains(t, text, `"listChanged":true`)
	})
}

func TestWhatAClientCanMakeLong(t *testing.T) {
	e := open(t, setup{opts: Options{MaxID: 20, MaxHeader: 1000, MaxSubscriptions: 2}}, true)
	s := e.session(version20251125)
	long := strings.Repeat("x", 2000)
	assert.Equal(t, 431, e.post(pingBody, "X-Any", long).status)
	assert.Equal(t, 431, s.post(pingBody, "Mcp-Name", long).status)
	for _, body := range []string{
		`{"jsonrpc":"2.0","id":"xxxxxxxxxxxxxxxxxxxx","method":"ping"}`,
		`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{"progressToken":"xxxxxxxxxxxxxxxxxxxx"}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"` + long + `"}`,
	} {
		r := s.post(body)
		assert.Equal(t, 400, r.status)
		assert.Contains(t, r.errorMessage(), "longer than")
	}
	assert.Equal(t, -32602, s.call(long, `{}`).code())
	assert.Equal(t, -32602, s.post(`{"jsonrpc":"2.0","id":5,"method":"logging/setLevel","params":{"level":"`+long+`"}}`).code())
	assert.Empty(t, e.stored(s).LogLevel)
	for _, uri := range []string{"a", "b", "b"} {
		assert.Zero(t, s.post(`{"jsonrpc":"2.0","id":5,"method":"resources/subscribe","params":{"uri":"`+uri+`"}}`).code(), "once more is no more")
	}
	assert.Equal(t, -32602, s.post(`{"jsonrpc":"2.0","id":5,"method":"resources/subscribe","params":{"uri":"c"}}`).code())
	for _, wanted := range []string{`["a","b","c"]`, `["` + strings.Repeat("x", maxURI+1) + `"]`} {
		r := e.post(listenBody(`{"resourceSubscriptions":`+wanted+`}`), listenHeaders...)
		assert.Equal(t, -32602, r.code(), "and not 429: it would never be better")
	}
	assert.Equal(t, 200, s.call("echo", `{}`).status)
}

func TestSubscriptionsAreBoundedHoweverManyComeAtOnce(t *testing.T) {
	const limit = 3
	var all sync.WaitGroup
	all.Add(10)
	e := open(t, setup{server: func() *mcp.Server {
		return mcp.NewServer(&mcp.Implementation{Name: "t", Version: "1"}, &mcp.ServerOptions{
			SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { all.Done(); all.Wait(); return nil },
			UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
		})
	}, opts: Options{MaxSubscriptions: limit}}, false)
	s := e.session(version20251125)
	var done sync.WaitGroup
	for i := range 10 {
		done.Go(func() {
			s.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"test://%d"}}`, i))
		})
	}
	done.Wait()
	assert.Len(t, e.stored(s).Subscriptions, limit)
}

func TestWhatASessionStoresIsBounded(t *testing.T) {
	const progress = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"progress","_meta":{"progressToken":1}}}`
	for name, opts := range map[string]Options{"events": {MaxSessionEvents: 2}, "bytes": {MaxSessionStored: 100}} {
		e := open(t, setup{opts: opts}, false)
		s := e.session(version20251125)
		r := s.post(progress)
		require.Len(t, r.events, 4, "%s: all of it goes out", name)
		first := strings.TrimPrefix(strings.SplitN(r.body, "\n", 2)[0], "id: ")
		assert.Len(t, responses(s.resume(first).rest()), 1, "%s: the response is kept whatever came before", name)
		r = s.post(progress)
		assert.Equal(t, 429, r.status, name)
		assert.NotEmpty(t, r.header.Get("Retry-After"))
		assert.Equal(t, 202, s.post(initialized).status, "%s: the session lives", name)
		assert.Equal(t, 200, e.session(version20251125).post(progress).status)
	}
}

func TestABodyHasToArrive(t *testing.T) {
	e := open(t, setup{}, false)
	for name, token := range map[string]string{"let in": "", "refused": "Authorization: Bearer x\r\nAuthorization: Bearer y\r\n"} {
		c, err := net.Dial("tcp", strings.TrimPrefix(e.url, "http://"))
		require.NoError(t, err)
		defer c.Close()
		_, err = fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\n%s%s: 300ms\r\nContent-Type: application/json\r\nAccept: */*\r\nContent-Length: 100\r\n\r\n{",
			token, headerDeadline)
		require.NoError(t, err)
		require.NoError(t, c.SetReadDeadline(time.Now().Add(patience)))
		answer := make([]byte, 4096)
		n, err := c.Read(answer)
		require.NoError(t, err, name)
		status := map[string]string{"let in": "408", "refused": "400"}[name]
		assert.Contains(t, string(answer[:n]), "HTTP/1.1 "+status, name)
	}
	assert.Equal(t, 200, e.modernCall("echo", `{}`, headerDeadline, "5s").status)
}

func TestCredentialsThatAreNoIdentity(t *testing.T) {
	expired := func(*http.Request) (*auth.TokenInfo, error) {
		return &auth.TokenInfo{UserID: "alice", Expiration: time.Now().Add(-time.Second)}, nil
	}
	e := open(t, setup{opts: Options{Identify: expired}}, true)
	r := e.post(pingBody)
	assert.Equal(t, 401, r.status)
	assert.Contains(t, r.header.Get("WWW-Authenticate"), `error="invalid_token"`)

	scopes := func(string) []string { return []string{"admin"} }
	e = open(t, setup{opts: Options{Verifier: byName, AllowAnonymous: true, ToolScopes: scopes, AllowedOrigins: []string{app}}}, true)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, e.url, strings.NewReader(pingBody))
	require.NoError(t, err)
	req.Header = http.Header{
		"Authorization": {"Bearer alice", "Bearer bad"}, "Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
	}
	assert.Equal(t, 400, e.do(req).status, "two readers could take one each")
	r = e.modernCall("echo", `{}`)
	assert.Equal(t, 401, r.status, "there is no token that could lack anything")
	assert.Contains(t, r.header.Get("WWW-Authenticate"), `scope="admin"`)
	assert.Contains(t, e.post(pingBody, "Origin", "https://evil.example").header.Values("Vary"), "Origin")

	protocol := func(context.Context, string, *http.Request) (*auth.TokenInfo, error) { return nil, auth.ErrOAuth }
	e = open(t, setup{opts: Options{Verifier: protocol}}, true)
	r = e.post(pingBody, "Authorization", "Bearer x")
	assert.Equal(t, 400, r.status, "trying again would not help")
	assert.Contains(t, r.header.Get("WWW-Authenticate"), `error="invalid_request"`)

	e = open(t, setup{}, true)
	s := e.session(version20251125)
	req, err = http.NewRequestWithContext(t.Context(), http.MethodDelete, e.url, nil)
	require.NoError(t, err)
	req.Header = http.Header{headerSession: {s.id}, headerVersion: {version20251125, version20260728}}
	assert.Equal(t, 400, e.do(req).status)
}

// What the store does for a session of somebody else's is what it does for one that does not exist: no clock tells which.
func TestSomebodyElsesSessionCostsWhatAMissingOneDoes(t *testing.T) {
	modes(t, setup{opts: Options{Verifier: byName}}, func(t *testing.T, e *endpoint) {
		s := e.initialize(version20251125, `{"elicitation":{}}`, "Authorization", "Bearer alice")
		event := s.open(http.MethodPost, callBody("7", "progress", `{}`), "Accept", typeStream, "Authorization", "Bearer alice").rest()[0].id
		require.NotEmpty(t, event)
		for name, ask := range map[string]func(id string) reply{
			"request":      func(id string) reply { return e.post(listTools, headerSession, id, "Authorization", "Bearer bob") },
			"notification": func(id string) reply { return e.post(initialized, headerSession, id, "Authorization", "Bearer bob") },
			"answer": func(id string) reply {
				return e.post(`{"jsonrpc":"2.0","id":"x","result":{}}`, headerSession, id, "Authorization", "Bearer bob")
			},
			"batch": func(id string) reply {
				return e.post(`[`+listTools+`]`, headerSession, id, "Authorization", "Bearer bob")
			},
			"DELETE": func(id string) reply {
				return e.send(http.MethodDelete, "", headerSession, id, "Authorization", "Bearer bob")
			},
			"GET": func(id string) reply {
				return e.send(http.MethodGet, "", "Accept", typeStream, headerSession, id, "Authorization", "Bearer bob")
			},
			"replay": func(id string) reply {
				return e.send(http.MethodGet, "", "Accept", typeStream, headerLastEvent, event, headerSession, id, "Authorization", "Bearer bob")
			},
		} {
			e.store.spent()
			missing := ask(newSessionID())
			without := e.store.spent()
			foreign := ask(s.id)
			assert.Equal(t, without, e.store.spent(), name)
			assert.Equal(t, map[string]int{"read": 1}, without, name)
			assert.Equal(t, 404, foreign.status, name)
			assert.Equal(t, missing.body, foreign.body, name)
			missing.header.Del("Date")
			foreign.header.Del("Date")
			assert.Equal(t, missing.header, foreign.header, name)
		}
	})
}

// The key of the instances: made by whoever comes first, the same for all, read once by each.
func TestTheSharedKeyIsOne(t *testing.T) {
	const instances = 20
	st := &brokenStore{Store: memory.New()}
	a := &ambiguous{Store: st}
	a.puts.Store(3) // writes that happen though they fail
	var all [instances]*Handler
	for i := range all {
		all[i] = New(testServer(), a, nil)
	}
	ask := func(h *Handler) keyring {
		for {
			if keys, err := h.keys(t.Context()); err == nil {
				return keys
			} else {
				require.ErrorIs(t, err, store.ErrUnavailable)
			}
		}
	}
	var got [instances]keyring
	var wg sync.WaitGroup
	for i, h := range all {
		wg.Go(func() { got[i] = ask(h) })
	}
	wg.Wait()
	for _, keys := range got {
		assert.Equal(t, got[0], keys)
	}
	before := a.asked.Load()
	for _, h := range all {
		ask(h)
	}
	assert.Equal(t, before, a.asked.Load(), "it is known")
}

// slowToFail is a store whose answers fail after a while.
type slowToFail struct {
	store.Store
	asked atomic.Int32
}

func (s *slowToFail) Answer(context.Context, string, string) ([]byte, error) {
	s.asked.Add(1)
	time.Sleep(time.Second)
	return nil, store.Wrap("test", store.ErrUnavailable, nil)
}

func TestAFailureToReadTheKeyIsThatOfAllWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &slowToFail{Store: memory.New()}
		h := New(testServer(), st, nil)
		began := time.Now()
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				_, err := h.keys(t.Context())
				assert.ErrorIs(t, err, store.ErrUnavailable)
			})
		}
		wg.Wait()
		assert.Less(t, time.Since(began), 3*time.Second)
		before := st.asked.Load()
		_, _ = h.keys(t.Context())
		assert.Equal(t, before+1, st.asked.Load(), "whoever comes later asks anew")
	})
}

// A database may keep for days what has expired.
func TestAStreamRecordThatHasExpiredIsNotInTheWay(t *testing.T) {
	e := open(t, setup{}, true)
	s := e.session(version20251125)
	key := e.stored(s).Key
	require.NoError(t, e.store.Store.CreateExchange(t.Context(), &store.Exchange{
		Key: streamKey(key), Session: key, Owner: "old", Expires: time.Now().Add(-time.Minute),
	}))
	for range 2 {
		get := s.open(http.MethodGet, "")
		require.Equal(t, 200, get.status)
		<-get.frames
	}
}
