package identity_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/handler"
	"github.com/hydrant-mcp/hydrant/identity"
	"github.com/hydrant-mcp/hydrant/store"
	"github.com/hydrant-mcp/hydrant/store/memory"
)

// An endpoint is Hydrant's handler behind an issuer, on two instances that share a store.
type endpoint struct {
	t      *testing.T
	issuer *issuer
	key    key
	log    *logBuffer
	turn   int
	hosts  []string
}

// open serves an endpoint; change may alter the options of its handlers.
func open(t *testing.T, change func(*handler.Options)) *endpoint {
	t.Helper()
	e := &endpoint{t: t, key: newKey(t, "k1", "ES256"), log: &logBuffer{}}
	e.issuer = newIssuer(t, "", e.key)
	shared := memory.New()
	for range 2 {
		e.hosts = append(e.hosts, e.serve(shared, change))
	}
	return e
}

func (e *endpoint) serve(st store.Store, change func(*handler.Options)) string {
	logger := slog.New(slog.NewTextHandler(e.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	opts := e.issuer.options()
	opts.Logger = logger
	m := newResource(e.t, identity.ResourceOptions{
		AuthorizationServers: []string{e.issuer.url}, Scopes: []string{"read", "write"},
	})
	o := &handler.Options{
		Logger: logger, Keys: [][]byte{[]byte("0123456789abcdef0123456789abcdef")},
		Verifier: newVerifier(e.t, opts), ResourceMetadata: m.MetadataURL,
		ToolScopes: func(tool string) []string { return map[string][]string{"write": {"write"}}[tool] },
	}
	if change != nil {
		change(o)
	}
	srv := httptest.NewServer(m.Wrap(handler.New(newServer(), st, o)))
	e.t.Cleanup(srv.Close)
	return srv.URL
}

// newServer has a tool that anybody may call, and one that says that it is at work and then what is secret.
func newServer() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	object := json.RawMessage(`{"type":"object"}`)
	s.AddTool(&mcp.Tool{Name: "who", InputSchema: object},
		func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			who := "nobody"
			if info := req.Extra.TokenInfo; info != nil {
				who = fmt.Sprint(info.Extra["iss"], " ", info.UserID)
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: who}}}, nil
		})
	s.AddTool(&mcp.Tool{Name: "write", InputSchema: object},
		func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if token := req.Params.GetProgressToken(); token != nil {
				_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: 1})
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "the secret"}}}, nil
		})
	return s
}

// token is that of a user with scopes.
func (e *endpoint) token(user, scopes string, change ...claims) string {
	all := claims{"sub": user, "scope": scopes}
	for _, c := range change {
		for k, v := range c {
			all[k] = v
		}
	}
	return e.key.token(e.t, e.issuer.url, all)
}

type answer struct {
	status int
	header http.Header
	body   string
}

// send sends a request to the next instance. Headers with the value "" are not sent.
func (e *endpoint) send(method, path, body string, header ...string) answer {
	e.t.Helper()
	host := e.hosts[e.turn%len(e.hosts)]
	e.turn++
	req, err := http.NewRequestWithContext(e.t.Context(), method, host+path, strings.NewReader(body))
	require.NoError(e.t, err)
	req.Header.Set("Accept", "application/json, text/event-stream")
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		if header[i+1] != "" {
			req.Header.Set(header[i], header[i+1])
		}
	}
	res, err := http.DefaultClient.Do(req)
	require.NoError(e.t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.NoError(e.t, err)
	return answer{res.StatusCode, res.Header, string(text)}
}

func (e *endpoint) post(token, session, body string) answer {
	e.t.Helper()
	return e.send(http.MethodPost, "/mcp", body, "Authorization", bearer(token), "Mcp-Session-Id", session)
}

func bearer(token string) string {
	if token == "" {
		return ""
	}
	return "Bearer " + token
}

const (
	initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",` +
		`"capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`
	ping      = `{"jsonrpc":"2.0","id":2,"method":"ping"}`
	listTools = `{"jsonrpc":"2.0","id":3,"method":"tools/list"}`
)

