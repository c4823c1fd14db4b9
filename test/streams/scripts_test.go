package streams

import (
	"bytes"
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/internal/harness"
)

// scriptClients are the clients in JavaScript and Python.
func scriptClients() []client {
	return []client{
		{name: "npm sdk", protocol: legacy, play: script("streams_sdk.mjs")},
		{name: "npm client", protocol: legacy, play: script("streams_client.mjs", "legacy")},
		{name: "npm client", protocol: modern, play: script("streams_client.mjs", modern), cannot: modernCannot},
		{name: "PyPI mcp", protocol: legacy, play: script("streams_mcp.py", "legacy")},
		{name: "PyPI mcp", protocol: modern, play: script("streams_mcp.py", modern), cannot: modernCannot},
	}
}

// script runs a client's script, gives it the place as JSON, and reads the line of JSON that it prints.
func script(name string, mode ...string) func(t *testing.T, at place) map[feature]string {
	return func(t *testing.T, at place) map[feature]string {
		var interpreter, dir string
		if strings.HasSuffix(name, ".py") {
			interpreter, dir = harness.PythonForTest(t)
		} else {
			interpreter, dir = harness.NodeForTest(t, 20)
		}
		arg, err := json.Marshal(at)
		require.NoError(t, err)
		ctx, stop := context.WithTimeout(t.Context(), clientLimit)
		defer stop()
		cmd := exec.CommandContext(ctx, interpreter, append([]string{filepath.Join(dir, name), string(arg)}, mode...)...)
		cmd.WaitDelay = time.Second
		var complaints bytes.Buffer
		cmd.Stderr = &complaints
		out, err := cmd.Output()
		require.NoError(t, err, "%s\n%s\n%s", name, out, complaints.String())
		got := map[feature]string{}
		require.NoError(t, json.Unmarshal(out, &got), "not a line of JSON: %s", out)
		if t.Failed() || complaints.Len() > 0 {
			t.Logf("%s", complaints.String())
		}
		return got
	}
}
