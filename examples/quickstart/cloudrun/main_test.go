package main

import (
	"context"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/internal/emulator"
)

func TestMain(m *testing.M) { os.Exit(emulator.Main(m)) }

func TestClientsOfBothErasAreGreeted(t *testing.T) {
	t.Setenv("FIRESTORE_EMULATOR_HOST", emulator.FirestoreForTest(t))
	t.Setenv("GOOGLE_CLOUD_PROJECT", "hydrant-test")
	t.Setenv("HYDRANT_TABLE", "quickstart")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	require.NoError(t, l.Close())
	t.Setenv("PORT", port)

	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	require.Eventually(t, func() bool {
		res, err := http.Get("http://" + address + "/healthz")
		if err != nil {
			return false
		}
		return res.Body.Close() == nil && res.StatusCode == http.StatusOK
	}, 10*time.Second, 10*time.Millisecond)

	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
		session, err := client.Connect(t.Context(),
			&mcp.StreamableClientTransport{Endpoint: "http://" + address + "/mcp", DisableStandaloneSSE: true},
			&mcp.ClientSessionOptions{ProtocolVersion: version})
		require.NoError(t, err)
		result, err := session.CallTool(t.Context(), &mcp.CallToolParams{
			Name: "greet", Arguments: map[string]any{"name": "world"},
		})
		require.NoError(t, err)
		assert.Equal(t, "Hello, world!", result.Content[0].(*mcp.TextContent).Text)
		assert.NoError(t, session.Close())
	}
	stop()
	select {
	case err := <-ended:
		assert.NoError(t, err)
	case <-time.After(10 * time.Second):
		assert.Fail(t, "the server has not ended")
	}
}
