package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/adapters/lambda"
	"github.com/hydrant-mcp/hydrant/internal/emulator"
	"github.com/hydrant-mcp/hydrant/store/dynamo"
)

func TestMain(m *testing.M) { os.Exit(emulator.Main(m)) }

// functionURL is the request context of a front door that streams.
var functionURL = map[string]any{
	"apiId": "id", "domainName": "id.lambda-url.us-east-1.on.aws",
}

func TestNoTableIsAClearError(t *testing.T) {
	_, err := newHandler(t.Context(), func(string) string { return "" })
	assert.ErrorContains(t, err, "HYDRANT_TABLE")
}

// Two environments of the function: one takes the note, the other finds it.
func TestAnswersTheEventsOfAFunctionURL(t *testing.T) {
	env := createTable(t, "notes-url")
	assert.Contains(t, callTool(t, env, functionURL, "add_note", `{"text": "Buy milk."}`), "Kept as ")
	assert.Contains(t, callTool(t, env, functionURL, "search_notes", `{"query": "milk"}`), "1 of 1 notes.")
}

func TestNotesBelongToTheSubjectThatTheGatewayHasChecked(t *testing.T) {
	env := createTable(t, "notes-jwt")
	env["NOTES_AUTH"] = "JWT"
	of := func(subject string) map[string]any {
		return map[string]any{"authorizer": map[string]any{"jwt": map[string]any{
			"claims": map[string]string{"iss": "https://issuer.example", "sub": subject}, "scopes": nil,
		}}}
	}
	assert.Contains(t, callTool(t, env, of("ann"), "add_note", `{"text": "Buy milk."}`), "Kept as ")
	assert.Contains(t, callTool(t, env, of("ann"), "search_notes", `{}`), "1 of 1 notes.")
	assert.Contains(t, callTool(t, env, of("bob"), "search_notes", `{}`), "0 of 0 notes.")

	status, _ := post(t, env, map[string]any{}, "search_notes", `{}`)
	assert.Equal(t, http.StatusUnauthorized, status, "nobody has checked the token")
}

// A client of an older version opens a stream for announcements right after the handshake, and keeps it.
func TestNoInvocationWaitsForAnnouncements(t *testing.T) {
	env := createTable(t, "notes-idle")
	call := func(method string, header map[string]string, body string) response {
		return invoke(t, env, functionURL, method, header, body)
	}
	header := map[string]string{
		"content-type": "application/json", "accept": "application/json, text/event-stream",
	}
	response := call("POST", header, `{"jsonrpc": "2.0", "id": 1, "method": "initialize",
		"params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}}`)
	require.Equal(t, http.StatusOK, response.StatusCode, response.Body)
	assert.NotContains(t, response.Body, `"listChanged":true`)
	for name, value := range response.Headers {
		if strings.EqualFold(name, "Mcp-Session-Id") {
			header["mcp-session-id"] = value
		}
	}
	require.Contains(t, header, "mcp-session-id")
	header["mcp-protocol-version"] = "2025-11-25"
	assert.Equal(t, http.StatusMethodNotAllowed, call("GET", header, "").StatusCode)
	header["last-event-id"] = "nonsense"
	assert.NotEqual(t, http.StatusMethodNotAllowed, call("GET", header, "").StatusCode)
}

// createTable makes a table on the emulator, and gives the environment of a function that uses it.
func createTable(t *testing.T, table string) map[string]string {
	t.Helper()
	t.Setenv("AWS_ENDPOINT_URL_DYNAMODB", emulator.DynamoDBForTest(t))
	t.Setenv("AWS_REGION", "us-east-1")
	t.Setenv("AWS_ACCESS_KEY_ID", "local")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "local")
	cfg, err := config.LoadDefaultConfig(t.Context())
	require.NoError(t, err)
	require.NoError(t, dynamo.CreateTable(t.Context(), dynamodb.NewFromConfig(cfg), table))
	return map[string]string{"HYDRANT_TABLE": table}
}

func callTool(t *testing.T, env map[string]string, requestContext map[string]any, tool, arguments string) string {
	t.Helper()
	status, body := post(t, env, requestContext, tool, arguments)
	require.Equal(t, http.StatusOK, status, body)
	return body
}

// post calls a tool in a new environment of the function.
func post(
	t *testing.T, env map[string]string, requestContext map[string]any, tool, arguments string,
) (status int, body string) {
	t.Helper()
	response := invoke(t, env, requestContext, "POST", map[string]string{
		"content-type": "application/json", "accept": "application/json, text/event-stream",
		"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": tool,
		"authorization": "Bearer token",
	}, `{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
		"name": "`+tool+`", "arguments": `+arguments+`,
		"_meta": {
			"io.modelcontextprotocol/protocolVersion": "2026-07-28",
			"io.modelcontextprotocol/clientCapabilities": {}}}}`)
	return response.StatusCode, response.Body
}

type response struct {
	StatusCode int               `json:"statusCode"`
	Headers    map[string]string `json:"headers"`
	Body       string            `json:"body"`
}

// invoke sends an event to a new environment of the function, and takes the answer from its stream: a head in JSON, eight
// zero bytes, the body.
func invoke(
	t *testing.T, env map[string]string, requestContext map[string]any, method string, header map[string]string, body string,
) (r response) {
	t.Helper()
	requestContext = maps.Clone(requestContext)
	requestContext["http"] = map[string]string{"method": method, "path": "/mcp", "protocol": "HTTP/1.1"}
	event, err := json.Marshal(map[string]any{
		"version": "2.0", "routeKey": "$default", "rawPath": "/mcp", "requestContext": requestContext,
		"headers": header, "body": body,
	})
	require.NoError(t, err)
	h, err := newHandler(t.Context(), func(name string) string { return env[name] })
	require.NoError(t, err)
	answer, err := lambda.NewHandler(h, lambda.WithStreaming()).Invoke(t.Context(), event)
	require.NoError(t, err)
	head, streamed, isStream := bytes.Cut(answer, make([]byte, 8))
	require.NoError(t, json.Unmarshal(head, &r), "%s", answer)
	if isStream {
		r.Body = string(streamed)
	}
	return r
}
