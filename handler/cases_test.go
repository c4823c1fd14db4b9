package handler

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/internal/rawjson"
)

// The tests of this file are faults that users of other MCP servers have met in the field, numbered as in docs/failures.md.
// What needs several processes is in test/.

func TestSESS1UnknownSessionIs404OnEveryMethod(t *testing.T) {
	modes(t, setup{}, func(t *testing.T, e *endpoint) {
		assert.Equal(t, 404, e.post(listTools, headerSession, "gone-0001").status)
		assert.Equal(t, 404, e.send("GET", "", headerSession, "gone-0001").status)
		assert.Equal(t, 404, e.send("DELETE", "", headerSession, "gone-0001").status)
	})
}

func TestSESS4GetWithADeadIDIs404(t *testing.T) {
	modes(t, setup{}, func(t *testing.T, e *endpoint) {
		r := e.send("GET", "", "Accept", "text/event-stream", headerSession, "gone-0003")
		assert.Equal(t, 404, r.status)
		assert.NotEmpty(t, r.body)
	})
}

func TestSESS6SecondInitializeLeavesTheFirstSessionAlone(t *testing.T) {
	modes(t, setup{}, func(t *testing.T, e *endpoint) {
		s := e.session(version20251125)
		again := s.initialize(version20250618, `{}`, headerSession, s.id)
		assert.NotEqual(t, s.id, again.id)
		assert.Contains(t, s.call("session", `{}`).text(), version20251125)
		assert.Contains(t, again.call("session", `{}`).text(), version20250618)
	})
}

func TestSESS7TheServerChoosesSessionIDs(t *testing.T) {
	modes(t, setup{}, func(t *testing.T, e *endpoint) {
		a := e.initialize(version20251125, `{}`, headerSession, "i-picked-this")
		b := e.initialize(version20251125, `{}`, headerSession, "i-picked-this")
		assert.NotEqual(t, a.id, b.id)
		assert.NotContains(t, []string{a.id, b.id}, "i-picked-this")
		assert.Equal(t, 404, e.post(listTools, headerSession, "i-picked-this").status)
	})
}

func TestSESS9DeleteNeedsNothingButTheSession(t *testing.T) {
	modes(t, setup{}, func(t *testing.T, e *endpoint) {
		s := e.session(version20251125)
		r := s.send("DELETE", "")
		assert.Equal(t, 204, r.status)
		assert.Empty(t, r.body)
		assert.Equal(t, 404, s.post(listTools).status)
	})
}

func TestSESS11InitializedMayNeverArrive(t *testing.T) {
	modes(t, setup{}, func(t *testing.T, e *endpoint) {
		s := e.initialize(version20251125, `{}`)
		assert.Equal(t, 400, e.post(initialized).status)
		assert.Equal(t, 200, s.post(listTools).status)
		assert.Equal(t, `{}`, s.call("echo", `{}`).text())
	})
}

func TestID17EqualIDsAtTheSameTime(t *testing.T) {
	modes(t, setup{}, func(t *testing.T, e *endpoint) {
		s := e.session(version20251125)
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				mark := fmt.Sprintf(`{"mark":"%d"}`, i)
				r := s.post(callBody("1", "echo", mark))
				assert.Equal(t, mark, r.text())
				assert.Equal(t, "1", r.id())
			})
		}
		wg.Wait()
	})
}