func call(id, tool string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"` + tool + `",` +
		`"_meta":{"progressToken":1}}}`
}

func (e *endpoint) session(token string) string {
	e.t.Helper()
	r := e.post(token, "", initialize)
	require.Equal(e.t, http.StatusOK, r.status, r.body)
	return r.header.Get("Mcp-Session-Id")
}

func challenge(t *testing.T, r answer) map[string]string {
	t.Helper()
	all, err := oauthex.ParseWWWAuthenticate(r.header.Values("WWW-Authenticate"))
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Equal(t, "bearer", all[0].Scheme)
	return all[0].Params
}

func TestAUTH96MetadataIsOpenToAllAndNamesTheResource(t *testing.T) {
	e := open(t, nil)
	for range e.hosts {
		for _, path := range []string{"", "/mcp"} {
			host := e.hosts[e.turn%len(e.hosts)]
			r := e.send(http.MethodGet, "/.well-known/oauth-protected-resource"+path, "", "Origin", "https://app.example")
			require.Equal(t, http.StatusOK, r.status, r.body)
			assert.Equal(t, "application/json", r.header.Get("Content-Type"))
			assert.Equal(t, "*", r.header.Get("Access-Control-Allow-Origin"))
			var doc oauthex.ProtectedResourceMetadata
			require.NoError(t, json.Unmarshal([]byte(r.body), &doc))
			assert.Equal(t, host+"/mcp", doc.Resource)
			assert.Equal(t, []string{e.issuer.url}, doc.AuthorizationServers)
		}
		// What the challenge names is there, and the SDK's client takes it.
		r := e.post("", "", initialize)
		require.Equal(t, http.StatusUnauthorized, r.status)
		at := challenge(t, r)["resource_metadata"]
		doc, err := oauthex.GetProtectedResourceMetadata(t.Context(), at,
			strings.TrimSuffix(at, "/.well-known/oauth-protected-resource/mcp")+"/mcp", http.DefaultClient)
		require.NoError(t, err)
		assert.Equal(t, []string{"read", "write"}, doc.ScopesSupported)
	}
}

func TestAUTH97ABadTokenIsNeverServed(t *testing.T) {
	for name, optional := range map[string]bool{"auth is required": false, "auth is optional": true} {
		t.Run(name, func(t *testing.T) {
			e := open(t, func(o *handler.Options) { o.AllowAnonymous = optional })
			good := e.token("alice", "read")
			assert.Equal(t, http.StatusOK, e.post(good, "", ping).status)
			assert.Equal(t, map[bool]int{false: 401, true: 200}[optional], e.post("", "", ping).status)
			for what, bad := range map[string]string{
				"expired":          e.token("alice", "read", claims{"exp": time.Now().Add(-time.Hour).Unix()}),
				"another audience": e.token("alice", "read", claims{"aud": "https://other.example"}),
				"another issuer":   e.token("alice", "read", claims{"iss": "https://evil.example"}),
				"another key":      newKey(t, "k1", "ES256").token(t, e.issuer.url, nil),
				"an unknown key":   newKey(t, "k9", "ES256").token(t, e.issuer.url, nil),
				"no token at all":  "secret-of-mine",
			} {
				r := e.post(bad, "", ping)
				if assert.Equal(t, http.StatusUnauthorized, r.status, what) {
					params := challenge(t, r)
					assert.Equal(t, "invalid_token", params["error"], what)
					assert.Contains(t, params["resource_metadata"], "/.well-known/oauth-protected-resource/mcp", what)
				}
				assert.NotContains(t, e.log.String()+r.body, bad, "tokens are in no log and no answer")
			}
		})
	}
}

func TestAUTH97AVerifierThatFailsIsNoVerdict(t *testing.T) {
	t.Run("it panics", func(t *testing.T) {
		e := open(t, func(o *handler.Options) {
			o.Verifier = func(context.Context, string, *http.Request) (*auth.TokenInfo, error) { panic("secret-of-mine") }
		})
		r := e.post("x", "", ping)
		assert.Equal(t, http.StatusServiceUnavailable, r.status)
		assert.NotContains(t, e.log.String()+r.body, "secret-of-mine")
	})
	t.Run("the key server is down", func(t *testing.T) {
		e := open(t, nil)
		rotated := newKey(t, "k2", "ES256")
		e.issuer.publish(e.key, rotated)
		e.issuer.down.Store(true)
		impatient := e.issuer.options()
		impatient.RefreshInterval = time.Nanosecond
		e.hosts = []string{e.serve(memory.New(), func(o *handler.Options) { o.Verifier = newVerifier(t, impatient) })}
		unknown := rotated.token(t, e.issuer.url, nil)
		r := e.post(unknown, "", ping)
		assert.GreaterOrEqual(t, r.status, 500, "a client that is told 401 throws its token away")
		assert.Empty(t, r.header.Get("WWW-Authenticate"))
		assert.NotContains(t, e.log.String()+r.body, unknown)
		e.issuer.down.Store(false)
		assert.Equal(t, http.StatusOK, e.post(unknown, "", ping).status)
		e.issuer.down.Store(true)
		assert.Equal(t, http.StatusOK, e.post(e.token("alice", ""), "", ping).status, "keys that are known stay good")
	})
	t.Run("the key server hangs", func(t *testing.T) {
		e := open(t, nil)
		impatient := e.issuer.options()
		impatient.FetchTimeout = 10 * time.Millisecond
		impatient.Client = &http.Client{Transport: stuck{}}
		e.hosts = []string{e.serve(memory.New(), func(o *handler.Options) { o.Verifier = newVerifier(t, impatient) })}
		assert.GreaterOrEqual(t, e.post(e.token("alice", ""), "", ping).status, 500)
	})
}

func TestAUTH99AMissingScopeIsToldFromABadToken(t *testing.T) {
	e := open(t, nil)
	const modern = `{"jsonrpc":"2.0","id":"seven","method":"tools/call","params":{"name":"write","_meta":{` +
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
	ask := func(token, session, body string) answer {
		header := []string{"Authorization", bearer(token), "Mcp-Session-Id", session}
		if body == modern {
			header = append(header, "MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "write")
		}
		return e.send(http.MethodPost, "/mcp", body, header...)
	}
	session := e.session(e.token("alice", "read write"))
	for name, c := range map[string]struct{ session, body, id string }{
		"legacy": {session, call("7", "write"), "7"},
		"modern": {"", modern, `"seven"`},
	} {
		r := ask(e.token("alice", "read"), c.session, c.body)
		require.Equal(t, http.StatusForbidden, r.status, "%s: %s", name, r.body)
		params := challenge(t, r)
		assert.Equal(t, "insufficient_scope", params["error"], name)
		assert.Equal(t, "write", params["scope"], name)
		assert.Contains(t, params["resource_metadata"], "/.well-known/oauth-protected-resource/mcp", name)
		var body struct{ ID json.RawMessage }
		require.NoError(t, json.Unmarshal([]byte(r.body), &body), name)
		assert.Equal(t, c.id, string(body.ID), name)

		expired := e.token("alice", "read", claims{"exp": time.Now().Add(-time.Hour).Unix()})
		r = ask(expired, c.session, c.body)
		assert.Equal(t, http.StatusUnauthorized, r.status, "%s: validity comes before scope", name)
		r = ask(e.token("alice", "read write"), c.session, c.body)
		assert.Equal(t, http.StatusOK, r.status, "%s: and stepping up works", name)
		assert.Contains(t, r.body, "the secret", name)
	}
}

// A batch is as good as its messages.
func TestAUTH99ABatchIsNoWayRoundAScope(t *testing.T) {
	e := open(t, nil)
	old := strings.Replace(initialize, "2025-11-25", "2025-03-26", 1)
	session := e.post(e.token("alice", "read"), "", old).header.Get("Mcp-Session-Id")
	r := e.post(e.token("alice", "read"), session, "["+ping+","+call("7", "write")+"]")
	assert.NotContains(t, r.body, "the secret")
	r = e.post(e.token("alice", "write"), session, "["+ping+","+call("8", "write")+"]")
	assert.Contains(t, r.body, "the secret")
}

func TestAUTH101ASessionBelongsToItsPrincipal(t *testing.T) {
	e := open(t, nil)
	alice, bob := e.token("alice", "read"), e.token("bob", "read")
	session := e.session(alice)
	for what, r := range map[string]struct{ got, missing answer }{
		"POST": {e.post(bob, session, listTools), e.post(bob, "00000000000000000000000000000000", listTools)},
		"GET": {
			e.send("GET", "/mcp", "", "Authorization", bearer(bob), "Mcp-Session-Id", session),
			e.send("GET", "/mcp", "", "Authorization", bearer(bob), "Mcp-Session-Id", "00000000000000000000000000000000"),
		},
		"DELETE": {
			e.send("DELETE", "/mcp", "", "Authorization", bearer(bob), "Mcp-Session-Id", session),
			e.send("DELETE", "/mcp", "", "Authorization", bearer(bob), "Mcp-Session-Id", "00000000000000000000000000000000"),
		},
	} {
		assert.Equal(t, http.StatusNotFound, r.got.status, what)
		assert.Equal(t, r.missing.status, r.got.status, what)
		assert.Equal(t, r.missing.body, r.got.body, "%s: it looks like no session at all", what)
	}
	refreshed := e.token("alice", "read write", claims{"exp": time.Now().Add(2 * time.Hour).Unix(), "jti": "another"})
	r := e.post(refreshed, session, call("4", "who"))
	assert.Equal(t, http.StatusOK, r.status, "tokens are refreshed, sessions stay")
	assert.Contains(t, r.body, e.issuer.url+" alice")
	r = e.send("DELETE", "/mcp", "", "Authorization", bearer(alice), "Mcp-Session-Id", session)
	assert.Equal(t, http.StatusNoContent, r.status)
	assert.Equal(t, http.StatusNotFound, e.post(alice, session, listTools).status)
}

// The same subject of another issuer is somebody else.
func TestAUTH101ASubjectIsOneOfItsIssuers(t *testing.T) {
	e := open(t, nil)
	shared := memory.New()
	other := newIssuer(t, "", e.key)
	trusting := func(i *issuer) func(*handler.Options) {
		return func(o *handler.Options) { o.Verifier = newVerifier(t, i.options()) }
	}
	e.hosts = []string{e.serve(shared, trusting(e.issuer)), e.serve(shared, trusting(other))}
	e.turn = 0
	session := e.session(e.token("alice", "read")) // on the first
	r := e.post(e.key.token(t, other.url, nil), session, listTools)
	assert.Equal(t, http.StatusNotFound, r.status)
	assert.Equal(t, http.StatusOK, e.post(e.token("alice", "read"), session, listTools).status)
}

func TestAUTH102AStreamIsResumedWithWhatItsCallNeeds(t *testing.T) {
	e := open(t, nil)
	admin, weak := e.token("alice", "read write"), e.token("alice", "read")
	session := e.session(admin)
	get := func(token, session, last string) answer {
		return e.send("GET", "/mcp", "", "Authorization", bearer(token), "Mcp-Session-Id", session, "Last-Event-ID", last)
	}
	for _, method := range []string{"GET", "DELETE"} {
		r := e.send(method, "/mcp", "", "Mcp-Session-Id", session)
		assert.Equal(t, http.StatusUnauthorized, r.status, method)
		assert.Contains(t, challenge(t, r)["resource_metadata"], "/.well-known/", method)
	}
	r := e.post(admin, session, call("5", "write"))
	require.Contains(t, r.body, "the secret")
	first, ok := strings.CutPrefix(strings.SplitN(r.body, "\n", 2)[0], "id: ")
	require.True(t, ok, r.body)
	assert.Equal(t, http.StatusUnauthorized, get("", session, first).status)
	r = get(weak, session, first)
	assert.Equal(t, http.StatusForbidden, r.status)
	assert.Equal(t, "insufficient_scope", challenge(t, r)["error"])
	assert.NotContains(t, r.body, "the secret")
	r = get(e.token("bob", "read write"), session, first)
	assert.Equal(t, http.StatusNotFound, r.status)
	r = get(e.token("bob", "read write"), e.session(e.token("bob", "read write")), first)
	assert.NotContains(t, r.body, "the secret")
	assert.Contains(t, get(admin, session, first).body, "the secret")
}
