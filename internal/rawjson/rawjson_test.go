package rawjson

import (
	"encoding/json"
	"iter"
	"maps"
	"slices"
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
	for key, value := range Members(object) {
		got = append(got, key+"="+string(value))
	}
	assert.Equal(t, []string{"a=9007199254740993", `bb=[1, {"x":"}"}]`, "c=-0.0", "a=null", `d="q\","`}, got)
	for _, none := range []string{`{}`, ` { } `, `[1]`, `"{"`, ``} {
		assert.True(t, IsEmpty(json.RawMessage(none)), none)
		assert.Empty(t, maps.Collect(Members(json.RawMessage(none))), none)
	}
	assert.False(t, IsEmpty(object))
	last, ok := Get(object, "a")
	assert.True(t, ok)
	assert.Equal(t, "null", string(last))
}

func TestElements(t *testing.T) {
	var got []string
	for e := range Elements(json.RawMessage(` [ 1 , "a,]" ,{"b":[2]},[] ,true] `)) {
		got = append(got, string(e))
	}
	assert.Equal(t, []string{"1", `"a,]"`, `{"b":[2]}`, "[]", "true"}, got)
	assert.Empty(t, slices.Collect(Elements(json.RawMessage(`[]`))))
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

// Keys are what encoding/json makes of them, however they are written.
func TestKeysAreDecoded(t *testing.T) {
	for _, quoted := range []string{
		`""`, `"é"`, `"\u00e9"`, `"\"\\\/\b\f\n\r\t"`, `"\ud83d\ude00"`, `"\ud83d"`, `"\ud83dx\ude00"`, `"\ud83d\u0041"`, `"\uD83D\uDE00\u0000"`,
	} {
		var want string
		require.NoError(t, json.Unmarshal([]byte(quoted), &want))
		object := json.RawMessage(`{` + quoted + `:1}`)
		assert.Equal(t, map[string]json.RawMessage{want: json.RawMessage(`1`)}, maps.Collect(Members(object)), quoted)
		_, ok := Get(object, want)
		assert.True(t, ok, quoted)
	}
}

// A walk holds nothing of what it passes: a client can send a million keys.
func TestWalksHoldNothing(t *testing.T) {
	object := json.RawMessage(`{` + strings.Repeat(`"k":1,"\u006b":[2,{}],`, 1000) + `"last":3}`)
	array := json.RawMessage(`[` + strings.Repeat(`1,`, 1000) + `2]`)
	for name, walk := range map[string]func(){
		"Get":      func() { Get(object, "last") },
		"Delete":   func() { Delete(object, "none", "at all") },
		"Elements": func() { count(Elements(array)) },
	} {
		assert.Less(t, testing.AllocsPerRun(10, walk), 10.0, name)
	}
	for range Members(object) {
		break // and it can be left
	}
}

func count[V any](all iter.Seq[V]) (n int) {
	for range all {
		n++
	}
	return n
}

// What is no JSON ends each function: no loop without an end, no panic.
func checkStops(t *testing.T, b []byte) {
	t.Helper()
	n := 0
	for range Elements(b) {
		n++
		require.LessOrEqual(t, n, len(b), "Elements goes on for ever")
	}
	n = 0
	keys := []string{"", "a"}
	for key := range Members(b) {
		n++
		require.LessOrEqual(t, n, len(b), "Members goes on for ever")
		keys[0] = key
	}
	for _, key := range keys {
		Get(b, key)
		Set(b, key, json.RawMessage(`7`))
		Delete(b, key)
	}
	String(b)
	_, _, _, _, _ = IsObject(b), IsArray(b), IsString(b), IsNull(b), IsEmpty(b)
}

// invalid is no JSON, in ways that a walk could fail at.
var invalid = []string{
	``, ` `, `[`, `[}`, `[]]`, `[,`, `[,,]`, `[:]`, `[1`, `[1 2]`, `["`, `["\`, `[{]`, `[[}`, `[1,}`, `]`, `{`, `{]`, `{"`, `{"a`, `{"a"`,
	`{"\`, `{"\"`, `{"a":`, `{"a":}`, `{"a":,}`, `{"a" 1}`, `{"a":1`, `{"a":1,`, `{"a":1,]`, `{"a":"`, `{"a":"\`, `{"a":{"b"`, `{1:2}`, `{"a"::1}`,
	`{"\u`, `{"\u":1}`, `{"\u12":1}`, `{"\u12G4":1}`, `{"\ud83d\u":1}`, `{"\x":1}`, "{\"\\\xff\":1}", `"`, `"\`, "\x00", `nul`, `:`, `,`,
}

func TestInvalidJSONStops(t *testing.T) {
	for _, b := range invalid {
		checkStops(t, []byte(b))
	}
}

func FuzzMembers(f *testing.F) {
	for _, s := range append(invalid, `{"a":1,"b":[{"c":"\""}]}`, ` {"x" : { } } `, `{"a":"\\","b":-1e9}`, `{"\ud83d\ude00\u0061\/":1}`) {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		checkStops(t, b)
		if Check(b, 50) != nil {
			return
		}
		if IsArray(b) {
			var want []json.RawMessage
			require.NoError(t, json.Unmarshal(b, &want))
			require.Equal(t, want, append([]json.RawMessage{}, slices.Collect(Elements(b))...))
		}
		if !IsObject(b) {
			return
		}
		var want map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(b, &want))
		got := maps.Collect(Members(b))
		require.Len(t, got, len(want))
		require.Equal(t, len(want) == 0, IsEmpty(b))
		for k, v := range want {
			require.Equal(t, string(v), string(got[k]))
			one, _ := Get(b, k)
			require.Equal(t, string(v), string(one))
			set := Set(b, k, json.RawMessage(`7`))
			require.True(t, json.Valid(set))
			without := Delete(b, k)
			require.True(t, json.Valid(without))
			_, ok := Get(without, k)
			require.False(t, ok)
		}
	})
}
