package handler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/store"
)

// The tests of this file are the failure table of docs/failures.md, line by line: HTTP status, JSON-RPC code, level.

const legacyHeaders = "legacy"

func TestFailureNoSessionHeader(t *testing.T) {
	modes(t, setup{}, func(t *testing.T, e *endpoint) {
		for _, body := range []string{listTools, initialized, `{"jsonrpc":"2.0","id":"q","result":{}}`, `[` + listTools + `]`} {
			r := e.post(body)
			assert.Equal(t, 400, r.status)
			assert.Equal(t, -32600, r.code())
		}
		assert.Equal(t, "2", e.post(listTools).id())
		assert.Equal(t, 400, e.send("GET", "", "Accept", "text/event-stream").status)
		assert.Equal(t, 400, e.send("DELETE", "").status)
		assert.Equal(t, "DEBUG", e.log.level("Mcp-Session-Id header is missing"))
	})
}

func TestFailureSessionMissing(t *testing.T) {
	modes(t, setup{}, func(t *testing.T, e *endpoint) {
		deleted := e.session(version20251125)
		require.Equal(t, 204, deleted.send("DELETE", "").status)
		for _, id := range []string{"gone-0001", newSessionID(), deleted.id, strings.Repeat("x", 10_000)} {
			for method, r := range map[string]reply{
				"POST":         e.post(listTools, headerSession, id),
				"notification": e.post(initialized, headerSession, id),
				"response":     e.post(`{"jsonrpc":"2.0","id":"q","result":{}}`, headerSession, id),
				"batch":        e.post(`[`+listTools+`]`, headerSession, id),
				"GET":          e.send("GET", "", "Accept", "text/event-stream", headerSession, id),
				"DELETE":       e.send("DELETE", "", headerSession, id),
			} {
				assert.Equal(t, 404, r.status, method)
				assert.Equal(t, -32001, r.code(), method)
				assert.Contains(t, r.errorMessage(), "initialize", "says what to do")
				assert.Empty(t, r.id(), "with an id, clients keep the dead session")
			}
		}
		assert.Equal(t, "INFO", e.log.level("Session not found"))
	})
}

func TestFailureStoreUnavailable(t *testing.T) {
	outages := map[string]error{
		"unavailable": store.Wrap("test", store.ErrUnavailable, nil),
		"throttled":   store.Wrap("test", store.ErrThrottled, nil),
		"timed out":   store.Wrap("test", store.ErrUnavailable, context.DeadlineExceeded),
		"contended":   store.Wrap("test", store.ErrThrottled, store.ErrConflict),
		"unknown":     errors.New("something else"),
	}
	modes(t, setup{}, func(t *testing.T, e *endpoint) {
		for name, outage := range outages {
			s := e.session(version20251125)
			e.store.fail(outage)
			for method, r := range map[string]reply{
				"initialize":   e.post(initBody(version20251125, `{}`)),
				"POST":         s.post(listTools),
				"notification": s.post(initialized),
				"response":     s.post(`{"jsonrpc":"2.0","id":"q","result":{}}`),
				"GET":          s.send("GET", "", "Accept", "text/event-stream"),
				"DELETE":       s.send("DELETE", ""),
			} {
				assert.Equal(t, 503, r.status, "%s %s", name, method)
				assert.Equal(t, -32603, r.code(), "%s %s", name, method)
				assert.NotEmpty(t, r.header.Get("Retry-After"))
				assert.Contains(t, r.body, `"data":{"retryable":true}`)
				assert.Empty(t, r.header.Get(headerSession))
			}
			assert.Equal(t, "2", s.post(listTools).id())
			assert.Equal(t, 200, e.modernCall("echo", `{}`).status, "the modern era needs no store")
			e.store.fail(nil)
			assert.Equal(t, 200, s.post(listTools).status, "the same session works again")
		}
		assert.Equal(t, "ERROR", e.log.level("session store cannot be reached"))
	})
}

