package handler

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"math"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/hydrant-mcp/hydrant/internal/rawjson"
)

// The headers and _meta keys of MCP's HTTP transport.
const (
	headerSession = "Mcp-Session-Id"
	headerVersion = "Mcp-Protocol-Version"
	headerMethod  = "Mcp-Method"
	headerName    = "Mcp-Name"
	headerParam   = "Mcp-Param-" // and the name that the tool's schema gives

	headerLastEvent = "Last-Event-Id"

	metaKey          = "_meta"
	metaVersion      = "io.modelcontextprotocol/protocolVersion"
	metaCapabilities = "io.modelcontextprotocol/clientCapabilities"
	metaClientInfo   = "io.modelcontextprotocol/clientInfo"
	metaLogLevel     = "io.modelcontextprotocol/logLevel"
	metaServerInfo   = "io.modelcontextprotocol/serverInfo"
	metaSubscription = "io.modelcontextprotocol/subscriptionId"
)

// nameKey is the param that the Mcp-Name header repeats, by method.
var nameKey = map[string]string{"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}

// one reads a header that must come at most once: two different readers could pick different ones.
func (q *request) one(header string) (string, *failure) {
	values := q.http.Header.Values(header)
	switch len(values) {
	case 0:
		return "", nil
	case 1:
		return values[0], nil
	}
	return "", errMismatch("the %s header comes %d times", header, len(values))
}

// checkHeaders compares the standard headers with the body (2026-07-28, basic/transports, standard MCP request headers):
// what routes by the headers must not see another message than the one that runs.
func (x *exchange) checkHeaders(ctx context.Context) *failure {
	method, f := x.one(headerMethod)
	if f != nil {
		return f
	}
	if method != x.msg.method {
		return errMismatch("the %s header is %q, the body's method is %q", headerMethod, clip(method), clip(x.msg.method))
	}
	key, named := nameKey[x.msg.method]
	if !named {
		return nil
	}
	raw, _ := rawjson.Get(x.msg.params, key)
	body, ok := rawjson.String(raw)
	if !ok {
		return errParams("params.%s must be a string", key)
	}
	header, f := x.one(headerName)
	if f != nil {
		return f
	}
	name, ok := decodeHeader(header)
	if !ok || header == "" || name != body {
		return errMismatch("the %s header does not say the same as params.%s in the body", headerName, key)
	}
	if x.msg.method == "tools/call" {
		return x.checkParamHeaders(ctx, name)
	}
	return nil
}

// annotation is the key under which a property's schema names the header that repeats its argument.
const annotation = `"x-mcp-header"`

// checkParamHeaders compares the Mcp-Param-* headers with the arguments that the tool's input schema annotates with
// x-mcp-header.
func (x *exchange) checkParamHeaders(ctx context.Context, tool string) *failure {
	schema, _, err := x.engine.ToolSchema(ctx, tool)
	if err != nil {
		return errCall(err, x.era.status)
	}
	if !bytes.Contains(schema, []byte(annotation)) {
		return nil
	}
	arguments, _ := rawjson.Get(x.msg.params, "arguments")
	return x.checkAnnotated(schema, arguments, "")
}

func (x *exchange) checkAnnotated(schema, arguments json.RawMessage, path string) *failure {
	properties, _ := rawjson.Get(schema, "properties")
	values := map[string]json.RawMessage{} // of the properties that are annotated, or have such inside; nil where there is none
	for key, property := range rawjson.Members(properties) {
		if bytes.Contains(property, []byte(annotation)) {
			values[key] = nil
		}
	}
	for key, value := range rawjson.Members(arguments) { // once: they may be large
		if _, ok := values[key]; ok {
			values[key] = value
		}
	}
	for key, property := range rawjson.Members(properties) {
		value, ok := values[key]
		if !ok {
			continue
		}
		header, _ := rawjson.Get(property, "x-mcp-header")
		if name, _ := rawjson.String(header); name != "" {
			if f := x.checkParam(headerParam+name, path+key, value, value != nil); f != nil {
				return f
			}
		}
		if f := x.checkAnnotated(property, value, path+key+"."); f != nil {
			return f
		}
	}
	return nil
}

func (x *exchange) checkParam(header, param string, value json.RawMessage, present bool) *failure {
	sent, f := x.one(header)
	if f != nil {
		return f
	}
	hasHeader := len(x.http.Header.Values(header)) > 0
	if !present || rawjson.IsNull(value) {
		if hasHeader {
			return errMismatch("there is a %s header, but no argument %s", header, clip(param))
		}
		return nil
	}
	decoded, ok := decodeHeader(sent)
	if !hasHeader || !ok || !sameValue(decoded, value) {
		return errMismatch("the %s header does not say the same as the argument %s", header, clip(param))
	}
	return nil
}

// sameValue compares a header with a JSON string, boolean or integer; nothing else can be in a header.
func sameValue(header string, value json.RawMessage) bool {
	if s, ok := rawjson.String(value); ok {
		return header == s
	}
	if v := string(value); v == "true" || v == "false" {
		return header == v
	}
	if !decimal.MatchString(header) {
		return false
	}
	a, errA := strconv.ParseFloat(header, 64)
	b, errB := strconv.ParseFloat(string(value), 64)
	const safe = 1<<53 - 1 // beyond it two different integers can be the same float
	return errA == nil && errB == nil && a == b && a == math.Trunc(a) && math.Abs(a) <= safe
}

// decimal is an integer as a header may write it.
var decimal = regexp.MustCompile(`^-?[0-9]+(\.0+)?$`)

const (
	base64Prefix = "=?base64?"
	base64Suffix = "?="
)

// decodeHeader undoes the encoding that a value takes which a header cannot hold as it is.
func decodeHeader(s string) (string, bool) {
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r > '~' }) {
		return "", false // would have to be encoded
	}
	encoded, ok := strings.CutPrefix(s, base64Prefix)
	if !ok {
		return s, true
	}
	if encoded, ok = strings.CutSuffix(encoded, base64Suffix); !ok {
		return s, true
	}
	decoded, err := base64.StdEncoding.DecodeString(encoded)
	return string(decoded), err == nil && utf8.Valid(decoded)
}
