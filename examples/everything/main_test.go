package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// start runs the command until stop is called, which returns what run returned.
func start(t *testing.T, env map[string]string) (url string, stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	read, write := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := run(ctx, func(name string) string { return env[name] }, write)
		_ = write.CloseWithError(io.EOF)
		done <- err
	}()
	line, err := bufio.NewReader(read).ReadString('\n')
	require.NoError(t, err, "it prints where it listens")
	url = regexp.MustCompile(`http://\S+`).FindString(line)
	require.NotEmpty(t, url, line)
	return url, func() error {
		cancel()
		select {
		case err := <-done:
			return err
		case <-time.After(15 * time.Second):
			t.Error("it does not end")
			return nil
		}
	}
}

func TestServesBothErasAndStops(t *testing.T) {
	url, stop := start(t, map[string]string{"PORT": "0"})
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
		cs, err := client.Connect(t.Context(),
			&mcp.StreamableClientTransport{Endpoint: url, DisableStandaloneSSE: true, MaxRetries: -1},
			&mcp.ClientSessionOptions{ProtocolVersion: version})
		require.NoError(t, err, version)
		r, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"x": 1}})
		require.NoError(t, err, version)
		assert.Equal(t, `{"x":1}`, r.Content[0].(*mcp.TextContent).Text, version)
		assert.NoError(t, cs.Close(), version)
	}
	res, err := http.Get(strings.TrimSuffix(url, "/mcp") + "/healthz")
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, res.StatusCode)
	require.NoError(t, res.Body.Close())
	assert.NoError(t, stop())
}

// SIGTERM gives the calls that are under way their time.
func TestACallUnderWayIsAnsweredBeforeItStops(t *testing.T) {
	url, stop := start(t, map[string]string{"PORT": "0"})
	// A call's first progress notification says that it is under way.
	under := make(chan struct{}, 10)
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(context.Context, *mcp.ProgressNotificationClientRequest) { under <- struct{}{} },
	})
	cs, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url, MaxRetries: -1}, nil)
	require.NoError(t, err)
	answered := make(chan error, 1)
	go func() {
		p := &mcp.CallToolParams{Name: "progress", Arguments: map[string]any{"n": 2, "ms": 500}}
		p.SetProgressToken("p")
		_, err := cs.CallTool(t.Context(), p)
		answered <- err
	}()
	<-under
	assert.NoError(t, stop())
	assert.NoError(t, <-answered)
}

func TestBadConfigurationDoesNotStart(t *testing.T) {
	err := run(t.Context(), func(name string) string {
		return map[string]string{"HYDRANT_STORE": "redis"}[name]
	}, io.Discard)
	assert.ErrorContains(t, err, "HYDRANT_STORE")
}
