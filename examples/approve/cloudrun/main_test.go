package main

import (
	"context"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/adapters/cloudrun"
	"github.com/hydrant-mcp/hydrant/internal/emulator"
)

func TestMain(m *testing.M) { os.Exit(emulator.Main(m)) }

// The instance that has asked ends while the person thinks; the next one goes on with the answer.
func TestAQuestionOutlivesTheInstanceThatAskedIt(t *testing.T) {
	t.Setenv("FIRESTORE_EMULATOR_HOST", emulator.FirestoreForTest(t))
	t.Setenv("GOOGLE_CLOUD_PROJECT", "hydrant-approve")
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(version, func(t *testing.T) {
			address, stop := startInstance(t)
			to := &service{}
			to.address.Store(address)
			client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
				ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
					stop()
					next, _ := startInstance(t)
					to.address.Store(next)
					return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"reason": "late"}}, nil
				},
			})
			session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{
				Endpoint: "http://service.example/mcp", HTTPClient: &http.Client{Transport: to}, DisableStandaloneSSE: true,
			}, &mcp.ClientSessionOptions{ProtocolVersion: version})
			require.NoError(t, err)
			result, err := session.CallTool(t.Context(), &mcp.CallToolParams{
				Name: "refund", Arguments: map[string]any{"order": "A-17", "cents": 1250},
			})
			require.NoError(t, err)
			assert.Contains(t, result.Content[0].(*mcp.TextContent).Text, "Paid 12.50 back")
			assert.NoError(t, session.Close())
		})
	}
}

// startInstance starts an instance, and gives its address and what ends it as Cloud Run does.
func startInstance(t *testing.T) (address string, stop func()) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- run(ctx, cloudrun.WithListener(listener)) }()
	stop = sync.OnceFunc(func() {
		cancel()
		assert.NoError(t, <-done)
	})
	t.Cleanup(stop)
	return listener.Addr().String(), stop
}

// A service sends every request to the instance that there is.
type service struct{ address atomic.Value } // string

func (s *service) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Host = s.address.Load().(string)
	return http.DefaultTransport.RoundTrip(r)
}
