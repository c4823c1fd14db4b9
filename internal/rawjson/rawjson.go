// Package rawjson reads and edits JSON without decoding it: what is not touched keeps its bytes, so that large integers,
// escapes and the order of keys survive.
//
// What it gives is right for valid JSON, see [Check]. In anything else it stops where it cannot go on: it neither panics nor
// goes on for ever.
package rawjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Errors of [Check].
var (
	ErrUTF8    = errors.New("not valid UTF-8")
	ErrDepth   = errors.New("nested too deeply")
	ErrInvalid = errors.New("not valid JSON")
)

// Check says whether b is one JSON value, in UTF-8, whose objects and arrays are nested at most maxDepth deep. It looks at
// the depth before anything recursive or allocating sees b.
func Check(b []byte, maxDepth int) error {
	if !utf8.Valid(b) {
		return ErrUTF8
	}
	depth, inString := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case inString:
			if c == '\\' {
				i++
			} else if c == '"' {
				inString = false
			}
		case c == '"':
			inString = true
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return ErrDepth
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	if !json.Valid(b) {
		return ErrInvalid
	}
	return nil
}

// IsObject says whether a valid JSON value is an object.
func IsObject(v json.RawMessage) bool { return first(v) == '{' }

// IsArray says whether a valid JSON value is an array.
func IsArray(v json.RawMessage) bool { return first(v) == '[' }

// IsString says whether a valid JSON value is a string.
func IsString(v json.RawMessage) bool { return first(v) == '"' }

// IsNull says whether a valid JSON value is null.
func IsNull(v json.RawMessage) bool { return first(v) == 'n' }

// IsEmpty says whether a valid JSON value has no members: it is {}, or no object.
func IsEmpty(v json.RawMessage) bool { return !IsObject(v) || at(v, inside(v)) == '}' }

func first(v json.RawMessage) byte { return at(v, skipSpace(v, 0)) }

// inside gives where the first member or element of an object or array is.
func inside(v json.RawMessage) int { return skipSpace(v, skipSpace(v, 0)+1) }

// Members gives the keys and values of an object in their order, repeated keys included. What is no object has none. It
// holds one at a time: who takes what a client has sent counts, and stops at a limit.
func Members(v json.RawMessage) iter.Seq2[string, json.RawMessage] {
	return func(yield func(string, json.RawMessage) bool) {
		for m := range members(v) {
			var room [64]byte
			if !yield(string(appendText(room[:0], m.quoted(v))), m.value(v)) {
				return
			}
		}
	}
}

// Elements gives the elements of an array, one at a time, see [Members]. What is no array has none.
func Elements(v json.RawMessage) iter.Seq[json.RawMessage] {
	return func(yield func(json.RawMessage) bool) {
		if !IsArray(v) {
			return
		}
		for i := inside(v); ; i = skipSpace(v, i+1) {
			start := i
			i = skipValue(v, start)
			if i == start || !yield(v[start:i:i]) {
				return
			}
			if i = skipSpace(v, i); at(v, i) != ',' {
				return
			}
		}
	}
}

// A member is where a key and its value are in an object.
type member struct{ keyStart, keyEnd, valueStart, end int }

// quoted gives the key as it is written.
func (m member) quoted(object json.RawMessage) []byte { return object[m.keyStart:m.keyEnd] }

func (m member) value(object json.RawMessage) json.RawMessage {
	return object[m.valueStart:m.end:m.end]
}

// is compares the key without keeping it: an object can have very many.
func (m member) is(key string, object json.RawMessage) bool {
	quoted := m.quoted(object)
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1:len(quoted)-1]) == key
	}
	var room [64]byte
	return string(appendText(room[:0], quoted)) == key
}

func members(v json.RawMessage) iter.Seq[member] {
	return func(yield func(member) bool) {
		if !IsObject(v) {
			return
		}
		for i := inside(v); at(v, i) == '"'; i = skipSpace(v, i+1) {
			m := member{keyStart: i, keyEnd: skipValue(v, i)}
			colon := skipSpace(v, m.keyEnd)
			if at(v, colon) != ':' {
				return
			}
			m.valueStart = skipSpace(v, colon+1)
			m.end = skipValue(v, m.valueStart)
			if m.end == m.valueStart || !yield(m) {
				return
			}
			if i = skipSpace(v, m.end); at(v, i) != ',' {
				return
			}
		}
	}
}

