package main

import (
	"crypto/rand"
	"os"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/internal/emulator"
	"github.com/hydrant-mcp/hydrant/internal/lambdafront"
	"github.com/hydrant-mcp/hydrant/store/dynamo"
)

func TestMain(m *testing.M) { os.Exit(emulator.Main(m)) }

// One session over two processes, as it will be on Lambda.
func TestClientsAreServed(t *testing.T) {
	table := "test-" + rand.Text()
	t.Setenv("HYDRANT_TABLE", table)
	t.Setenv("AWS_ENDPOINT_URL_DYNAMODB", emulator.DynamoDBForTest(t))
	t.Setenv("AWS_REGION", "us-east-1")
	t.Setenv("AWS_ACCESS_KEY_ID", "local")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "local")
	require.NoError(t, dynamo.CreateTable(t.Context(), newClient(), table))
	path, err := lambdafront.Build(t.Context(), "./examples/quickstart/lambda", false)
	require.NoError(t, err)
	front, err := lambdafront.Start(t.Context(), lambdafront.Config{
		Bootstrap: path, Env: os.Environ(), Instances: 2, Dir: t.TempDir(),
	})
	require.NoError(t, err)
	t.Cleanup(front.Stop)

	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(t.Context(),
		&mcp.StreamableClientTransport{Endpoint: front.URL(), DisableStandaloneSSE: true},
		&mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	require.NoError(t, err)
	for range 3 {
		result, err := session.CallTool(t.Context(), &mcp.CallToolParams{
			Name: "greet", Arguments: map[string]any{"name": "world"},
		})
		require.NoError(t, err)
		assert.Equal(t, "Hello, world!", result.Content[0].(*mcp.TextContent).Text)
	}
	assert.NoError(t, session.Close())
}
