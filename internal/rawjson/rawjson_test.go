package rawjson

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCheck(t *testing.T) {
	assert.NoError(t, Check([]byte(` {"a":[1,"}]\"",{}]} `), 3))
	assert.ErrorIs(t, Check([]byte(`{"a":[[1]]}`), 2), ErrDepth)
	assert.ErrorIs(t, Check([]byte("\"\xff\""), 2), ErrUTF8)
	for _, bad := range []string{``, `{`, `{"a":1}{}`, `{"a":1,}`, `nul`, `]`, `"\`} {
		assert.ErrorIs(t, Check([]byte(bad), 9), ErrInvalid, bad)
	}
	assert.ErrorIs(t, Check([]byte(strings.Repeat("[", 1_000_000)), 100), ErrDepth)
}

func TestMembersKeepBytes(t *testing.T) {
	object := json.RawMessage(` { "a" : 9007199254740993 , "b\u0062":[1, {"x":"}"}] ,"c":-0.0,"a":null,"d":"q\"," } `)
	var got []string
	for _, m := range Members(object) {
		got = append(got, m.Key+"="+string(m.Value))
	}
	assert.Equal(t, []string{"a=9007199254740993", `bb=[1, {"x":"}"}]`, "c=-0.0", "a=null", `d="q\","`}, got)
	assert.Empty(t, Members(json.RawMessage(`{}`)))
	assert.Empty(t, Members(json.RawMessage(`[1]`)))
	last, ok := Get(object, "a")
	assert.True(t, ok)
	assert.Equal(t, "null", string(last))
}

func TestElements(t *testing.T) {
	var got []string
	for _, e := range Elements(json.RawMessage(` [ 1 , "a,]" ,{"b":[2]},[] ,true] `)) {
		got = append(got, string(e))
	}
	assert.Equal(t, []string{"1", `"a,]"`, `{"b":[2]}`, "[]", "true"}, got)
	assert.Empty(t, Elements(json.RawMessage(`[]`)))
}

func TestSetAndDelete(t *testing.T) {
	cases := []struct{ in, key, value, want string }{
		{`{"a":1,"b":2}`, "b", `"x"`, `{"a":1,"b":"x"}`},
		{`{"a":1}`, "n", `2`, `{"n":2,"a":1}`},
		{`{}`, "n", `2`, `{"n":2}`},
		{` { "a" : 1 } `, "a", `[3]`, ` { "a" : [3] } `},
		{`null`, "n", `2`, `{"n":2}`},
		{``, "n", `2`, `{"n":2}`},
	}
	for _, c := range cases {
		assert.Equal(t, c.want, string(Set(json.RawMessage(c.in), c.key, json.RawMessage(c.value))), c.in)
	}
	assert.Equal(t, `{"b": 2}`, string(Delete(json.RawMessage(`{"a":1,"b": 2,"c":3}`), "a", "c")))
	assert.Equal(t, `{}`, string(Delete(json.RawMessage(`{"a":1}`), "a")))
	assert.Equal(t, `{"a":1}`, string(Delete(json.RawMessage(`{"a":1}`), "b")))
}

func FuzzMembers(f *testing.F) {
	for _, s := range []string{`{"a":1,"b":[{"c":"\""}]}`, ` {"x" : { } } `, `{"a":"\\","b":-1e9}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if Check(b, 50) != nil || !IsObject(b) {
			return
		}
		var want map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(b, &want))
		got := map[string]json.RawMessage{}
		for _, m := range Members(b) {
			got[m.Key] = m.Value
		}
		require.Len(t, got, len(want))
		for k, v := range want {
			require.Equal(t, string(v), string(got[k]))
			set := Set(b, k, json.RawMessage(`7`))
			require.True(t, json.Valid(set))
			require.True(t, json.Valid(Delete(b, k)))
		}
	})
}
