package handler

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/internal/rawjson"
)

func TestModernRequestsDescribeThemselves(t *testing.T) {
	modes(t, setup{}, func(t *testing.T, e *endpoint) {
		r := e.modern("server/discover", "", `{}`)
		assert.Equal(t, 200, r.status, r.body)
		assert.Contains(t, r.body, `"supportedVersions":["2026-07-28","2025-11-25","2025-06-18","2025-03-26"]`)
		assert.Contains(t, r.body, `"resultType":"complete"`)

		r = e.modern("tools/list", "", `{}`)
		assert.Contains(t, r.body, `"ttlMs"`)
		assert.Contains(t, r.body, `"cacheScope"`)
		assert.Contains(t, e.modern("resources/read", `"uri":"test://one"`, `{}`).body, `"text":"one"`)
		assert.Contains(t, e.modern("prompts/get", `"name":"hello"`, `{}`).body, `"text":"hi"`)
		assert.Equal(t, `{"n":9007199254740993}`, e.modernCall("echo", `{"n":9007199254740993}`).text())

		r = e.modernMeta("tools/call", `"name":"session"`, metaFields+`{"roots":{}},"io.modelcontextprotocol/clientInfo":{"name":"c","version":"7"}`)
		assert.Contains(t, r.text(), `"version":"2026-07-28"`)
		assert.Contains(t, r.text(), `"name":"c"`)
		assert.NotContains(t, r.text(), `"roots":null`)
		assert.Empty(t, e.store.spent(), "no store access")
	})
}

func TestModernMetaIsRequired(t *testing.T) {
	modes(t, setup{}, func(t *testing.T, e *endpoint) {
		for name, meta := range map[string]string{
			"empty":                       ``,
			"no version":                  `"io.modelcontextprotocol/clientCapabilities":{}`,
			"no capabilities":             `"io.modelcontextprotocol/protocolVersion":"2026-07-28"`,
			"capabilities are no object":  metaFields + `[]`,
			"version is no string":        `"io.modelcontextprotocol/protocolVersion":7,"io.modelcontextprotocol/clientCapabilities":{}`,
			"client info is no object":    metaFields + `{},"io.modelcontextprotocol/clientInfo":"x"`,
			"capabilities that are wrong": metaFields + `{"elicitation":7}`,
		} {
			r := e.modernMeta("tools/list", "", meta)
			assert.Equal(t, 400, r.status, name)
			assert.Equal(t, -32602, r.code(), name)
			assert.Equal(t, "4", r.id(), name)
		}
		r := e.post(`{"jsonrpc":"2.0","id":4,"method":"tools/list"}`, headerVersion, version20260728, headerMethod, "tools/list")
		assert.Equal(t, 400, r.status)
		assert.Equal(t, -32602, r.code())
	})
}

func TestModernMethodsThatAreGone(t *testing.T) {
	modes(t, setup{}, func(t *testing.T, e *endpoint) {
		for _, method := range []string{"initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "no/such"} {
			r := e.modern(method, "", `{}`)
			assert.Equal(t, 404, r.status, method)
			assert.Equal(t, -32601, r.code(), method)
			assert.Equal(t, "4", r.id(), method)
		}
		for _, body := range []string{initialized, `{"jsonrpc":"2.0","id":"x","result":{}}`} {
			assert.Equal(t, 202, e.post(body, headerVersion, version20260728).status)
		}
		assert.Equal(t, 405, e.send("GET", "", headerVersion, version20260728).status)
		assert.Equal(t, 405, e.send("DELETE", "", headerVersion, version20260728).status)
	})
}

func TestModernHeadersMustSayWhatTheBodySays(t *testing.T) {
	modes(t, setup{}, func(t *testing.T, e *endpoint) {
		b64 := func(s string) string { return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(s)) + "?=" }
		call := func(arguments string, headers ...string) reply {
			return e.modern("tools/call", `"name":"region","arguments":`+arguments, `{}`, headers...)
		}
		mismatch := func(name string, r reply) {
			t.Helper()
			assert.Equal(t, 400, r.status, name)
			assert.Equal(t, mcp.CodeHeaderMismatch, r.code(), name)
			assert.Equal(t, "4", r.id(), name)
		}
		mismatch("no method", call(`{}`, headerMethod, ""))
		mismatch("another method", call(`{}`, headerMethod, "tools/list"))
		mismatch("method in another case", call(`{}`, headerMethod, "TOOLS/CALL"))
		mismatch("no name", call(`{}`, headerName, ""))
		mismatch("another name", call(`{}`, headerName, "echo"))
		mismatch("name in another case", call(`{}`, headerName, "Region"))
		mismatch("another name, encoded", call(`{}`, headerName, b64("echo")))
		mismatch("broken encoding", call(`{}`, headerName, "=?base64?!?="))
		mismatch("resource", e.modern("resources/read", `"uri":"test://one"`, `{}`, headerName, "test://two"))
		mismatch("prompt", e.modern("prompts/get", `"name":"hello"`, `{}`, headerName, "bye"))
		mismatch("param without header", call(`{"region":"eu"}`))
		mismatch("header without param", call(`{}`, "Mcp-Param-Region", "eu"))
		mismatch("header for null", call(`{"region":null}`, "Mcp-Param-Region", "null"))
		mismatch("another param", call(`{"region":"eu"}`, "Mcp-Param-Region", "us"))
		mismatch("another number", call(`{"n":7}`, "Mcp-Param-N", "8"))
		mismatch("unsafe number", call(`{"n":9007199254740993}`, "Mcp-Param-N", "9007199254740993"))
		mismatch("nested", call(`{"deep":{"flag":true}}`, "Mcp-Param-Flag", "false"))
		for name, r := range map[string]reply{
			"nothing annotated":  call(`{}`),
			"name, encoded":      call(`{}`, headerName, b64("region")),
			"string":             call(`{"region":"eu"}`, "Mcp-Param-Region", "eu"),
			"string, encoded":    call(`{"region":"日本"}`, "Mcp-Param-Region", b64("日本")),
			"number":             call(`{"n":7}`, "Mcp-Param-N", "7"),
			"nested":             call(`{"deep":{"flag":true}}`, "Mcp-Param-Flag", "true"),
			"null and no header": call(`{"region":null}`),
		} {
			assert.Equal(t, "ran", r.text(), "%s: %s", name, r.body)
		}
	})
}

