package handler

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func denyAll(context.Context, string, *http.Request) (*auth.TokenInfo, error) {
	return nil, auth.ErrInvalidToken
}

func nobody(*http.Request) (*auth.TokenInfo, error) { return nil, nil }

// byName takes a token for the name of a user, and what follows a slash for scopes.
func byName(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
	user, scopes, _ := strings.Cut(token, "/")
	switch user {
	case "bad":
		return nil, auth.ErrInvalidToken
	case "explode":
		panic("secret-detail")
	}
	return &auth.TokenInfo{UserID: user, Scopes: strings.Split(scopes, ","), Expiration: time.Now().Add(time.Hour)}, nil
}

const app = "https://app.example"

func TestORIGIN64NoOriginIsAllowedThatNobodyHasListed(t *testing.T) {
	for name, allowed := range map[string][]string{"no list": nil, "a list": {app}} {
		modes(t, setup{opts: Options{AllowedOrigins: allowed, Verifier: denyAll}}, func(t *testing.T, e *endpoint) {
			for _, origin := range []string{"null", "http://", "http://[", "https://evil.example", "evil"} {
				r := e.post(initBody(version20251125, `{}`), "Origin", origin)
				assert.Equal(t, 403, r.status, "%s: %s is refused before anybody asks who it is", name, origin)
				r = e.post(`not even JSON`, "Origin", origin)
				assert.Equal(t, 403, r.status, "%s: %s", name, origin)
			}
			assert.Equal(t, 401, e.post(initBody(version20251125, `{}`)).status, "no Origin, no browser: only the token is missing")
		})
	}
}

func TestORIGIN66PagesCanReadTheAnswer(t *testing.T) {
	modes(t, setup{opts: Options{AllowedOrigins: []string{app}, Verifier: byName, AllowAnonymous: true}}, func(t *testing.T, e *endpoint) {
		for name, r := range map[string]reply{
			"initialize": e.post(initBody(version20251125, `{}`), "Origin", app),
			"an error":   e.post(listTools, "Origin", app, headerSession, "gone"),
			"refused":    e.post(listTools, "Origin", app, "Authorization", "Bearer bad"),
		} {
			assert.Equal(t, app, r.header.Get("Access-Control-Allow-Origin"), name)
			exposed := strings.ToLower(r.header.Get("Access-Control-Expose-Headers"))
			assert.Contains(t, exposed, "mcp-session-id", name)
			assert.Contains(t, exposed, "www-authenticate", name)
			assert.Contains(t, r.header.Get("Vary"), "Origin", name)
		}
	})
}

func TestAPreflightIsAnsweredBeforeAuth(t *testing.T) {
	modes(t, setup{opts: Options{AllowedOrigins: []string{app}, Verifier: denyAll}}, func(t *testing.T, e *endpoint) {
		const wanted = "authorization,content-type,last-event-id,mcp-method,mcp-param-region,mcp-protocol-version,mcp-session-id"
		r := e.send("OPTIONS", "", "Origin", app, "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", wanted)
		assert.Equal(t, 204, r.status)
		assert.Equal(t, app, r.header.Get("Access-Control-Allow-Origin"))
		assert.Equal(t, wanted, strings.ToLower(r.header.Get("Access-Control-Allow-Headers")))
		assert.Contains(t, r.header.Get("Access-Control-Allow-Methods"), "POST")
		assert.NotEmpty(t, r.header.Get("Access-Control-Max-Age"))
		r = e.send("OPTIONS", "", "Origin", "https://evil.example", "Access-Control-Request-Method", "POST")
		assert.Equal(t, 403, r.status)
		assert.Empty(t, r.header.Get("Access-Control-Allow-Origin"))
	})
}

