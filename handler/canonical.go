package handler

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"strings"

	"github.com/hydrant-mcp/hydrant/internal/rawjson"
)

// canonical gives JSON a form that does not depend on how a client writes it: clients parse arguments and write them anew.
// Integers keep their digits, so that two that are the same float64 are not the same. No arguments are the same as empty
// ones. What has a key twice stays as it is: decoders differ in what they make of it, and encoding/json merges both values.
func canonical(v json.RawMessage) []byte {
	if len(v) == 0 || rawjson.IsNull(v) {
		return []byte("{}")
	}
	d := json.NewDecoder(bytes.NewReader(v))
	d.UseNumber()
	var decoded any
	if d.Decode(&decoded) != nil || members(decoded) < colons(v) {
		return v
	}
	return encode(uniform(decoded)) // sorts the keys
}

// members counts the members of all objects in a decoded value.
func members(v any) (n int) {
	switch v := v.(type) {
	case map[string]any:
		n = len(v)
		for _, e := range v {
			n += members(e)
		}
	case []any:
		for _, e := range v {
			n += members(e)
		}
	}
	return n
}

// colons counts them in JSON, where each has one colon outside of strings.
func colons(v json.RawMessage) (n int) {
	inString := false
	for i := 0; i < len(v); i++ {
		switch {
		case v[i] == '"':
			inString = !inString
		case v[i] == '\\' && inString:
			i++
		case v[i] == ':' && !inString:
			n++
		}
	}
	return n
}

// uniform writes the numbers of a decoded value in one way: 1.0 and 1e0 are 1.
func uniform(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			v[k] = uniform(e)
		}
	case []any:
		for i, e := range v {
			v[i] = uniform(e)
		}
	case json.Number:
		if f, err := v.Float64(); err == nil && strings.ContainsAny(string(v), ".eE") {
			const safe = 1 << 53
			if f == math.Trunc(f) && math.Abs(f) < safe {
				return json.Number(strconv.FormatInt(int64(f), 10))
			}
			return f
		}
	}
	return v
}
