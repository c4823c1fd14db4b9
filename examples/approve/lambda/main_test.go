package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/modelcontextprotocol/go-sdk/mcp"
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

// Each message is an invocation in an environment of its own; the question outlives the one that asked it.
func TestAPersonIsAskedWhileNoFunctionRuns(t *testing.T) {
	env := createTable(t, "approve")
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(version, func(t *testing.T) {
			front := frontDoor(t, env)
			asked := 0
			client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
				ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
					asked++
					return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"reason": "damaged"}}, nil
				},
			})
			session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: front},
				&mcp.ClientSessionOptions{ProtocolVersion: version})
			require.NoError(t, err)
			result, err := session.CallTool(t.Context(), &mcp.CallToolParams{
				Name: "refund", Arguments: map[string]any{"order": "A-17", "cents": 1250},
			})
			require.NoError(t, err)
			assert.Contains(t, result.Content[0].(*mcp.TextContent).Text, "Paid 12.50 back")
			assert.Equal(t, 1, asked)
			assert.NoError(t, session.Close())
		})
	}
}

// frontDoor turns requests into the events of an HTTP API, each for a new environment of the function.
func frontDoor(t *testing.T, env map[string]string) (url string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		header := map[string]string{}
		for name := range r.Header {
			header[strings.ToLower(name)] = r.Header.Get(name)
		}
		event, err := json.Marshal(map[string]any{
			"version": "2.0", "routeKey": "$default", "rawPath": "/mcp", "headers": header, "body": string(body),
			"requestContext": map[string]any{
				"http": map[string]string{"method": r.Method, "path": "/mcp", "protocol": "HTTP/1.1"},
			},
		})
		assert.NoError(t, err)
		h, err := newHandler(r.Context(), func(name string) string { return env[name] })
		assert.NoError(t, err)
		answer, err := lambda.NewHandler(h).Invoke(r.Context(), event)
		assert.NoError(t, err)
		var response struct {
			StatusCode int
			Headers    map[string]string
			Body       string
		}
		assert.NoError(t, json.Unmarshal(answer, &response))
		for name, value := range response.Headers {
			w.Header().Set(name, value)
		}
		w.WriteHeader(response.StatusCode)
		_, err = io.WriteString(w, response.Body)
		assert.NoError(t, err)
	}))
	t.Cleanup(server.Close)
	return server.URL + "/mcp"
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
