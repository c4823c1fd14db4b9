package main

import (
	"encoding/json"
	"maps"
	"net/http"
	"os"
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

func TestNoTableIsAClearError(t *testing.T) {
	_, err := newHandler(t.Context(), func(string) string { return "" })
	assert.ErrorContains(t, err, "HYDRANT_TABLE")
}

// Two environments of the function: one takes the note, the other finds it.
func TestAnswersTheEventsOfAFunctionURL(t *testing.T) {
	env := createTable(t, "notes-url")
	url := map[string]any{"domainName": "id.lambda-url.us-east-1.on.aws"}
	assert.Contains(t, callTool(t, env, url, "add_note", `{"text": "Buy milk."}`), "Kept as ")
	assert.Contains(t, callTool(t, env, url, "search_notes", `{"query": "milk"}`), "1 of 1 notes.")
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
	requestContext = maps.Clone(requestContext)
	requestContext["http"] = map[string]string{"method": "POST", "path": "/mcp", "protocol": "HTTP/1.1"}
	event, err := json.Marshal(map[string]any{
		"version": "2.0", "routeKey": "$default", "rawPath": "/mcp", "requestContext": requestContext,
		"headers": map[string]string{
			"content-type": "application/json", "accept": "application/json, text/event-stream",
			"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": tool,
			"authorization": "Bearer token",
		},
		"body": `{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
			"name": "` + tool + `", "arguments": ` + arguments + `,
			"_meta": {
				"io.modelcontextprotocol/protocolVersion": "2026-07-28",
				"io.modelcontextprotocol/clientCapabilities": {}}}}`,
	})
	require.NoError(t, err)
	h, err := newHandler(t.Context(), func(name string) string { return env[name] })
	require.NoError(t, err)
	answer, err := lambda.NewHandler(h).Invoke(t.Context(), event)
	require.NoError(t, err)
	var response struct {
		StatusCode int    `json:"statusCode"`
		Body       string `json:"body"`
	}
	require.NoError(t, json.Unmarshal(answer, &response), "%s", answer)
	return response.StatusCode, response.Body
}