// A change that the store has refused is not acknowledged.
func TestFailureStoreRefusesAChange(t *testing.T) {
	modes(t, setup{}, func(t *testing.T, e *endpoint) {
		s := e.initialize(version20251125, `{}`)
		e.store.failOnly("update", store.Wrap("test", store.ErrUnavailable, nil))
		for _, body := range []string{
			initialized,
			`{"jsonrpc":"2.0","id":5,"method":"logging/setLevel","params":{"level":"info"}}`,
			`{"jsonrpc":"2.0","id":5,"method":"resources/subscribe","params":{"uri":"test://one"}}`,
		} {
			assert.Equal(t, 503, s.post(body).status, body)
		}
		e.store.failOnly("delete", store.Wrap("test", store.ErrUnavailable, nil))
		assert.Equal(t, 503, s.send("DELETE", "").status)
		e.store.fail(nil)
		assert.Equal(t, 202, s.post(initialized).status)
	})
}

func TestFailureRecordCannotBeRead(t *testing.T) {
	modes(t, setup{}, func(t *testing.T, e *endpoint) {
		s := e.session(version20251125)
		e.store.fail(store.Wrap("test", store.ErrCorrupt, nil))
		r := s.post(listTools)
		assert.Equal(t, 500, r.status)
		assert.Equal(t, -32603, r.code())
		e.store.fail(nil)

		id := newSessionID() // decodable, but the engine cannot restore it
		require.NoError(t, e.store.Store.CreateSession(t.Context(), &store.Session{
			Key: sessionKey(defaultName, id), ProtocolVersion: version20251125, InitializeParams: json.RawMessage(`{"capabilities":7}`),
			Created: time.Now(), Expires: time.Now().Add(time.Hour),
		}))
		r = e.post(listTools, headerSession, id)
		assert.Equal(t, 500, r.status)
		assert.Equal(t, -32603, r.code())
		assert.Equal(t, "ERROR", e.log.level("record cannot be read"))
	})
}

func TestFailureNotJSON(t *testing.T) {
	modes(t, setup{}, func(t *testing.T, e *endpoint) {
		for _, body := range []string{"", "{", "\xff", strings.Repeat("[", 100_000)} {
			r := e.post(body)
			assert.Equal(t, 400, r.status)
			assert.Equal(t, -32700, r.code())
			assert.Equal(t, "DEBUG", e.log.level("no JSON message"))
		}
	})
}

func TestFailureNotAMessage(t *testing.T) {
	modes(t, setup{}, func(t *testing.T, e *endpoint) {
		r := e.post(`{"jsonrpc":"2.0","id":7,"method":42}`)
		assert.Equal(t, 400, r.status)
		assert.Equal(t, -32600, r.code())
		assert.Equal(t, "7", r.id())
		assert.Equal(t, "DEBUG", e.log.level("not a valid JSON-RPC message"))
		for _, version := range []string{version20251125, version20250618} {
			r = e.session(version).post(`[` + listTools + `]`)
			assert.Equal(t, 400, r.status)
			assert.Equal(t, -32600, r.code())
		}
		assert.Equal(t, "DEBUG", e.log.level("batches exist"))
	})
}

func TestFailureBodyTooLarge(t *testing.T) {
	modes(t, setup{opts: Options{MaxBody: 1000}}, func(t *testing.T, e *endpoint) {
		body := pingBody + strings.Repeat(" ", 1001-len(pingBody))
		r := e.post(body)
		assert.Equal(t, 413, r.status)
		assert.Equal(t, -32600, r.code())
		assert.Equal(t, "INFO", e.log.level("larger than 1000 bytes"))
		assert.Equal(t, 200, e.post(body[:1000]).status)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, e.url, struct{ *strings.Reader }{strings.NewReader(body)})
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/json")
		assert.Equal(t, 413, e.do(req).status, "chunked, its length unknown")
	})
}

