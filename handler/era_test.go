package handler

import (
	"encoding/json"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"

	"github.com/hydrant-mcp/hydrant/store/memory"
)

// TestTheTableOfErasIsTotal goes through every combination of the facts and holds the code against the table's prose.
func TestTheTableOfErasIsTotal(t *testing.T) {
	h := New(testServer(), memory.New(), nil)
	const otherLegacy, future = version20250618, "2099-01-01"
	headers := []string{"", version20251125, otherLegacy, version20260728, future}
	metas := []string{"", `"` + version20251125 + `"`, `"` + version20260728 + `"`, `"` + future + `"`, `7`}
	for _, batch := range []bool{false, true} {
		for _, kind := range []kind{aRequest, aNotification, aResponse} {
			for _, method := range []string{"initialize", "ping", "tools/list"} {
				for _, header := range headers {
					for _, meta := range metas {
						for _, session := range []bool{false, true} {
							f := facts{header: header, session: session, kind: kind, batch: batch, method: method}
							if meta != "" {
								f.meta = json.RawMessage(meta)
							}
							got, code := h.outcome(f)
							want, wantCode := expected(f, future)
							assert.Equal(t, want, got, "%+v meta %s", f, meta)
							assert.Equal(t, wantCode, code, "%+v meta %s", f, meta)
						}
					}
				}
			}
		}
	}
}

func (h *Handler) outcome(f facts) (string, int64) {
	e, failed := h.decide(f)
	if failed != nil {
		return "refused", failed.code
	}
	if _, ok := e.(modernEra); ok {
		return "modern", 0
	}
	return "legacy", 0
}

// expected is the table once more, written from docs/eras.md and not from the code.
func expected(f facts, future string) (string, int64) {
	const invalid, mismatch, version = -32600, mcp.CodeHeaderMismatch, mcp.CodeUnsupportedProtocolVersion
	isModern, isFuture := f.header == version20260728, f.header == future
	switch {
	case f.batch && isFuture:
		return "refused", version
	case f.batch && isModern:
		return "modern", 0
	case f.batch:
		return "legacy", 0
	}
	meta := string(f.meta)
	if f.kind == aRequest && f.method == "initialize" && meta != `"`+version20260728+`"` {
		return "legacy", 0
	}
	if f.kind == aRequest && len(meta) > 1 {
		same := `"`+f.header+`"` == meta
		switch {
		case meta == `"`+version20260728+`"` && same:
			return "modern", 0
		case meta == `"`+version20260728+`"`:
			return "refused", mismatch
		case !same && f.header != "":
			return "refused", mismatch
		case meta == `"`+future+`"`:
			return "refused", version
		}
		return "legacy", 0
	}
	switch {
	case (isModern || isFuture) && f.session:
		return "refused", invalid
	case isModern:
		return "modern", 0
	case isFuture:
		return "refused", version
	}
	return "legacy", 0
}

func TestVersionsThatAreNotServed(t *testing.T) {
	modes(t, setup{opts: Options{Versions: []string{version20260728}}, noStore: true}, func(t *testing.T, e *endpoint) {
		r := e.post(initBody(version20251125, `{}`))
		assert.Equal(t, 400, r.status)
		assert.Equal(t, mcp.CodeUnsupportedProtocolVersion, r.code())
		assert.Contains(t, r.body, `"supported":["2026-07-28"]`)
		assert.Equal(t, 200, e.modernCall("echo", `{}`).status)
		assert.Equal(t, 405, e.send("GET", "", headerSession, newSessionID()).status)
		discovered := e.modern("server/discover", "", `{}`)
		assert.Contains(t, discovered.body, `"supportedVersions":["2026-07-28"]`)
	})
	modes(t, setup{opts: Options{Versions: []string{version20250618, version20251125}}}, func(t *testing.T, e *endpoint) {
		r := e.modernCall("echo", `{}`)
		assert.Equal(t, 400, r.status)
		assert.Equal(t, mcp.CodeUnsupportedProtocolVersion, r.code())
		assert.Contains(t, r.body, `"supported":["2025-11-25","2025-06-18"]`)
		assert.Contains(t, e.post(initBody(version20250326, `{}`)).body, `"protocolVersion":"2025-11-25"`)
	})
}

func TestLegacyStateless(t *testing.T) {
	modes(t, setup{opts: Options{Legacy: LegacyStateless}, noStore: true}, func(t *testing.T, e *endpoint) {
		r := e.post(initBody(version20250618, `{}`))
		assert.Equal(t, 200, r.status, r.body)
		assert.Empty(t, r.header.Get(headerSession))
		assert.Contains(t, r.body, `"protocolVersion":"2025-06-18"`)
		assert.Equal(t, 202, e.post(initialized).status)
		assert.Equal(t, 202, e.post(`{"jsonrpc":"2.0","id":"q","result":{}}`).status)
		assert.Contains(t, e.post(listTools).body, `"echo"`)
		r = e.post(callBody("1", "session", `{}`), headerVersion, version20250618)
		assert.Contains(t, r.text(), `"version":"2025-06-18"`)
		assert.Equal(t, 200, e.post(`[`+listTools+`,`+pingBody+`]`).status)
		assert.Equal(t, 400, e.post(`[`+listTools+`]`, headerVersion, version20250618).status)
		for _, method := range []string{"GET", "DELETE"} {
			r := e.send(method, "", "Accept", "text/event-stream")
			assert.Equal(t, 405, r.status)
			assert.Equal(t, "POST", r.header.Get("Allow"))
		}
		assert.Equal(t, 200, e.modernCall("echo", `{}`).status)
		r = e.post(callBody("1", "ask", `{}`))
		assert.Contains(t, r.text(), "does not support elicitation", "at once, and not never")
	})
}