func TestORIGIN61HostsOnLoopback(t *testing.T) {
	host := func(e *endpoint, name string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, e.url, strings.NewReader(pingBody))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/json")
		req.Host = name
		return e.do(req).status
	}
	modes(t, setup{opts: Options{AllowedHosts: []string{"mcp.example.com"}}}, func(t *testing.T, e *endpoint) {
		for _, good := range []string{"mcp.example.com", "MCP.example.com:80", "localhost:1", "127.0.0.1", "[::1]:8080"} {
			assert.Equal(t, 200, host(e, good), good)
		}
		for _, bad := range []string{"evil.example", "mcp.example.com.evil.example", "10.0.0.1", "localhost.evil.example"} {
			assert.Equal(t, 403, host(e, bad), bad)
		}
	})
	assert.Equal(t, 200, host(open(t, setup{}, true), "svc-abc-uc.a.run.app"), "not checked unless configured")
}

func TestABadTokenIsNeverServed(t *testing.T) {
	modes(t, setup{opts: Options{Verifier: byName, AllowAnonymous: true}}, func(t *testing.T, e *endpoint) {
		assert.Equal(t, 200, e.post(pingBody).status)
		assert.Equal(t, 200, e.post(pingBody, "Authorization", "Bearer alice").status)
		r := e.post(pingBody, "Authorization", "Bearer bad")
		assert.Equal(t, 401, r.status)
		assert.Contains(t, r.header.Get("WWW-Authenticate"), `error="invalid_token"`)
		assert.Equal(t, 401, e.post(pingBody, "Authorization", "Basic Zm9vOmJhcg==").status)
		r = e.post(pingBody, "Authorization", "Bearer explode")
		assert.Equal(t, 503, r.status, "a verifier that fails lets nobody in")
		assert.NotContains(t, e.log.String()+r.body, "secret-detail")
		s := e.initialize(version20251125, `{}`, "Authorization", "Bearer alice")
		assert.Equal(t, 404, s.post(listTools).status, "anonymous is somebody else")
	})
}

func TestIdentifyByWhatThePlatformHasVerified(t *testing.T) {
	identify := func(r *http.Request) (*auth.TokenInfo, error) {
		switch user := r.Header.Get("X-Platform-User"); user {
		case "":
			return nil, nil
		case "bad":
			return nil, fmt.Errorf("%w: secret-detail", auth.ErrInvalidToken)
		case "down":
			return nil, errors.New("secret-detail")
		default:
			return &auth.TokenInfo{UserID: user}, nil
		}
	}
	opts := Options{Identify: identify, ResourceMetadata: func(r *http.Request) string { return "https://" + r.Host + "/meta" }}
	modes(t, setup{opts: opts}, func(t *testing.T, e *endpoint) {
		s := e.initialize(version20251125, `{}`, "X-Platform-User", "alice")
		assert.Equal(t, 200, s.post(listTools, "X-Platform-User", "alice").status)
		assert.Equal(t, 404, s.post(listTools, "X-Platform-User", "bob").status)
		assert.Equal(t, 404, s.post(listTools).status)
		r := s.post(listTools, "X-Platform-User", "bad")
		assert.Equal(t, 401, r.status)
		assert.Contains(t, r.header.Get("WWW-Authenticate"), `/meta"`)
		r = s.post(listTools, "X-Platform-User", "down")
		assert.Equal(t, 503, r.status)
		assert.NotEmpty(t, r.header.Get("Retry-After"))
		assert.NotContains(t, e.log.String(), "secret-detail")
	})
}