func TestFailureMediaTypes(t *testing.T) {
	modes(t, setup{}, func(t *testing.T, e *endpoint) {
		for _, r := range []reply{
			e.post(pingBody, "Content-Type", "text/plain"),
			e.post(pingBody, "Content-Type", ""),
			e.post(pingBody, "Content-Encoding", "gzip"),
		} {
			assert.Equal(t, 415, r.status)
		}
		assert.Equal(t, 406, e.post(pingBody, "Accept", "text/html").status)
		assert.Equal(t, 406, e.session(version20251125).send("GET", "", "Accept", "application/json").status)
		for _, method := range []string{"PUT", "PATCH", "HEAD", "OPTIONS"} {
			r := e.send(method, "")
			assert.Equal(t, 405, r.status)
			assert.Equal(t, "GET, POST, DELETE", r.header.Get("Allow"))
		}
		assert.Equal(t, "DEBUG", e.log.level(`"status":415`))
		assert.Equal(t, "DEBUG", e.log.level(`"status":406`))
		assert.Equal(t, "DEBUG", e.log.level(`"status":405`))
	})
}

func TestFailureOrigin(t *testing.T) {
	modes(t, setup{opts: Options{AllowedOrigins: []string{"https://app.example"}}}, func(t *testing.T, e *endpoint) {
		for _, origin := range []string{"null", "http://", "https://evil.example", "https://app.example.evil.example", "http://app.example"} {
			for _, method := range []string{"POST", "GET", "DELETE"} {
				r := e.send(method, pingBody, "Origin", origin, "Accept", "*/*", "Content-Type", "application/json")
				assert.Equal(t, 403, r.status, origin)
			}
		}
		assert.Equal(t, 200, e.post(pingBody, "Origin", "https://app.example").status)
		assert.Equal(t, 200, e.post(pingBody).status)
		assert.Equal(t, 200, e.post(pingBody, "Origin", e.url).status, "a page of this very server, on loopback")
		assert.Equal(t, 403, e.post(pingBody, "Origin", "http://127.0.0.1:1").status, "another server's page")
		assert.Equal(t, "INFO", e.log.level("Origin"))
	})
}

func TestFailureCredentials(t *testing.T) {
	verifier := func(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
		info := &auth.TokenInfo{UserID: "u", Expiration: time.Now().Add(time.Hour), Scopes: []string{"mcp"}}
		switch token {
		case "good":
			return info, nil
		case "weak":
			info.Scopes = nil
			return info, nil
		case "expired":
			info.Expiration = time.Now().Add(-time.Hour)
			return info, nil
		case "down":
			return nil, errors.New("the key server is down: secret-detail")
		}
		return nil, fmt.Errorf("%w: secret-detail", auth.ErrInvalidToken)
	}
	opts := Options{Verifier: verifier, Scopes: []string{"mcp"}, ResourceMetadataURL: "https://h.example/.well-known/oauth-protected-resource"}
	modes(t, setup{opts: opts}, func(t *testing.T, e *endpoint) {
		const metadata = `resource_metadata="https://h.example/.well-known/oauth-protected-resource"`
		for _, c := range []struct {
			token  string
			status int
			parts  []string
		}{
			{"", 401, []string{"Bearer ", metadata, `scope="mcp"`}},
			{"bad", 401, []string{`error="invalid_token"`, metadata}},
			{"expired", 401, []string{`error="invalid_token"`, metadata}},
			{"weak", 403, []string{`error="insufficient_scope"`, `scope="mcp"`, metadata}},
			{"down", 503, nil},
		} {
			for _, method := range []string{"POST", "GET", "DELETE"} {
				headers := []string{"Accept", "*/*", "Content-Type", "application/json"}
				if c.token != "" {
					headers = append(headers, "Authorization", "Bearer "+c.token)
				}
				r := e.send(method, pingBody, headers...)
				assert.Equal(t, c.status, r.status, c.token)
				assert.NotZero(t, r.code(), "a JSON-RPC error")
				assert.NotContains(t, r.body, "secret-detail")
				for _, p := range c.parts {
					assert.Contains(t, r.header.Get("WWW-Authenticate"), p, c.token)
				}
			}
		}
		assert.Equal(t, 200, e.post(pingBody, "Authorization", "Bearer good").status)
		assert.NotContains(t, e.post(pingBody).header.Get("WWW-Authenticate"), "error=", "there was no token to be wrong")
		assert.Equal(t, "INFO", e.log.level(`"status":401`))
		assert.Equal(t, "INFO", e.log.level(`"status":403`))
		assert.NotContains(t, e.log.String(), "secret-detail")
	})
}