func TestModernRounds(t *testing.T) {
	modes(t, setup{}, func(t *testing.T, e *endpoint) {
		const ask = `"name":"rounds","arguments":{}`
		r := e.modern("tools/call", ask, `{"elicitation":{}}`)
		assert.Equal(t, 200, r.status, r.body)
		kind, _ := rawjson.Get(r.result(), "resultType")
		assert.Equal(t, `"input_required"`, string(kind))
		state := stringOf(r.result(), "requestState")
		assert.NotEqual(t, "s1", state)
		r = e.modern("tools/call", ask+retry(state), `{"elicitation":{}}`)
		assert.Equal(t, "state s1", r.text(), "the handler sees its own")

		r = e.modern("tools/call", ask, `{"sampling":{}}`)
		assert.Equal(t, 400, r.status)
		assert.Equal(t, mcp.CodeMissingRequiredClientCapabilities, r.code())
		assert.Contains(t, r.body, `"requiredCapabilities":{"elicitation":{"form":{}}}`)
		assert.Contains(t, e.modernCall("ask", `{}`).text(), "multi round-trip")
	})
}

func retry(state string) string {
	return `,"requestState":` + string(encode(state)) + `,"inputResponses":{"who":{"action":"accept","content":{"a":"b"}}}`
}

// A state is good for one principal, server, method, tool and arguments, for a while, and not at all when it was changed.
func TestVERSION74RequestStateIsSealed(t *testing.T) {
	token := func(r *http.Request) *auth.TokenInfo {
		if user := r.Header.Get("X-User"); user != "" {
			return &auth.TokenInfo{UserID: user, Expiration: time.Now().Add(time.Hour)}
		}
		return nil
	}
	const caps = `{"elicitation":{}}`
	modes(t, setup{token: token}, func(t *testing.T, e *endpoint) {
		call := func(arguments, more string, headers ...string) reply {
			return e.modern("tools/call", `"name":"rounds","arguments":`+arguments+more, caps,
				append([]string{"Authorization", "Bearer x", headerName, "rounds"}, headers...)...)
		}
		const arguments = `{"n":1,"s":"é","deep":{"b":[1.0,true],"a":null}}`
		first := call(arguments, "", "X-User", "alice")
		state := stringOf(first.result(), "requestState")
		require.NotEmpty(t, state, first.body)
		flipped := []byte(state)
		flipped[len(flipped)/2] ^= 1
		for name, r := range map[string]reply{
			"another user":    call(arguments, retry(state), "X-User", "bob"),
			"nobody":          call(arguments, retry(state)),
			"other arguments": call(`{"n":2,"s":"é","deep":{"b":[1.0,true],"a":null}}`, retry(state), "X-User", "alice"),
			"no arguments":    call(`{}`, retry(state), "X-User", "alice"),
			"changed":         call(arguments, retry(string(flipped)), "X-User", "alice"),
			"cut short":       call(arguments, retry(state[:len(state)-1]), "X-User", "alice"),
			"invented":        call(arguments, retry("aGVsbG8"), "X-User", "alice"),
			"the tool's own":  call(arguments, retry("s1"), "X-User", "alice"),
			"dropped":         call(arguments, `,"inputResponses":{"who":{"action":"accept"}}`, "X-User", "alice"),
			"no string":       call(arguments, `,"requestState":7`, "X-User", "alice"),
			"another tool": e.modern("tools/call", `"name":"params","arguments":`+arguments+retry(state), caps,
				"Authorization", "Bearer x", "X-User", "alice", headerName, "params"),
		} {
			assert.Equal(t, 400, r.status, name)
			assert.Equal(t, -32602, r.code(), name)
			assert.NotContains(t, r.body, "s1", name)
		}
		again := ` { "deep" : {"a":null,"b":[1,true]}, "s":"\u00e9", "n":1.0e0 } ` // the same, as another client writes it
		assert.Equal(t, "state s1", call(again, retry(state), "X-User", "alice").text())
		assert.Equal(t, "state s1", call(arguments, retry(state), "X-User", "alice").text(), "a retry of the retry")
	})
}

