package handler

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hydrant-mcp/hydrant/internal/rawjson"
)

type kind int

const (
	aRequest kind = iota
	aNotification
	aResponse
)

// A message is one JSON-RPC message. Its parts are the bytes that the client sent.
type message struct {
	kind   kind
	id     json.RawMessage // of a request or a response; for an invalid message the id that could be read
	method string
	params json.RawMessage // nil when absent or null
	meta   json.RawMessage // params._meta; nil when absent or null
	result json.RawMessage // of a response
	err    json.RawMessage // of a response
}

// maxKeys bounds the keys of a message, of its params and of its _meta; arguments may have any number.
const maxKeys = 1000

// maxMethod bounds the name of a method, in bytes: on resumable streams it is stored.
const maxMethod = 256

// read takes a body apart: one message, or the messages of a batch. For a message that is invalid it gives what could be
// read, so that the error can carry the id.
func (h *Handler) read(body []byte) (msgs []message, batch bool, f *failure) {
	body = bytes.TrimPrefix(body, []byte("\xef\xbb\xbf")) // a byte order mark is no error (RFC 8259, section 8.1)
	if err := rawjson.Check(body, h.opts.MaxDepth); err != nil {
		return nil, false, errParse(err)
	}
	if !rawjson.IsArray(body) {
		m, err := readMessage(body, h.opts.MaxID)
		msgs = []message{m}
		if err != nil {
			return msgs, false, errInvalid("not a valid JSON-RPC message: %v", err)
		}
		return msgs, false, nil
	}
	elements := upTo(body, h.opts.MaxBatch)
	if len(elements) == 0 {
		return nil, true, errInvalid("the batch is empty")
	}
	if len(elements) > h.opts.MaxBatch {
		return nil, true, errInvalid("the batch has more than %d messages", h.opts.MaxBatch)
	}
	for _, e := range elements {
		m, err := readMessage(e, h.opts.MaxID)
		if err != nil {
			return nil, true, errInvalid("the batch holds what is not a valid JSON-RPC message: %v", err)
		}
		msgs = append(msgs, m)
	}
	return msgs, true, nil
}

// The keys that the protocol gives a meaning. A key that differs from one of them only in case is an error: whoever reads
// the message with a lenient decoder would see something else than we do.
var (
	messageKeys = []string{"jsonrpc", "id", "method", "params", "result", "error"}
	paramsKeys  = []string{
		"_meta", "name", "arguments", "uri", "cursor", "protocolVersion", "capabilities", "clientInfo", "level",
		"requestState", "inputResponses", "requestId", "progressToken", "ref", "argument", "notifications",
	}
	metaKeys = []string{"progressToken", metaVersion, metaCapabilities, metaClientInfo, metaLogLevel}
)

// readMessage takes a message apart. maxID bounds its ids, in bytes: they are echoed and, on resumable streams, stored.
func readMessage(raw json.RawMessage, maxID int) (m message, err error) {
	if !rawjson.IsObject(raw) {
		return m, errors.New("it is no object")
	}
	part, err := parts(raw, messageKeys)
	// The id first: an error about anything else can carry it then.
	id, hasID := part["id"]
	if hasID {
		if err := checkID("id", id, maxID); err != nil {
			return m, err
		}
		m.id = id
	}
	if err != nil {
		return m, err
	}
	if version, _ := rawjson.String(part["jsonrpc"]); version != "2.0" {
		return m, errors.New(`"jsonrpc" must be "2.0"`)
	}
	result, hasResult := part["result"]
	failed, hasError := part["error"]
	method, hasMethod := part["method"]
	if !hasMethod {
		switch {
		case !hasID:
			return m, errors.New(`it has neither "method" nor "id"`)
		case hasResult == hasError:
			return m, errors.New(`a response has either "result" or "error"`)
		case hasError && !rawjson.IsObject(failed):
			return m, errors.New(`"error" must be an object`)
		}
		m.kind, m.result, m.err = aResponse, result, failed
		return m, nil
	}
	if hasResult || hasError {
		return m, errors.New(`a request has no "result" or "error"`)
	}
	var ok bool
	if m.method, ok = rawjson.String(method); !ok || m.method == "" {
		return m, errors.New(`"method" must be a string, and not empty`)
	}
	if len(m.method) > maxMethod {
		return m, fmt.Errorf(`"method" is longer than %d bytes`, maxMethod)
	}
	if !hasID {
		m.kind = aNotification
	}
	if params, ok := part["params"]; ok && !rawjson.IsNull(params) {
		if !rawjson.IsObject(params) {
			return m, errors.New(`"params" must be an object`)
		}
		return m, m.readParams(params, maxID)
	}
	return m, nil
}

func (m *message) readParams(params json.RawMessage, maxID int) error {
	part, err := parts(params, paramsKeys)
	if err != nil {
		return err
	}
	meta, ok := part[metaKey]
	switch {
	case !ok:
	case rawjson.IsNull(meta):
		params = rawjson.Delete(params, metaKey)
	case !rawjson.IsObject(meta):
		return errors.New(`"_meta" must be an object`)
	default:
		m.meta = meta
		if part, err = parts(meta, metaKeys); err != nil {
			return err
		}
		if token, ok := part["progressToken"]; ok {
			if err := checkID("progressToken", token, maxID); err != nil {
				return err
			}
		}
	}
	m.params = params
	return nil
}

// parts takes an object apart. It refuses a key that comes twice, and one that is spelt like a known one but for its case;
// with that error come all parts all the same, for the id may be behind it. At maxKeys it stops.
func parts(object json.RawMessage, known []string) (part map[string]json.RawMessage, err error) {
	part = map[string]json.RawMessage{}
	n := 0
	for key, value := range rawjson.Members(object) {
		if n++; n > maxKeys {
			return part, fmt.Errorf("an object of the protocol's has more than %d keys", maxKeys)
		}
		if _, twice := part[key]; twice && err == nil {
			err = errors.New("a key comes twice: " + clip(key))
		}
		part[key] = value
		for _, k := range known {
			if key != k && err == nil && strings.EqualFold(key, k) {
				err = errors.New("keys are case-sensitive: " + clip(key) + " instead of " + k)
			}
		}
	}
	return part, err
}

// upTo gives the elements of an array, and of more than most only one more: what is refused for that is not held.
func upTo(array json.RawMessage, most int) (elements []json.RawMessage) {
	for e := range rawjson.Elements(array) {
		if elements = append(elements, e); len(elements) > most {
			break
		}
	}
	return elements
}

// checkID accepts what MCP does as the id of a request, or as a progress token: a string or an integer, and not null.
func checkID(name string, id json.RawMessage, maxID int) error {
	if !isToken(id) {
		return fmt.Errorf("%q must be a string or an integer", name)
	}
	if len(id) > maxID {
		return fmt.Errorf("%q is longer than %d bytes", name, maxID)
	}
	return nil
}

// isToken says whether a JSON value is a string or an integer written as digits.
func isToken(v json.RawMessage) bool {
	if rawjson.IsString(v) {
		return true
	}
	digits := bytes.TrimPrefix(v, []byte("-"))
	return len(digits) > 0 && !slices.ContainsFunc(digits, func(b byte) bool { return b < '0' || b > '9' })
}
