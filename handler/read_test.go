package handler

import (
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/store/memory"
)

func TestReadKeepsBytes(t *testing.T) {
	h := New(testServer(), memory.New(), nil)
	msgs, batch, f := h.read([]byte("\xef\xbb\xbf" + ` {"jsonrpc":"2.0", "id" : 9007199254740993 ,"method":"tools/call",` +
		`"params":{ "name":"x","arguments":{"n":1e400},"_meta":{"progressToken":0}},"extra":[1]} `))
	require.Nil(t, f)
	assert.False(t, batch)
	m := msgs[0]
	assert.Equal(t, aRequest, m.kind)
	assert.Equal(t, "9007199254740993", string(m.id))
	assert.Equal(t, "tools/call", m.method)
	assert.Equal(t, `{ "name":"x","arguments":{"n":1e400},"_meta":{"progressToken":0}}`, string(m.params))
	assert.Equal(t, `{"progressToken":0}`, string(m.meta))
}

func TestReadRefuses(t *testing.T) {
	h := New(testServer(), memory.New(), &Options{MaxDepth: 8, MaxBatch: 2})
	const parse, invalid = -32700, -32600
	cases := []struct {
		name, body string
		code       int64
		id         string
	}{
		{"nothing", ``, parse, ""},
		{"no JSON", `{`, parse, ""},
		{"two values", `{"jsonrpc":"2.0","method":"a"} {}`, parse, ""},
		{"no UTF-8", "{\"jsonrpc\":\"2.0\",\"method\":\"\xff\"}", parse, ""},
		{"too deep", `{"jsonrpc":"2.0","id":1,"method":"a","params":{"a":` + strings.Repeat("[", 8) + strings.Repeat("]", 8) + `}}`, parse, ""},
		{"a string", `"x"`, invalid, ""},
		{"null", `null`, invalid, ""},
		{"no version", `{"id":1,"method":"a"}`, invalid, "1"},
		{"another version", `{"jsonrpc":"1.0","id":1,"method":"a"}`, invalid, "1"},
		{"null id", `{"jsonrpc":"2.0","id":null,"method":"a"}`, invalid, ""},
		{"fractional id", `{"jsonrpc":"2.0","id":1.5,"method":"a"}`, invalid, ""},
		{"exponent id", `{"jsonrpc":"2.0","id":1e3,"method":"a"}`, invalid, ""},
		{"object id", `{"jsonrpc":"2.0","id":{},"method":"a"}`, invalid, ""},
		{"long id", `{"jsonrpc":"2.0","id":"` + strings.Repeat("x", 300) + `","method":"a"}`, invalid, ""},
		{"method of another type", `{"jsonrpc":"2.0","id":7,"method":42}`, invalid, "7"},
		{"empty method", `{"jsonrpc":"2.0","id":7,"method":""}`, invalid, "7"},
		{"positional params", `{"jsonrpc":"2.0","id":7,"method":"a","params":[]}`, invalid, "7"},
		{"params of another type", `{"jsonrpc":"2.0","id":7,"method":"a","params":"x"}`, invalid, "7"},
		{"_meta of another type", `{"jsonrpc":"2.0","id":7,"method":"a","params":{"_meta":[]}}`, invalid, "7"},
		{"progress token of another type", `{"jsonrpc":"2.0","id":7,"method":"a","params":{"_meta":{"progressToken":1.5}}}`, invalid, "7"},
		{"key twice", `{"jsonrpc":"2.0","id":7,"method":"a","method":"b"}`, invalid, "7"},
		{"key in another case", `{"jsonrpc":"2.0","id":7,"method":"a","Method":"b"}`, invalid, "7"},
		{"param twice", `{"jsonrpc":"2.0","id":7,"method":"a","params":{"name":"a","name":"b"}}`, invalid, "7"},
		{"param in another case", `{"jsonrpc":"2.0","id":7,"method":"a","params":{"Name":"a"}}`, invalid, "7"},
		{"_meta key in another case", `{"jsonrpc":"2.0","id":7,"method":"a","params":{"_meta":{"IO.modelcontextprotocol/protocolVersion":"x"}}}`, invalid, "7"},
		{"key twice before the id", `{"jsonrpc":"2.0","method":"a","method":"b","id":7}`, invalid, "7"},
		{"neither", `{"jsonrpc":"2.0"}`, invalid, ""},
		{"response without outcome", `{"jsonrpc":"2.0","id":7}`, invalid, "7"},
		{"response with both", `{"jsonrpc":"2.0","id":7,"result":{},"error":{}}`, invalid, "7"},
		{"request with a result", `{"jsonrpc":"2.0","id":7,"method":"a","result":{}}`, invalid, "7"},
		{"error of another type", `{"jsonrpc":"2.0","id":7,"error":"x"}`, invalid, "7"},
		{"empty batch", `[]`, invalid, ""},
		{"large batch", `[{"jsonrpc":"2.0","method":"a"},{"jsonrpc":"2.0","method":"a"},{"jsonrpc":"2.0","method":"a"}]`, invalid, ""},
		{"bad message in a batch", `[{"jsonrpc":"2.0","method":"a"},1]`, invalid, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			msgs, _, f := h.read([]byte(c.body))
			require.NotNil(t, f)
			assert.Equal(t, c.code, f.code)
			assert.Equal(t, 400, f.status)
			if len(msgs) == 1 {
				assert.Equal(t, c.id, string(msgs[0].id))
			} else {
				assert.Empty(t, c.id)
			}
		})
	}
}