func TestRequestStateForOneUse(t *testing.T) {
	modes(t, setup{opts: Options{SingleUseState: true}}, func(t *testing.T, e *endpoint) {
		const ask = `"name":"rounds","arguments":{}`
		state := stringOf(e.modern("tools/call", ask, `{"elicitation":{}}`).result(), "requestState")
		assert.Equal(t, "state s1", e.modern("tools/call", ask+retry(state), `{"elicitation":{}}`).text())
		r := e.modern("tools/call", ask+retry(state), `{"elicitation":{}}`)
		assert.Equal(t, -32602, r.code())
		assert.Contains(t, r.errorMessage(), "has been used")
	})
}

func TestAnswersWithoutState(t *testing.T) {
	const answers = `"name":"rounds","arguments":{},"inputResponses":{"who":{"action":"accept"}}`
	modes(t, setup{opts: Options{AnswersWithoutState: true}}, func(t *testing.T, e *endpoint) {
		assert.Equal(t, "state ", e.modern("tools/call", answers, `{"elicitation":{}}`).text())
		assert.Equal(t, -32602, e.modern("tools/call", answers+`,"requestState":"forged"`, `{"elicitation":{}}`).code())
	})
	modes(t, setup{}, func(t *testing.T, e *endpoint) {
		assert.Equal(t, -32602, e.modern("tools/call", answers, `{"elicitation":{}}`).code())
	})
}

func TestRequestStateExpires(t *testing.T) {
	h := New(testServer(), nil, &Options{Versions: []string{version20260728}})
	x := &exchange{request: &request{h: h, name: "n"}, msg: message{method: "tools/call", params: json.RawMessage(`{"name":"rounds"}`)}}
	keys, err := h.keys(t.Context())
	require.NoError(t, err)
	token := keys.seal(encode(sealed{Until: time.Now().Add(-2 * time.Second).Unix()}), x.binding())
	x.msg.params = rawjson.Set(x.msg.params, "requestState", encode(token))
	assert.Contains(t, x.openState(t.Context()).message, "expired")
}

func TestKeysAreRotated(t *testing.T) {
	old, fresh := bytes.Repeat([]byte{1}, keySize), bytes.Repeat([]byte{2}, keySize)
	before, during, after := keyring{old}, keyring{fresh, old}, keyring{fresh}
	token := before.seal([]byte("x"), []byte("b"))
	_, ok := during.unseal(token, []byte("b"))
	assert.True(t, ok)
	_, ok = after.unseal(token, []byte("b"))
	assert.False(t, ok)
	var id eventID
	assert.True(t, during.open(purposeEvent, before.sign(purposeEvent, eventID{Exchange: "e"}), &id))
	assert.Equal(t, "e", id.Exchange)
	assert.False(t, after.open(purposeEvent, before.sign(purposeEvent, eventID{}), &id))
	assert.False(t, before.open(purposeQuestion, before.sign(purposeEvent, eventID{}), &id), "signed for something else")
}

func TestUndeclaredCapabilities(t *testing.T) {
	cases := []struct{ requests, declared, want string }{
		{`{"a":{"method":"elicitation/create","params":{}}}`, `{"elicitation":{}}`, `{}`},
		{`{"a":{"method":"elicitation/create","params":{"mode":"form"}}}`, `{"elicitation":{"form":{}}}`, `{}`},
		{`{"a":{"method":"elicitation/create","params":{"mode":"form"}}}`, `{"elicitation":{"url":{}}}`, `{"elicitation":{"form":{}}}`},
		{`{"a":{"method":"elicitation/create","params":{"mode":"url"}}}`, `{"elicitation":{}}`, `{"elicitation":{"url":{}}}`},
		{`{"a":{"method":"elicitation/create","params":{"mode":"url"}}}`, `{"elicitation":{"url":{}}}`, `{}`},
		{`{"a":{"method":"sampling/createMessage","params":{}}}`, `{}`, `{"sampling":{}}`},
		{`{"a":{"method":"sampling/createMessage","params":{"tools":[]}}}`, `{"sampling":{}}`, `{"sampling":{"tools":{}}}`},
		{`{"a":{"method":"sampling/createMessage","params":{"tools":[]}}}`, `{"sampling":{"tools":{}}}`, `{}`},
		{`{"a":{"method":"roots/list"},"b":{"method":"elicitation/create"}}`, `{}`, `{"roots":{},"elicitation":{"form":{}}}`},
		{`{"a":{"method":"roots/list"}}`, `{"roots":{}}`, `{}`},
	}
	for _, c := range cases {
		got := undeclared(json.RawMessage(c.requests), json.RawMessage(c.declared))
		assert.JSONEq(t, c.want, string(encode(got)), "%s with %s", c.requests, c.declared)
	}
}