func TestFailureUnsupportedVersion(t *testing.T) {
	modes(t, setup{}, func(t *testing.T, e *endpoint) {
		r := e.modernMeta("tools/list", "", `"io.modelcontextprotocol/protocolVersion":"2099-01-01","io.modelcontextprotocol/clientCapabilities":{}`,
			headerVersion, "2099-01-01")
		assert.Equal(t, 400, r.status)
		assert.Equal(t, mcp.CodeUnsupportedProtocolVersion, r.code())
		assert.Contains(t, r.body, `"supported":["2026-07-28","2025-11-25","2025-06-18","2025-03-26"]`)
		r = e.session(version20251125).post(listTools, headerVersion, "2099-01-01")
		assert.Equal(t, 400, r.status)
		assert.Equal(t, -32600, r.code())
		assert.Equal(t, "DEBUG", e.log.level("unsupported protocol version"))
	})
}

func TestFailureHeaderAndBodyDisagree(t *testing.T) {
	modes(t, setup{}, func(t *testing.T, e *endpoint) {
		r := e.modernCall("echo", `{}`, headerName, "other")
		assert.Equal(t, 400, r.status)
		assert.Equal(t, mcp.CodeHeaderMismatch, r.code())
		assert.Equal(t, "INFO", e.log.level(`"code":-32020`))
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, e.url, strings.NewReader(pingBody))
		require.NoError(t, err)
		req.Header["Mcp-Protocol-Version"] = []string{version20251125, version20260728}
		req.Header.Set("Content-Type", "application/json")
		assert.Equal(t, mcp.CodeHeaderMismatch, e.do(req).code(), "a header that says two things")
	})
}

func TestFailureUndeclaredCapability(t *testing.T) {
	modes(t, setup{}, func(t *testing.T, e *endpoint) {
		r := e.modern("tools/call", `"name":"rounds","arguments":{}`, `{}`)
		assert.Equal(t, 400, r.status)
		assert.Equal(t, mcp.CodeMissingRequiredClientCapabilities, r.code())
		assert.Contains(t, r.body, `"requiredCapabilities":{"elicitation"`)
		assert.Equal(t, "DEBUG", e.log.level(`"code":-32021`))
	})
}

func TestFailureUnknownMethod(t *testing.T) {
	modes(t, setup{}, func(t *testing.T, e *endpoint) {
		r := e.modern("no/such", "", `{}`)
		assert.Equal(t, 404, r.status)
		assert.Equal(t, -32601, r.code())
		r = e.session(version20251125).post(`{"jsonrpc":"2.0","id":0,"method":"no/such"}`)
		assert.Equal(t, 200, r.status)
		assert.Equal(t, -32601, r.code())
		assert.Equal(t, "0", r.id())
		assert.Equal(t, "DEBUG", e.log.level(`"code":-32601`))
	})
}

func TestFailureResponseTooLarge(t *testing.T) {
	modes(t, setup{runtime: Runtime{MaxResponse: 5000}}, func(t *testing.T, e *endpoint) {
		s := e.session(version20251125)
		for _, r := range []reply{s.call("large", `{"bytes":6000}`), e.modernCall("large", `{"bytes":6000}`)} {
			assert.Equal(t, 200, r.status)
			assert.Equal(t, -32603, r.code())
			assert.Contains(t, r.errorMessage(), "5000", "names the limit")
		}
		assert.Equal(t, "9", s.call("large", `{"bytes":6000}`).id())
		assert.Len(t, s.call("large", `{"bytes":4000}`).text(), 4000)
		assert.Equal(t, "ERROR", e.log.level("this runtime can return"))
	})
}

