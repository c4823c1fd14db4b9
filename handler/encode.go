package handler

import (
	"bytes"
	"encoding/json"
)

// The messages that go out. What comes from the client or from the server goes in as it is: encoding/json would compact
// and escape it.

func encodeResult(id, result json.RawMessage) json.RawMessage {
	return concat([]byte(`{"jsonrpc":"2.0","id":`), id, []byte(`,"result":`), result, []byte(`}`))
}

func encodeNotification(method string, params json.RawMessage) json.RawMessage {
	if len(params) == 0 {
		return concat([]byte(`{"jsonrpc":"2.0","method":`), encode(method), []byte(`}`))
	}
	return concat([]byte(`{"jsonrpc":"2.0","method":`), encode(method), []byte(`,"params":`), params, []byte(`}`))
}

func encodeRequest(id json.RawMessage, method string, params json.RawMessage) json.RawMessage {
	head := concat([]byte(`{"jsonrpc":"2.0","id":`), id, []byte(`,"method":`), encode(method))
	if len(params) > 0 {
		head = concat(head, []byte(`,"params":`), params)
	}
	return append(head, '}')
}

// encode gives the JSON-RPC error. Without an id the key is left out: MCP's schema knows no null there.
func (f *failure) encode(id json.RawMessage) json.RawMessage {
	body := struct {
		Code    int64  `json:"code"`
		Message string `json:"message"`
		Data    any    `json:"data,omitempty"`
	}{f.code, f.message, f.data}
	raw := encode(body)
	if raw == nil { // data of the server's that is no JSON
		body.Data = nil
		raw = encode(body)
	}
	if id == nil || f.noID {
		return concat([]byte(`{"jsonrpc":"2.0","error":`), raw, []byte(`}`))
	}
	return concat([]byte(`{"jsonrpc":"2.0","id":`), id, []byte(`,"error":`), raw, []byte(`}`))
}

// encode gives a value's JSON, or nil if it has none.
func encode(v any) json.RawMessage {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if enc.Encode(v) != nil {
		return nil
	}
	return bytes.TrimRight(out.Bytes(), "\n")
}

func concat(parts ...[]byte) json.RawMessage { return bytes.Join(parts, nil) }
