package main

import (
	"bufio"
	"context"
	"io"
	"regexp"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAsksUntilItIsStopped(t *testing.T) {
	for _, ask := range []string{"", "suspend"} {
		t.Run(ask, func(t *testing.T) {
			env := map[string]string{"PORT": "0", "ASK": ask}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			read, write := io.Pipe()
			done := make(chan error, 1)
			go func() {
				err := run(ctx, func(name string) string { return env[name] }, write)
				_ = write.CloseWithError(err)
				done <- err
			}()
			line, err := bufio.NewReader(read).ReadString('\n')
			require.NoError(t, err)
			client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
				ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
					return &mcp.ElicitResult{Action: "decline"}, nil
				},
			})
			session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{
				Endpoint: regexp.MustCompile(`http://\S+`).FindString(line), DisableStandaloneSSE: true,
			}, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
			require.NoError(t, err)
			result, err := session.CallTool(t.Context(), &mcp.CallToolParams{
				Name: "refund", Arguments: map[string]any{"order": "A-17", "cents": 1250},
			})
			require.NoError(t, err)
			assert.Contains(t, result.Content[0].(*mcp.TextContent).Text, "declined")
			require.NoError(t, session.Close())
			cancel()
			assert.NoError(t, <-done)
		})
	}
}

func TestAWayOfAskingThatDoesNotExistIsAClearError(t *testing.T) {
	err := run(t.Context(), func(name string) string { return map[string]string{"ASK": "loudly"}[name] }, io.Discard)
	assert.ErrorContains(t, err, "ASK")
}
