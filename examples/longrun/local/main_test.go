package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A session that one instance has made is known to the other.
func TestTwoInstancesShareAStore(t *testing.T) {
	env := map[string]string{"PORTS": "0,0", "STEP": "1ms"}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	read, write := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := run(ctx, func(name string) string { return env[name] }, write)
		_ = write.CloseWithError(err)
		done <- err
	}()
	lines := bufio.NewReader(read)
	session := ""
	for _, message := range []string{
		`{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25", "capabilities": {},
			"clientInfo": {"name": "test", "version": "1"}}}`,
		`{"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "work", "arguments": {"steps": 2}}}`,
	} {
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		url := regexp.MustCompile(`http://\S+`).FindString(line)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(message))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		if session != "" {
			req.Header.Set("Mcp-Session-Id", session)
		}
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		body, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		require.Equal(t, http.StatusOK, res.StatusCode, "%s", body)
		if session != "" {
			assert.Contains(t, string(body), "All 2 steps are done.")
		}
		session = res.Header.Get("Mcp-Session-Id")
	}
	cancel()
	assert.NoError(t, <-done)
}

func TestASettingThatCannotBeReadIsAClearError(t *testing.T) {
	for name, value := range map[string]string{"STEP": "soon", "PORTS": "x"} {
		err := run(t.Context(), func(n string) string { return map[string]string{name: value}[n] }, io.Discard)
		require.Error(t, err)
		assert.Contains(t, err.Error(), value)
	}
}
