package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The command is taken apart, so that the test sends what a newcomer pastes.
func TestThePrintedCommandWorks(t *testing.T) {
	server := httptest.NewServer(newHandler())
	t.Cleanup(server.Close)
	command := try(server.URL + "/mcp")
	_, body, found := strings.Cut(command, "-d '")
	require.True(t, found, command)

	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
		regexp.MustCompile(`http://\S+`).FindString(command), strings.NewReader(strings.TrimSuffix(body, "'")))
	require.NoError(t, err)
	for _, h := range regexp.MustCompile(`-H '([^:]+): ([^']+)'`).FindAllStringSubmatch(command, -1) {
		req.Header.Set(h[1], h[2])
	}
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	t.Cleanup(func() { _ = res.Body.Close() })
	got, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, res.StatusCode, "%s", got)

	var response struct {
		Result struct {
			Content []struct{ Text string }
		}
	}
	require.NoError(t, json.Unmarshal(got, &response), "inline JSON: %s", got)
	require.Len(t, response.Result.Content, 1, "%s", got)
	assert.Equal(t, "Hello, world!", response.Result.Content[0].Text)
}

func TestClientsWithAHandshakeAreServedToo(t *testing.T) {
	server := httptest.NewServer(newHandler())
	t.Cleanup(server.Close)
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(t.Context(),
		&mcp.StreamableClientTransport{Endpoint: server.URL + "/mcp", DisableStandaloneSSE: true},
		&mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	require.NoError(t, err)
	result, err := session.CallTool(t.Context(), &mcp.CallToolParams{
		Name: "greet", Arguments: map[string]any{"name": "world"},
	})
	require.NoError(t, err)
	assert.Equal(t, "Hello, world!", result.Content[0].(*mcp.TextContent).Text)
	assert.NoError(t, session.Close())
}
