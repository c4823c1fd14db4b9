package clients

import (
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/internal/harness"
)

const pollEvery = 10 * time.Millisecond

// scriptClients are the clients in JavaScript and Python. Each script takes the URL and how to negotiate.
func scriptClients() []client {
	return []client{
		{name: "npm sdk", protocol: legacy, play: script("sdk.mjs")},
		{name: "npm client by default", protocol: legacy, play: script("client.mjs")},
		{name: "npm client that negotiates", protocol: modern, play: script("client.mjs", "auto")},
		{name: "npm client that insists", protocol: modern, play: script("client.mjs", modern)},
		// mcp-remote shows its own client the legacy era, whatever it speaks to the server.
		{
			name: "npm mcp-remote by default", protocol: legacy, play: script("remote.mjs"),
			unsaid: map[string]bool{"protocol": true, "session": true, "progress": true},
		},
		{
			name: "npm mcp-remote that negotiates", protocol: modern, play: script("remote.mjs", "auto"),
			unsaid: map[string]bool{"protocol": true, "session": true, "progress": true},
		},
		{name: "PyPI mcp that shakes hands", protocol: legacy, play: script("mcp_client.py", "legacy"), unsaid: noSession},
		{name: "PyPI mcp by default", protocol: modern, play: script("mcp_client.py", "auto"), unsaid: noSession},
		{name: "PyPI mcp that insists", protocol: modern, play: script("mcp_client.py", modern), unsaid: nothingDiscovered},
		{name: "PyPI fastmcp that shakes hands", protocol: legacy, play: script("fastmcp_client.py", "legacy"), unsaid: noSession},
		{name: "PyPI fastmcp by default", protocol: modern, play: script("fastmcp_client.py", "auto"), unsaid: noSession},
		{
			name: "PyPI fastmcp that insists", protocol: modern, play: script("fastmcp_client.py", modern),
			unsaid: nothingDiscovered,
		},
	}
}

var (
	noSession = map[string]bool{"session": true}
	// A Python client that is told the version does not discover, and so knows no server name.
	nothingDiscovered = map[string]bool{"session": true, "server": true}
)

// script runs a client's script and reads the line of JSON that it prints.
func script(name string, args ...string) func(t *testing.T, url string) seen {
	return func(t *testing.T, url string) seen {
		interpreter, path := harness.ScriptForTest(t, name)
		out, _ := harness.RunForTest(t, clientLimit, interpreter, append([]string{path, url}, args...)...)
		var got seen
		require.NoError(t, json.Unmarshal(out, &got), "not a line of JSON: %s", out)
		return got
	}
}

// inspectorClients are the Inspector's command line, which plays one method a run: connect, do, close.
func inspectorClients() []client {
	unsaid := map[string]bool{"protocol": true, "server": true, "session": true, "progress": true}
	return []client{
		{name: "the Inspector", protocol: legacy, play: inspector("legacy"), unsaid: unsaid},
		{name: "the Inspector", protocol: modern, play: inspector("modern"), unsaid: unsaid},
	}
}

func inspector(era string) func(t *testing.T, url string) seen {
	return func(t *testing.T, url string) seen {
		node, dir := harness.NodeForTest(t, 22)
		launcher := filepath.Join(dir, "node_modules", "@modelcontextprotocol", "inspector",
			"clients", "launcher", "build", "index.js")
		inspect := func(result any, method string, args ...string) {
			t.Helper()
			out, _ := harness.RunForTest(t, clientLimit, node, append([]string{
				launcher, "--cli", url, "--transport", "http", "--protocol-era", era, "--format", "json", "--method", method,
			}, args...)...)
			envelope := struct{ Result any }{result}
			require.NoError(t, json.Unmarshal(out, &envelope), "%s: %s", method, out)
		}
		type text struct{ Text string }
		var (
			lists struct {
				Tools     []struct{ Name string }
				Resources []struct{ URI string }
				Prompts   []struct{ Name string }
			}
			echo struct {
				Content           []text
				StructuredContent json.RawMessage
			}
			resource, templated struct{ Contents []text }
			prompt              struct{ Messages []struct{ Content text } }
			got                 seen
		)
		inspect(&lists, "tools/list")
		inspect(&lists, "resources/list")
		inspect(&lists, "prompts/list")
		inspect(&echo, "tools/call", "--tool-name", "echo", "--tool-args-json", echoArguments)
		inspect(&resource, "resources/read", "--uri", "test://static-text")
		inspect(&templated, "resources/read", "--uri", "test://template/42/data")
		inspect(&prompt, "prompts/get", "--prompt-name", "test_prompt_with_arguments",
			"--prompt-args", "arg1=first", "arg2=zweites")
		for _, tool := range lists.Tools {
			got.Tools = append(got.Tools, tool.Name)
		}
		for _, r := range lists.Resources {
			got.Resources = append(got.Resources, r.URI)
		}
		for _, p := range lists.Prompts {
			got.Prompts = append(got.Prompts, p.Name)
		}
		require.NotEmpty(t, echo.Content)
		got.Echo, got.Structured = json.RawMessage(echo.Content[0].Text), echo.StructuredContent
		require.NotEmpty(t, resource.Contents)
		require.NotEmpty(t, templated.Contents)
		got.Resource, got.Templated = resource.Contents[0].Text, templated.Contents[0].Text
		for _, m := range prompt.Messages {
			got.Prompt += m.Content.Text
		}
		got.Failed = inspectorFails(t, node, launcher, url, era)
		return got
	}
}

// inspectorFails calls the tool that always fails. The Inspector prints the result and may exit with a code of its own.
func inspectorFails(t *testing.T, node, launcher, url, era string) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), clientLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, launcher, "--cli", url, "--transport", "http", "--protocol-era", era,
		"--format", "json", "--method", "tools/call", "--tool-name", "test_error_handling")
	out, _ := cmd.Output()
	var envelope struct{ Result struct{ IsError bool } }
	require.NoError(t, json.Unmarshal(out, &envelope), "tools/call: %s", out)
	return envelope.Result.IsError
}