// What is refused for its number is not held first.
func TestMuchIsRefusedWithLittleMemory(t *testing.T) {
	const size, most = 4 << 20, 20 << 20
	h := New(testServer(), memory.New(), nil)
	fill := func(format string) string {
		var b strings.Builder
		for n := 0; b.Len() < size-100; n++ {
			fmt.Fprintf(&b, format+",", n)
		}
		return strings.TrimSuffix(b.String(), ",")
	}
	keys, escaped := `{`+fill(`"%06x":1`)+`}`, `{`+fill(`"\u0061%06x":1`)+`}`
	message := `{"jsonrpc":"2.0","id":1,"method":"a","params":`
	bodies := map[string]string{
		"batch": `[` + fill(`%d`) + `]`, "batch of objects": `[` + fill(`{"%d":1}`) + `]`,
		"message": keys, "params": message + keys + `}`, "escaped keys": message + escaped + `}`,
		"_meta": message + `{"_meta":` + keys + `}}`,
	}
	for name, body := range bodies {
		body := []byte(body)
		assert.Less(t, allocated(func() {
			_, _, f := h.read(body)
			assert.NotNil(t, f, name)
		}), uint64(most), name)
	}
	x := &exchange{request: &request{h: h, http: &http.Request{Header: http.Header{headerParam + "Region": {"eu"}}}}}
	schema := json.RawMessage(`{"properties":{"a":{},"b":{"type":"string"},"c":{},"region":{"x-mcp-header":"Region"}}}`)
	for _, arguments := range []string{keys, escaped} {
		arguments := json.RawMessage(arguments)
		assert.Less(t, allocated(func() { assert.NotNil(t, x.checkAnnotated(schema, arguments, "")) }), uint64(most), "arguments")
	}
	l := &listener{answer: &answer{request: &request{h: h}}}
	wanted := json.RawMessage(`{"resourceSubscriptions":[` + fill(`"%d"`) + `]}`)
	assert.Less(t, allocated(func() {
		_, _, f := l.want(wanted, json.RawMessage(`{"resources":{"subscribe":true}}`), nil)
		assert.NotNil(t, f)
	}), uint64(most), "subscriptions")
}

// allocated gives how many bytes are allocated meanwhile.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		initBody(version20251125, `{}`), initialized, `[` + listTools + `,` + pingBody + `]`,
		callBody(`"é"`, "echo", `{"a":[1,{"b":-0.0}],"a":"😀"}`),
		`{"jsonrpc":"2.0","id":-1,"error":{"code":1,"message":""}}`,
		`{"jsonrpc":"2.0","id":1,"method":"a","params":{"_meta":{"progressToken":"x"},"_meta":null}}`,
		"\xef\xbb\xbf{}", `{"ID":1}`, `[[[[[[`, `{"jsonrpc":"2.0","id":18446744073709551616,"method":"m"}`,
	} {
		f.Add([]byte(seed))
	}
	h := New(testServer(), memory.New(), nil)
	f.Fuzz(func(t *testing.T, body []byte) {
		msgs, _, failed := h.read(body)
		if failed != nil {
			require.GreaterOrEqual(t, failed.status, 400)
			require.True(t, json.Valid(failed.encode(nil)))
			return
		}
		require.NotEmpty(t, msgs)
		for _, m := range msgs {
			if m.kind != aNotification {
				require.NotEmpty(t, m.id)
				require.True(t, json.Valid(encodeResult(m.id, json.RawMessage(`{}`))))
			}
			for _, part := range []json.RawMessage{m.params, m.meta, m.result, m.err} {
				require.True(t, part == nil || json.Valid(part))
			}
			require.True(t, (m.kind == aResponse) == (m.method == ""))
		}
	})
}
