package longrun_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/examples/longrun"
	"github.com/hydrant-mcp/hydrant/handler"
	"github.com/hydrant-mcp/hydrant/store/memory"
)

// patience is how long a test waits for what has to come.
const patience = 20 * time.Second

// serve serves as a platform does that starts an instance for every request.
func serve(t *testing.T, step longrun.Step) (url string) {
	t.Helper()
	sessions := memory.New()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler.New(longrun.NewServer(step), sessions, nil).ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func connect(t *testing.T, url, version string, opts *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, opts)
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint: url, DisableStandaloneSSE: true,
	}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, session.Close()) })
	return session
}

func work(ctx context.Context, session *mcp.ClientSession, steps int) (*mcp.CallToolResult, error) {
	params := &mcp.CallToolParams{Name: "work", Arguments: map[string]any{"steps": steps}}
	params.SetProgressToken("p")
	return session.CallTool(ctx, params)
}

var versions = []string{"2026-07-28", "2025-11-25", "2025-06-18"}

func TestProgressArrivesWhileTheToolWorks(t *testing.T) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			heard := make(chan float64, 10)
			// Each step after the first waits until the client has heard of the one before.
			step := func(ctx context.Context, n int) error {
				if n == 1 {
					return nil
				}
				select {
				case done := <-heard:
					assert.Equal(t, float64(n-1), done)
				case <-time.After(patience):
					assert.Fail(t, "no progress")
				}
				return nil
			}
			session := connect(t, serve(t, step), version, &mcp.ClientOptions{
				ProgressNotificationHandler: func(_ context.Context, req *mcp.ProgressNotificationClientRequest) {
					assert.Equal(t, 3.0, req.Params.Total)
					heard <- req.Params.Progress
				},
			})
			result, err := work(t.Context(), session, 3)
			require.NoError(t, err)
			assert.Equal(t, "All 3 steps are done.", result.Content[0].(*mcp.TextContent).Text)
		})
	}
}

func TestACancelledToolStops(t *testing.T) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			var steps atomic.Int32
			began, stopped := make(chan struct{}), make(chan struct{})
			step := func(ctx context.Context, n int) error {
				steps.Add(1)
				close(began)
				<-ctx.Done()
				close(stopped)
				return context.Cause(ctx)
			}
			session := connect(t, serve(t, step), version, nil)
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				<-began
				cancel()
			}()
			_, err := work(ctx, session, 3)
			require.Error(t, err)
			select {
			case <-stopped:
			case <-time.After(patience):
				require.Fail(t, "the tool works on")
			}
			assert.Equal(t, int32(1), steps.Load())
		})
	}
}

func TestHowMuchWorkIsBounded(t *testing.T) {
	session := connect(t, serve(t, func(context.Context, int) error { return nil }), "2026-07-28", nil)
	for _, steps := range []int{0, 1001} {
		result, err := work(t.Context(), session, steps)
		require.NoError(t, err)
		assert.True(t, result.IsError)
	}
	result, err := work(t.Context(), session, 1000)
	require.NoError(t, err)
	assert.False(t, result.IsError)
}

func TestAPauseEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(assert.AnError)
	assert.ErrorIs(t, longrun.Pause(time.Hour)(ctx, 1), assert.AnError)
	assert.NoError(t, longrun.Pause(time.Nanosecond)(t.Context(), 1))
}