func TestFailureToolPastTheDeadline(t *testing.T) {
	modes(t, setup{}, func(t *testing.T, e *endpoint) {
		s := e.session(version20251125)
		for _, r := range []reply{s.call("wait", `{}`, headerDeadline, "30ms"), e.modernCall("wait", `{}`, headerDeadline, "30ms")} {
			assert.Equal(t, 200, r.status)
			assert.Equal(t, -32603, r.code())
			assert.Contains(t, r.errorMessage(), "the runtime's limit")
		}
		assert.Equal(t, "ERROR", e.log.level("took too long"))
	})
	e := open(t, setup{opts: Options{CallTimeout: 30 * time.Millisecond}}, true)
	assert.Contains(t, e.modernCall("wait", `{}`).errorMessage(), "server's limit for a call of 30ms")
}

func TestFailureTheClientWentAway(t *testing.T) {
	for _, era := range []string{legacyHeaders, "modern"} {
		e := open(t, setup{}, true)
		s := e.session(version20251125)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		body := callBody("1", "wait", `{}`)
		if era == "modern" {
			body = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait","_meta":{` + metaFields + `{}}}}`
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, strings.NewReader(body))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set(headerDeadline, "300ms")
		if era == "modern" {
			req.Header.Set(headerVersion, version20260728)
			req.Header.Set(headerMethod, "tools/call")
			req.Header.Set(headerName, "wait")
		} else {
			req.Header.Set(headerSession, s.id)
		}
		_, err = e.client.Do(req)
		require.Error(t, err)
		assert.Eventually(t, func() bool { return e.log.level("client") == "DEBUG" && strings.Contains(e.log.String(), "connection") },
			5*time.Second, time.Millisecond, "%s: %s", era, e.log)
	}
}

func TestBadOptionsFailAtConstruction(t *testing.T) {
	for want, o := range map[string]Options{
		"Versions":               {Versions: []string{"2024-11-05"}},
		"AllowedOrigins":         {AllowedOrigins: []string{"app.example"}},
		"is no origin":           {AllowedOrigins: []string{"https://*.example"}},
		"Legacy":                 {Legacy: 7},
		"SessionTTL":             {SessionTTL: time.Millisecond},
		"SessionLifetime":        {SessionLifetime: -1},
		"CallTimeout":            {CallTimeout: -1},
		"MaxBody":                {MaxBody: -1},
		"MaxDepth":               {MaxDepth: 1001},
		"MaxBatch":               {MaxBatch: -1},
		"Scopes needs":           {Scopes: []string{"x"}},
		"AllowAnonymous":         {AllowAnonymous: true},
		"two answers":            {Verifier: denyAll, Identify: nobody},
		"MaxCalls":               {MaxCalls: -1},
		"Ask: unknown":           {Ask: 9},
		"AskTimeout":             {AskTimeout: -1},
		"StateTimeout":           {StateTimeout: 1},
		"Options.Keys":           {Keys: [][]byte{{1}}},
		"SingleUseState needs":   {SingleUseState: true, Legacy: LegacyStateless},
		"store for the sessions": {},
		"MaxSubscriptions":       {MaxSubscriptions: -1},
		"MaxID":                  {MaxID: -1},
		"MaxHeader":              {MaxHeader: -1},
		"MaxSessionEvents":       {MaxSessionEvents: -1},
		"MaxSessionStored":       {MaxSessionStored: -1},
	} {
		assert.Contains(t, panicOf(func() { New(testServer(), nil, &o) }), want)
	}
	assert.Contains(t, panicOf(func() { New(nil, nil, nil) }), "server")
}

func panicOf(f func()) (message string) {
	defer func() { message = fmt.Sprint(recover()) }()
	f()
	return ""
}