// echoed sends requests with ids in both eras, served and refused, and compares the ids of the answers.
func echoed(t *testing.T, ids ...string) {
	t.Helper()
	modes(t, setup{}, func(t *testing.T, e *endpoint) {
		s := e.session(version20251125)
		for _, id := range ids {
			for name, r := range map[string]reply{
				"ping":   e.post(`{"jsonrpc":"2.0","id":` + id + `,"method":"ping"}`),
				"legacy": s.post(callBody(id, "echo", `{}`)),
				"error":  s.post(`{"jsonrpc":"2.0","id":` + id + `,"method":"no/such"}`),
				"modern": e.post(`{"jsonrpc":"2.0","id":`+id+`,"method":"tools/list","params":{"_meta":{`+metaFields+`{}}}}`,
					headerVersion, version20260728, headerMethod, "tools/list"),
				"refused": e.post(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/list"}`),
			} {
				assert.Equal(t, id, r.id(), name)
			}
		}
	})
}

func TestID19AStringStaysAString(t *testing.T) {
	echoed(t, `"1"`, `1`, `"01"`, `""`, `"\u00e9"`, `"é"`, `"<&>"`)
}

func TestID21ZeroIsAnID(t *testing.T) { echoed(t, `0`, `-0`) }

func TestID22IntegersAreExactAndFractionsAreRefused(t *testing.T) {
	echoed(t, `-1`, `9007199254740993`, `-9007199254740993`, `9223372036854775807`, `123456789012345678901234567890`)
	modes(t, setup{}, func(t *testing.T, e *endpoint) {
		s := e.session(version20251125)
		for _, id := range []string{`1.5`, `null`, `[]`, `true`} {
			r := s.post(`{"jsonrpc":"2.0","id":` + id + `,"method":"ping"}`)
			assert.Equal(t, -32600, r.code(), id)
			assert.Equal(t, 400, r.status, id)
		}
	})
}

func TestNEGOT57AcceptIsMatchedAsMediaRanges(t *testing.T) {
	modes(t, setup{}, func(t *testing.T, e *endpoint) {
		for _, accept := range []string{"*/*", "application/*, text/*", "application/json;q=0.9, TEXT/EVENT-STREAM", "application/json", ""} {
			r := e.post(pingBody, "Accept", accept)
			assert.Equal(t, 200, r.status, accept)
			assert.Equal(t, "application/json", r.header.Get("Content-Type"), accept)
		}
		r := e.post(pingBody, "Accept", "application/json;q=0, text/event-stream")
		assert.Equal(t, "text/event-stream", r.header.Get("Content-Type"))
		assert.JSONEq(t, `{}`, string(r.result()))
		s := e.session(version20251125)
		r = s.call("progress", `{}`, "Accept", "application/json")
		assert.Equal(t, "application/json", r.header.Get("Content-Type"), "nothing else is taken, so progress has no way")
		assert.Equal(t, "done", r.text())
	})
}

func TestNEGOT59ContentTypeIsParsed(t *testing.T) {
	modes(t, setup{}, func(t *testing.T, e *endpoint) {
		assert.Equal(t, 200, e.post(pingBody, "Content-Type", `Application/JSON; charset="UTF-8"`).status)
		assert.Equal(t, 415, e.post(pingBody, "Content-Type", "application/json; charset=utf-16").status)
	})
}

func TestVERSION67InitializeNegotiates(t *testing.T) {
	modes(t, setup{}, func(t *testing.T, e *endpoint) {
		for _, proposed := range []string{"2099-01-01", "2024-11-05", "2026-07-28", "nonsense", ""} {
			for _, header := range []string{"", "2099-01-01", version20260728} {
				r := e.post(initBody(proposed, `{}`), headerVersion, header)
				assert.Equal(t, 200, r.status, r.body)
				version, _ := rawjson.Get(r.result(), "protocolVersion")
				assert.Equal(t, `"2025-11-25"`, string(version))
			}
		}
		for _, version := range legacyVersions {
			assert.Contains(t, e.post(initBody(version, `{}`)).body, `"protocolVersion":"`+version+`"`)
		}
	})
}

func TestVERSION69AModernHeaderOnALegacySession(t *testing.T) {
	modes(t, setup{}, func(t *testing.T, e *endpoint) {
		s := e.session(version20250618)
		r := s.post(listTools, headerVersion, version20260728)
		assert.Equal(t, 400, r.status)
		assert.Contains(t, r.errorMessage(), "initialize negotiated")
		assert.Equal(t, 200, s.post(listTools, headerVersion, version20251125).status, "another version that is served")
	})
}

func TestVERSION71HeaderAndMetaDisagree(t *testing.T) {
	modes(t, setup{}, func(t *testing.T, e *endpoint) {
		for header, meta := range map[string]string{version20251125: version20260728, version20260728: version20251125} {
			r := e.modernMeta("tools/call", `"name":"panic"`,
				`"io.modelcontextprotocol/protocolVersion":"`+meta+`","io.modelcontextprotocol/clientCapabilities":{}`, headerVersion, header)
			assert.Equal(t, 400, r.status)
			assert.Equal(t, mcp.CodeHeaderMismatch, r.code())
			assert.Empty(t, r.header.Get(headerSession))
		}
		assert.NotContains(t, e.log.String(), "boom", "the tool did not run")
	})
}

func TestVERSION72NamesAreCompared(t *testing.T) {
	modes(t, setup{}, func(t *testing.T, e *endpoint) {
		r := e.modernCall("panic", `{}`, headerName, "echo")
		assert.Equal(t, mcp.CodeHeaderMismatch, r.code())
		assert.NotContains(t, e.log.String(), "boom", "the tool did not run")
	})
}

func TestMSG76BatchesExistInOneVersionOnly(t *testing.T) {
	modes(t, setup{}, func(t *testing.T, e *endpoint) {
		for _, version := range []string{version20251125, version20250618} {
			s := e.session(version)
			r := s.post(`[` + callBody("1", "panic", `{}`) + `]`)
			assert.Equal(t, 400, r.status)
			assert.Equal(t, -32600, r.code())
			assert.Equal(t, 200, s.post(listTools).status)
		}
		assert.Equal(t, 400, e.post(`[`+initBody(version20250326, `{}`)+`]`).status)
		assert.Equal(t, 400, e.post(`[`+callBody("1", "panic", `{}`)+`]`, headerVersion, version20260728).status)
		assert.NotContains(t, e.log.String(), "boom", "nothing ran")

		s := e.session(version20250326)
		assert.Equal(t, 400, s.post(`[`+initBody(version20250326, `{}`)+`,`+pingBody+`]`).status)
		r := s.post(`[` + callBody(`"a"`, "echo", `{"n":9007199254740993}`) + `,` + initialized + `,` + pingBody +
			`,{"jsonrpc":"2.0","id":4,"method":"no/such"}]`)
		assert.Equal(t, 200, r.status)
		responses := slices.Collect(rawjson.Elements(json.RawMessage(r.body)))
		require.Len(t, responses, 3)
		assert.Contains(t, string(responses[0]), `"id":"a"`)
		assert.Contains(t, string(responses[0]), `9007199254740993`)
		assert.Contains(t, string(responses[1]), `"result":{}`)
		assert.Contains(t, string(responses[2]), `-32601`)

		r = s.post(`[` + initialized + `,{"jsonrpc":"2.0","id":"q","result":{}}]`)
		assert.Equal(t, 202, r.status)
		assert.Empty(t, r.body)

		token := `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"progress","_meta":{"progressToken":0}}}`
		r = s.post(`[` + pingBody + `,` + token + `]`)
		assert.Len(t, r.events, 5, "a stream: two responses, three notifications")
	})
}

func TestMSG77NotificationsAreAcknowledgedWith202(t *testing.T) {
	modes(t, setup{}, func(t *testing.T, e *endpoint) {
		s := e.initialize(version20251125, `{}`)
		for _, body := range []string{
			initialized,
			`{"jsonrpc":"2.0","method":"notifications/whatever"}`,
			`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}`,
			`{"jsonrpc":"2.0","id":"never-asked","result":{}}`,
			`{"jsonrpc":"2.0","id":"never-asked","error":{"code":-1,"message":"no"}}`,
		} {
			r := s.post(body)
			assert.Equal(t, 202, r.status, body)
			assert.Empty(t, r.body)
			assert.Empty(t, r.header.Get("Content-Type"))
		}
	})
}

func TestMSG79CancellingWhatDoesNotRun(t *testing.T) {
	modes(t, setup{}, func(t *testing.T, e *endpoint) {
		s := e.session(version20251125)
		for range 20 {
			assert.Equal(t, 202, s.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`).status)
			assert.Equal(t, 200, s.post(`{"jsonrpc":"2.0","id":7,"method":"ping"}`).status)
		}
		assert.Equal(t, `{"x":1}`, s.post(callBody("7", "echo", `{"x":1}`)).text())
	})
}

func TestMSG81PingNeedsNoSession(t *testing.T) {
	modes(t, setup{}, func(t *testing.T, e *endpoint) {
		s := e.initialize(version20251125, `{}`)
		for _, params := range []string{``, `,"params":null`, `,"params":{}`, `,"params":{"_meta":{}}`} {
			body := `{"jsonrpc":"2.0","id":4,"method":"ping"` + params + `}`
			assert.JSONEq(t, `{}`, string(e.post(body).result()), params)
			assert.JSONEq(t, `{}`, string(s.post(body).result()), params)
		}
	})
}

func TestMSG82RequestsBeforeInitialized(t *testing.T) {
	modes(t, setup{}, func(t *testing.T, e *endpoint) {
		s := e.initialize(version20251125, `{}`)
		assert.Equal(t, 200, s.post(`{"jsonrpc":"2.0","id":5,"method":"logging/setLevel","params":{"level":"info"}}`).status)
		assert.Equal(t, 200, s.post(listTools).status)
		assert.Equal(t, 202, s.post(initialized).status)
		assert.Len(t, notifications(s.call("log", `{}`)), 2)
	})
}

func TestJSON84NumbersAreExact(t *testing.T) {
	modes(t, setup{}, func(t *testing.T, e *endpoint) {
		const arguments = `{"n":9007199254740993,"m":-9223372036854775808,"f":1e400,"z":-0.0,"s":"\u00e9<"}`
		for _, r := range []reply{e.session(version20251125).call("echo", arguments), e.modernCall("echo", arguments)} {
			assert.Equal(t, arguments, r.text())
			structured, _ := rawjson.Get(r.result(), "structuredContent") // the SDK escapes the <
			assert.Equal(t, strings.Replace(arguments, "<", `\u003c`, 1), string(structured))
		}
	})
}

func TestJSON86DeepNesting(t *testing.T) {
	modes(t, setup{}, func(t *testing.T, e *endpoint) {
		s := e.session(version20251125)
		for _, arguments := range []string{
			strings.Repeat(`{"a":`, 5000) + "1" + strings.Repeat("}", 5000),
			`{"a":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + "}",
			`{"a":` + strings.Repeat("[", 100_000),
		} {
			r := s.call("echo", arguments)
			assert.Equal(t, 400, r.status)
			assert.Equal(t, -32700, r.code())
		}
		deepest := strings.Repeat(`{"a":`, defaultMaxDepth-2) + "1" + strings.Repeat("}", defaultMaxDepth-2)
		assert.Equal(t, deepest, s.call("echo", deepest).text())
		assert.Equal(t, 200, s.post(listTools).status)
	})
	// The deepest that can be allowed still passes through the SDK.
	e := open(t, setup{opts: Options{MaxDepth: maxMaxDepth}}, true)
	deepest := strings.Repeat(`{"a":`, maxMaxDepth-2) + "1" + strings.Repeat("}", maxMaxDepth-2)
	assert.Equal(t, deepest, e.modernMeta("tools/call", `"name":"echo","arguments":`+deepest, metaFields+`{}`, headerName, "echo").text())
}

func TestJSON87AByteOrderMark(t *testing.T) {
	modes(t, setup{}, func(t *testing.T, e *endpoint) {
		assert.Equal(t, 200, e.post("\xef\xbb\xbf"+pingBody).status)
		r := e.post(`{"jsonrpc":"2.0","id":7,"method":42}`)
		assert.Equal(t, -32600, r.code())
		assert.Equal(t, "7", r.id())
	})
}

func TestJSON89CharactersSplitOverReads(t *testing.T) {
	modes(t, setup{}, func(t *testing.T, e *endpoint) {
		s := e.session(version20251125)
		arguments := `{"s":"中文字 and 😀 done"}`
		body := callBody("1", "echo", arguments)
		in, out := io.Pipe()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, e.url, in)
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set(headerSession, s.id)
		go func() {
			for _, b := range []byte(body) {
				_, _ = out.Write([]byte{b}) // each byte is a chunk of its own
			}
			out.Close()
		}()
		assert.Equal(t, arguments, e.do(req).text())
	})
}

func TestJSON91ArgumentsThatAreNoObject(t *testing.T) {
	modes(t, setup{}, func(t *testing.T, e *endpoint) {
		s := e.session(version20251125)
		for _, params := range []string{`"name":"echo","arguments":null`, `"name":"echo"`} {
			assert.False(t, s.post(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{`+params+`}}`).isError())
			assert.Zero(t, e.modern("tools/call", params, `{}`).code())
		}
		for _, arguments := range []string{`[1]`, `"x"`, `5`, `true`} {
			r := s.call("echo", arguments)
			assert.Equal(t, -32602, r.code(), arguments)
			assert.Equal(t, 200, r.status)
			r = e.modernCall("echo", arguments)
			assert.Equal(t, -32602, r.code(), arguments)
			assert.Equal(t, 400, r.status)
		}
		assert.Equal(t, -32600, s.post(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[]}`).code())
	})
}

func TestJSON92MetaIsAlwaysAllowed(t *testing.T) {
	modes(t, setup{}, func(t *testing.T, e *endpoint) {
		for _, version := range legacyVersions {
			s := e.session(version)
			for _, meta := range []string{`{}`, `null`, `{"com.example/x":[1,null]}`, `{"progressToken":"p"}`} {
				r := s.post(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"params","_meta":` + meta + `}}`)
				assert.False(t, r.isError(), meta)
				if strings.Contains(meta, "com.example") {
					assert.Contains(t, r.text(), `"com.example/x":[1,null]`)
				}
			}
		}
	})
}

func TestJSON94ProgressTokensAreEchoedExactly(t *testing.T) {
	modes(t, setup{}, func(t *testing.T, e *endpoint) {
		s := e.session(version20251125)
		for _, token := range []string{`0`, `"0"`, `""`, `"7"`, `-1`, `9007199254740993`, `123456789012345678901234567890`} {
			for _, r := range []reply{
				s.post(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"progress","_meta":{"progressToken":` + token + `}}}`),
				e.modernMeta("tools/call", `"name":"progress"`, metaFields+`{},"progressToken":`+token),
			} {
				assert.Equal(t, "done", r.text())
				sent := notifications(r)
				require.Len(t, sent, 3)
				for i, n := range sent {
					params, _ := rawjson.Get(json.RawMessage(n), "params")
					got, _ := rawjson.Get(params, "progressToken")
					assert.Equal(t, token, string(got))
					progress, _ := rawjson.Get(params, "progress")
					assert.Equal(t, fmt.Sprint(i), string(progress), "in order")
				}
			}
		}
	})
}

func TestSSE37StreamsAreNotHeldUp(t *testing.T) {
	modes(t, setup{}, func(t *testing.T, e *endpoint) {
		r := e.session(version20251125).post(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"progress","_meta":{"progressToken":1}}}`,
			"Accept-Encoding", "gzip")
		assert.Equal(t, "no", r.header.Get("X-Accel-Buffering"))
		assert.Equal(t, "no-cache, no-transform", r.header.Get("Cache-Control"))
		assert.Empty(t, r.header.Get("Content-Encoding"))
	})
}

func TestSSE39DisconnectCancelsOnlyModernCalls(t *testing.T) {
	ended := make(chan error, 2)
	started := make(chan struct{}, 2)
	server := func() *mcp.Server {
		s := testServer()
		s.AddTool(&mcp.Tool{Name: "work", InputSchema: json.RawMessage(`{"type":"object"}`)}, workTool(started, ended))
		return s
	}
	e := open(t, setup{server: server}, true)
	legacyCall := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"work","arguments":{"ms":300}}}`
	modernBody := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"work","arguments":{"ms":30000},"_meta":{` + metaFields + `{}}}}`
	s := e.session(version20251125)
	e.dropped(started, legacyCall, headerSession, s.id)
	assert.NoError(t, <-ended, "legacy: it runs to its end")
	e.dropped(started, modernBody, headerVersion, version20260728, headerMethod, "tools/call", headerName, "work")
	select {
	case err := <-ended:
		assert.Error(t, err, "modern: it is cancelled")
	case <-time.After(10 * time.Second):
		t.Error("the modern call was not cancelled")
	}
}
