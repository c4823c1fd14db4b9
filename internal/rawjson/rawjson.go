// Package rawjson reads and edits JSON without decoding it: what is not touched keeps its bytes, so that large integers,
// escapes and the order of keys survive.
package rawjson

import (
	"bytes"
	"encoding/json"
	"errors"
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

// A Member is one key and value of an object.
type Member struct {
	Key   string
	Value json.RawMessage // without space around it

	start, end int // of the member in the object, from the quote of its key to the end of its value
}

// IsObject says whether a valid JSON value is an object.
func IsObject(v json.RawMessage) bool { return first(v) == '{' }

// IsArray says whether a valid JSON value is an array.
func IsArray(v json.RawMessage) bool { return first(v) == '[' }

// IsString says whether a valid JSON value is a string.
func IsString(v json.RawMessage) bool { return first(v) == '"' }

// IsNull says whether a valid JSON value is null.
func IsNull(v json.RawMessage) bool { return first(v) == 'n' }

func first(v json.RawMessage) byte {
	if i := skipSpace(v, 0); i < len(v) {
		return v[i]
	}
	return 0
}

// Members gives the members of an object in their order, repeated keys included. v must be valid JSON, see [Check]; what
// is no object has no members.
func Members(v json.RawMessage) []Member {
	if !IsObject(v) {
		return nil
	}
	var all []Member
	for i := skipSpace(v, skipSpace(v, 0)+1); i < len(v) && v[i] == '"'; {
		start := i
		i = skipValue(v, i)
		key := v[start:i]
		i = skipSpace(v, i) + 1 // the colon
		i = skipSpace(v, i)
		value := i
		i = skipValue(v, i)
		all = append(all, Member{Key: unquote(key), Value: v[value:i:i], start: start, end: i})
		if i = skipSpace(v, i); i < len(v) && v[i] == ',' {
			i = skipSpace(v, i+1)
		}
	}
	return all
}

// Elements gives the elements of an array. v must be valid JSON; what is no array has none.
func Elements(v json.RawMessage) []json.RawMessage {
	if !IsArray(v) {
		return nil
	}
	var all []json.RawMessage
	for i := skipSpace(v, skipSpace(v, 0)+1); i < len(v) && v[i] != ']'; {
		start := i
		i = skipValue(v, i)
		all = append(all, v[start:i:i])
		if i = skipSpace(v, i); i < len(v) && v[i] == ',' {
			i = skipSpace(v, i+1)
		}
	}
	return all
}

// Get gives the value of a key, the last one if it is repeated, as encoding/json does.
func Get(object json.RawMessage, key string) (json.RawMessage, bool) {
	var value json.RawMessage
	found := false
	for _, m := range Members(object) {
		if m.Key == key {
			value, found = m.Value, true
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
	for _, m := range Members(object) {
		if m.Key != key {
			continue
		}
		valueStart := m.end - len(m.Value)
		out = append(append(out, object[last:valueStart]...), value...)
		last = m.end
	}
	if last > 0 {
		return append(out, object[last:]...)
	}
	open := skipSpace(object, 0) + 1
	quoted, _ := json.Marshal(key) // a string: cannot fail
	out = append(append(append(append(out, object[:open]...), quoted...), ':'), value...)
	if next := skipSpace(object, open); object[next] != '}' {
		out = append(out, ',')
	}
	return append(out, object[open:]...)
}

// Delete gives a copy of an object without some keys.
func Delete(object json.RawMessage, keys ...string) json.RawMessage {
	members := Members(object)
	kept := members[:0:0]
	for _, m := range members {
		if !contains(keys, m.Key) {
			kept = append(kept, m)
		}
	}
	if len(kept) == len(members) {
		return object
	}
	var out bytes.Buffer
	out.WriteByte('{')
	for i, m := range kept {
		if i > 0 {
			out.WriteByte(',')
		}
		out.Write(object[m.start:m.end])
	}
	out.WriteByte('}')
	return out.Bytes()
}

func contains(all []string, s string) bool {
	for _, a := range all {
		if a == s {
			return true
		}
	}
	return false
}

// String gives the value of a JSON string; ok is false for anything else.
func String(v json.RawMessage) (s string, ok bool) {
	if !IsString(v) {
		return "", false
	}
	return s, json.Unmarshal(v, &s) == nil
}

func unquote(key json.RawMessage) string {
	if bytes.IndexByte(key, '\\') < 0 {
		return string(key[1 : len(key)-1])
	}
	s, _ := String(key)
	return s
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// skipValue gives the end of the valid value that starts at i.
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
			for i++; i < len(b) && !bytes.ContainsRune([]byte(",:]} \n\t\r"), rune(b[i])); i++ {
			}
		}
		if depth == 0 {
			return i
		}
	}
	return i
}
