package main

import (
	"context"
	"net"
	"os"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/adapters/cloudrun"
	"github.com/hydrant-mcp/hydrant/internal/emulator"
)

func TestMain(m *testing.M) { os.Exit(emulator.Main(m)) }

// One instance takes the note and ends; the next one finds it.
func TestNotesOutliveAnInstance(t *testing.T) {
	t.Setenv("FIRESTORE_EMULATOR_HOST", emulator.FirestoreForTest(t))
	t.Setenv("GOOGLE_CLOUD_PROJECT", "hydrant-notes")
	onInstance(t, func(session *mcp.ClientSession) {
		result, err := session.CallTool(t.Context(), &mcp.CallToolParams{
			Name: "add_note", Arguments: map[string]any{"text": "Buy milk."},
		})
		require.NoError(t, err)
		require.False(t, result.IsError)
	})
	onInstance(t, func(session *mcp.ClientSession) {
		result, err := session.CallTool(t.Context(), &mcp.CallToolParams{
			Name: "search_notes", Arguments: map[string]any{"query": "milk"},
		})
		require.NoError(t, err)
		assert.Equal(t, "1 of 1 notes.", result.Content[0].(*mcp.TextContent).Text)
	})
}

// onInstance starts an instance, connects to it, and ends it after use.
func onInstance(t *testing.T, use func(*mcp.ClientSession)) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- run(ctx, cloudrun.WithListener(listener)) }()

	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint: "http://" + listener.Addr().String() + "/mcp", MaxRetries: -1,
	}, nil)
	require.NoError(t, err)
	use(session)
	require.NoError(t, session.Close())
	cancel()
	require.NoError(t, <-done)
}