func TestAUTH99And102ScopesOfTools(t *testing.T) {
	scopes := func(tool string) []string {
		if tool == "progress" {
			return []string{"write", "admin"}
		}
		return nil
	}
	const progress = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"progress","_meta":{"progressToken":1}}}`
	modes(t, setup{opts: Options{Verifier: byName, ToolScopes: scopes, ResourceMetadataURL: "https://h/m"}}, func(t *testing.T, e *endpoint) {
		const strong, weak = "Bearer alice/write,admin", "Bearer alice/write"
		s := e.initialize(version20251125, `{}`, "Authorization", strong)
		assert.Equal(t, 200, s.post(callBody("7", "echo", `{}`), "Authorization", weak).status)
		r := s.post(progress, "Authorization", weak)
		assert.Equal(t, 403, r.status)
		assert.Equal(t, "7", r.id())
		for _, part := range []string{`error="insufficient_scope"`, `scope="write admin"`, `resource_metadata="https://h/m"`} {
			assert.Contains(t, r.header.Get("WWW-Authenticate"), part)
		}
		r = s.post(progress, "Authorization", strong)
		require.Len(t, r.events, 4)
		first := strings.TrimPrefix(strings.SplitN(r.body, "\n", 2)[0], "id: ")
		get := func(token string) reply {
			return s.send(http.MethodGet, "", "Accept", typeStream, headerLastEvent, first, "Authorization", token)
		}
		assert.Equal(t, 403, get(weak).status, "a weaker token of the same user reads nothing that a stronger one made")
		assert.Len(t, get(strong).events, 4)
		assert.Equal(t, 401, s.send(http.MethodGet, "", "Accept", typeStream).status)
		assert.Equal(t, 401, s.send(http.MethodDelete, "").status)
	})
}

func TestLimitsRefuseOneCallAndTheSessionLives(t *testing.T) {
	g := newGate()
	e := open(t, setup{server: g.server, opts: Options{MaxCalls: 2, MaxStreams: 1}}, false)
	s := e.session(version20251125)
	calls := []*stream{s.open(http.MethodPost, gateBody), s.open(http.MethodPost, gateBody)}
	<-g.started
	<-g.started
	r := s.post(gateBody)
	assert.Equal(t, 429, r.status)
	assert.Equal(t, "7", r.id())
	assert.NotEmpty(t, r.header.Get("Retry-After"))
	other := e.session(version20251125)
	assert.Equal(t, 200, other.call("echo", `{}`).status)
	get := s.open(http.MethodGet, "")
	<-get.frames
	assert.Equal(t, 429, other.send(http.MethodGet, "", "Accept", typeStream).status)
	assert.Equal(t, 429, e.post(listenBody(`{"toolsListChanged":true}`), listenHeaders...).status)
	get.drop()
	close(g.open)
	for _, c := range calls {
		assert.Len(t, responses(c.rest()), 1)
	}
	assert.Eventually(t, func() bool { return other.open(http.MethodGet, "").status == 200 }, patience, time.Millisecond)
	assert.Equal(t, 200, s.call("echo", `{}`).status)
}

func TestStreamsOfASessionAreBounded(t *testing.T) {
	g := newGate()
	e := open(t, setup{server: g.server, opts: Options{MaxSessionStreams: 2, StreamAfter: time.Millisecond}}, false)
	s := e.session(version20251125)
	call := s.open(http.MethodPost, gateBody)
	first, _ := call.next()
	for range 2 {
		<-s.open(http.MethodGet, "").frames
	}
	assert.Equal(t, 429, s.send(http.MethodGet, "", "Accept", typeStream).status)
	other := e.session(version20251125)
	assert.Equal(t, 200, other.open(http.MethodGet, "").status)
	again := s.resume(first.id).rest() // this one would give up its call: it is to come back
	require.Len(t, again, 1)
	assert.NotEmpty(t, again[0].retry)
	assert.NotEmpty(t, again[0].id)
	close(g.open)
	assert.Len(t, responses(call.rest()), 1)
}

func TestWhatIsStoredOfACallIsBounded(t *testing.T) {
	e := open(t, setup{opts: Options{MaxStored: 1}}, true)
	s := e.session(version20251125)
	r := s.post(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"progress","_meta":{"progressToken":1}}}`)
	require.Len(t, r.events, 4, "all of it goes out")
	first := strings.TrimPrefix(strings.SplitN(r.body, "\n", 2)[0], "id: ")
	again := s.resume(first).rest()
	assert.Len(t, responses(again), 1, "the response is kept whatever came before")
}
