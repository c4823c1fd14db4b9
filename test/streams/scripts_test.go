package streams

import (
	"encoding/json"
	"testing"

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
		interpreter, path := harness.ScriptForTest(t, name)
		arg, err := json.Marshal(at)
		require.NoError(t, err)
		out, complaints := harness.RunForTest(t, clientLimit, interpreter, append([]string{path, string(arg)}, mode...)...)
		got := map[feature]string{}
		require.NoError(t, json.Unmarshal(out, &got), "not a line of JSON: %s", out)
		if t.Failed() || complaints != "" {
			t.Logf("%s", complaints)
		}
		return got
	}
}