// Get gives the value of a key, the last one if it is repeated, as encoding/json does.
func Get(object json.RawMessage, key string) (value json.RawMessage, found bool) {
	for m := range members(object) {
		if m.is(key, object) {
			value, found = m.value(object), true
		}
	}
	return value, found
}

// Set gives a copy of an object in which key has the value; a new key comes first. What is no object (null, nothing)
// counts as an empty one.
func Set(object json.RawMessage, key string, value json.RawMessage) json.RawMessage {
	if !IsObject(object) {
		object = json.RawMessage("{}")
	}
	var out []byte
	last := 0
	for m := range members(object) {
		if m.is(key, object) {
			out = append(append(out, object[last:m.valueStart]...), value...)
			last = m.end
		}
	}
	if last > 0 {
		return append(out, object[last:]...)
	}
	open := skipSpace(object, 0) + 1
	quoted, _ := json.Marshal(key) // a string: cannot fail
	out = append(append(append(append(out, object[:open]...), quoted...), ':'), value...)
	if !IsEmpty(object) {
		out = append(out, ',')
	}
	return append(out, object[open:]...)
}

// Delete gives a copy of an object without some keys, or the object itself if it has none of them.
func Delete(object json.RawMessage, keys ...string) json.RawMessage {
	goes := func(m member) bool {
		return slices.ContainsFunc(keys, func(key string) bool { return m.is(key, object) })
	}
	some := false
	for m := range members(object) {
		some = some || goes(m)
	}
	if !some {
		return object
	}
	out := append(make([]byte, 0, len(object)), '{')
	for m := range members(object) {
		if goes(m) {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, object[m.keyStart:m.end]...)
	}
	return append(out, '}')
}

// String gives the value of a JSON string; ok is false for anything else.
func String(v json.RawMessage) (s string, ok bool) {
	if !IsString(v) {
		return "", false
	}
	return s, json.Unmarshal(v, &s) == nil
}

// appendText adds to dst what a string says that is given with its quotes. It makes no more garbage than that, which counts
// where a client sends a million keys.
func appendText(dst, quoted []byte) []byte {
	for s := quoted[1 : len(quoted)-1]; ; {
		i := bytes.IndexByte(s, '\\')
		if i < 0 {
			return append(dst, s...)
		}
		char, length := unescape(s[i:])
		dst, s = utf8.AppendRune(append(dst, s[:i]...), char), s[i+length:]
	}
}

// unescape gives what the escape sequence at the beginning of s says, and its length. Half a surrogate pair becomes U+FFFD
// when it is written, as with encoding/json.
func unescape(s []byte) (char rune, length int) {
	if unit := codeUnit(s); unit >= 0 {
		if pair := utf16.DecodeRune(unit, codeUnit(s[6:])); pair != utf8.RuneError {
			return pair, 12
		}
		return unit, 6
	}
	if i := strings.IndexByte("bfnrt", s[1]); i >= 0 {
		return rune("\b\f\n\r\t"[i]), 2
	}
	return rune(s[1]), 2
}

// codeUnit reads \uXXXX; it gives -1 where there is none.
func codeUnit(s []byte) rune {
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
		return -1
	}
	unit, err := strconv.ParseUint(string(s[2:6]), 16, 16)
	if err != nil {
		return -1
	}
	return rune(unit)
}

// at gives a byte, or 0 beyond the end.
func at(b []byte, i int) byte {
	if i < len(b) {
		return b[i]
	}
	return 0
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// skipValue gives the end of the value that starts at i: i itself where none does.
func skipValue(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			for i++; i < len(b) && b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
			i++
		case '{', '[':
			depth++
			i++
		case '}', ']':
			if depth == 0 {
				return i
			}
			depth--
			i++
		case ',', ':', ' ', '\n', '\t', '\r':
			if depth == 0 {
				return i
			}
			i++
			continue
		default: // a number or a literal
			for i++; i < len(b) && !endsLiteral(b[i]); i++ {
			}
		}
		if depth == 0 {
			break
		}
	}
	return min(i, len(b)) // a string without an end goes beyond
}

func endsLiteral(c byte) bool {
	switch c {
	case ',', ':', ']', '}', ' ', '\n', '\t', '\r':
		return true
	}
	return false
}
