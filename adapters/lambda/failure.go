package lambda

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
)

// Codes of JSON-RPC.
const (
	codeParse    = -32700
	codeInternal = -32603
)

// A failure is what the adapter itself has to tell a client, as a JSON-RPC error. Nearly everything that goes wrong is
// the handler's to tell.
type failure struct {
	code    int
	message string
}

var (
	failureBody   = failure{codeParse, "the body of the event is not base64"}
	failureServer = failure{codeInternal, "the server failed"}
)

func failureSize(size, most int64) failure {
	return failure{codeInternal, fmt.Sprintf("the response has %d bytes as this runtime returns it; it can return %d",
		size, most)}
}

// writeFailure replaces a response by a failure, with the ids of the requests that body has, as far as they can be read.
// A header that is not about the body stays: the session id that comes with the answer to initialize. status is that of
// a request with an id; without one a success cannot be told from a failure, and it is 500.
func writeFailure(w http.ResponseWriter, status int, f failure, body []byte) {
	ids, batch := requestIDs(body)
	if len(ids) == 0 {
		ids, batch = []json.RawMessage{nil}, false
		if status == http.StatusOK {
			status = http.StatusInternalServerError
		}
	}
	messages := make([]json.RawMessage, len(ids))
	for i, id := range ids {
		messages[i] = f.encode(id)
	}
	text := []byte(messages[0])
	if batch {
		text = marshal(messages)
	}
	h := w.Header()
	contentType := "application/json"
	if h.Get("Content-Type") == "text/event-stream" { // the client takes nothing else
		contentType = "text/event-stream"
		text = bytes.Join([][]byte{[]byte("event: message\ndata: "), text, []byte("\n\n")}, nil)
	}
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "no-store")
	h.Del("Content-Encoding")
	h.Del("Etag")
	w.WriteHeader(status)
	_, _ = w.Write(text)
}

// encode gives the JSON-RPC error. Without an id the key is left out: MCP's schema knows no null there.
func (f failure) encode(id json.RawMessage) json.RawMessage {
	var out struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id,omitempty"`
		Error   struct {
			Code    int    `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	out.Version, out.ID, out.Error.Code, out.Error.Message = "2.0", id, f.code, f.message
	return marshal(out)
}

// requestIDs reads the ids of the requests in a body: a message or a batch.
func requestIDs(body []byte) (ids []json.RawMessage, batch bool) {
	type message struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	var messages []message
	if batch = bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("[")); batch {
		if json.Unmarshal(body, &messages) != nil {
			return nil, true
		}
	} else {
		messages = make([]message, 1)
		if json.Unmarshal(body, &messages[0]) != nil {
			return nil, false
		}
	}
	for _, m := range messages {
		if m.Method != "" && len(m.ID) > 0 && (m.ID[0] == '"' || m.ID[0] == '-' || m.ID[0] >= '0' && m.ID[0] <= '9') {
			ids = append(ids, m.ID)
		}
	}
	return ids, batch
}
