package clients

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"

	mcpgo "github.com/mark3labs/mcp-go/client"
	mcpgotypes "github.com/mark3labs/mcp-go/mcp"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func goClients() []client {
	var all []client
	for _, version := range []string{"2025-03-26", "2025-06-18", legacy, modern} {
		all = append(all, client{
			name: "the official Go SDK", protocol: version,
			play: func(t *testing.T, url string) seen { return playSDK(t, url, version) },
		})
	}
	for _, version := range []string{"2025-06-18", legacy, modern} {
		all = append(all, client{
			name: "mcp-go", protocol: version,
			play: func(t *testing.T, url string) seen { return playMCPGo(t, url, version) },
		})
	}
	return all
}

func playSDK(t *testing.T, url, version string) seen {
	ctx, cancel := context.WithTimeout(t.Context(), clientLimit)
	defer cancel()
	var progress atomic.Int64
	c := mcp.NewClient(&mcp.Implementation{Name: "hydrant-test-go", Version: "1.0.0"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(context.Context, *mcp.ProgressNotificationClientRequest) { progress.Add(1) },
	})
	cs, err := c.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: url},
		&mcp.ClientSessionOptions{ProtocolVersion: version})
	require.NoError(t, err)
	defer func() { assert.NoError(t, cs.Close()) }()

	got := seen{
		Server:   cs.InitializeResult().ServerInfo.Name,
		Protocol: cs.InitializeResult().ProtocolVersion,
		Session:  new(cs.ID() != ""),
	}
	for tool, err := range cs.Tools(ctx, nil) {
		require.NoError(t, err)
		got.Tools = append(got.Tools, tool.Name)
	}
	for resource, err := range cs.Resources(ctx, nil) {
		require.NoError(t, err)
		got.Resources = append(got.Resources, resource.URI)
	}
	for prompt, err := range cs.Prompts(ctx, nil) {
		require.NoError(t, err)
		got.Prompts = append(got.Prompts, prompt.Name)
	}
	echo, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "echo", Arguments: json.RawMessage(echoArguments)})
	require.NoError(t, err)
	got.Echo = json.RawMessage(textOf(t, echo.Content))
	got.Structured, err = json.Marshal(echo.StructuredContent)
	require.NoError(t, err)

	failing, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "test_error_handling"})
	require.NoError(t, err)
	got.Failed = failing.IsError

	params := &mcp.CallToolParams{Name: "progress", Arguments: map[string]any{"n": 3, "ms": 20}}
	params.SetProgressToken("steps")
	stepped, err := cs.CallTool(ctx, params)
	require.NoError(t, err)
	got.Stepped = textOf(t, stepped.Content)
	// The SDK hands notifications to their handler on another goroutine.
	assert.Eventually(t, func() bool { return progress.Load() >= 3 }, clientLimit, pollEvery)
	got.Progress = new(int(progress.Load()))

	resource, err := cs.ReadResource(ctx, &mcp.ReadResourceParams{URI: "test://static-text"})
	require.NoError(t, err)
	require.NotEmpty(t, resource.Contents)
	got.Resource = resource.Contents[0].Text
	templated, err := cs.ReadResource(ctx, &mcp.ReadResourceParams{URI: "test://template/42/data"})
	require.NoError(t, err)
	require.NotEmpty(t, templated.Contents)
	got.Templated = templated.Contents[0].Text

	prompt, err := cs.GetPrompt(ctx, &mcp.GetPromptParams{
		Name: "test_prompt_with_arguments", Arguments: map[string]string{"arg1": "first", "arg2": "zweites"},
	})
	require.NoError(t, err)
	for _, m := range prompt.Messages {
		got.Prompt += textOf(t, []mcp.Content{m.Content})
	}
	return got
}

func textOf(t *testing.T, content []mcp.Content) string {
	t.Helper()
	var all strings.Builder
	for _, c := range content {
		text, ok := c.(*mcp.TextContent)
		require.True(t, ok, "%T is not text", c)
		all.WriteString(text.Text)
	}
	return all.String()
}

func playMCPGo(t *testing.T, url, version string) seen {
	ctx, cancel := context.WithTimeout(t.Context(), clientLimit)
	defer cancel()
	c, err := mcpgo.NewStreamableHttpClient(url)
	require.NoError(t, err)
	var progress atomic.Int64
	c.OnNotification(func(n mcpgotypes.JSONRPCNotification) {
		if n.Method == "notifications/progress" {
			progress.Add(1)
		}
	})
	require.NoError(t, c.Start(ctx))
	defer func() { assert.NoError(t, c.Close()) }()

	hello := mcpgotypes.InitializeRequest{}
	hello.Params.ProtocolVersion = version
	hello.Params.ClientInfo = mcpgotypes.Implementation{Name: "hydrant-test-mcp-go", Version: "1.0.0"}
	server, err := c.Initialize(ctx, hello)
	require.NoError(t, err)
	got := seen{Server: server.ServerInfo.Name, Protocol: c.ProtocolVersion(), Session: new(c.GetSessionId() != "")}

	tools, err := c.ListTools(ctx, mcpgotypes.ListToolsRequest{})
	require.NoError(t, err)
	for _, tool := range tools.Tools {
		got.Tools = append(got.Tools, tool.Name)
	}
	resources, err := c.ListResources(ctx, mcpgotypes.ListResourcesRequest{})
	require.NoError(t, err)
	for _, resource := range resources.Resources {
		got.Resources = append(got.Resources, resource.URI)
	}
	prompts, err := c.ListPrompts(ctx, mcpgotypes.ListPromptsRequest{})
	require.NoError(t, err)
	for _, prompt := range prompts.Prompts {
		got.Prompts = append(got.Prompts, prompt.Name)
	}

	call := func(name string, arguments any, token mcpgotypes.ProgressToken) *mcpgotypes.CallToolResult {
		request := mcpgotypes.CallToolRequest{}
		request.Params.Name, request.Params.Arguments = name, arguments
		if token != nil {
			request.Params.Meta = &mcpgotypes.Meta{ProgressToken: token}
		}
		result, err := c.CallTool(ctx, request)
		require.NoError(t, err)
		return result
	}
	text := func(content mcpgotypes.Content) string {
		t.Helper()
		text, ok := mcpgotypes.AsTextContent(content)
		require.True(t, ok, "%T is not text", content)
		return text.Text
	}
	echo := call("echo", json.RawMessage(echoArguments), nil)
	got.Echo = json.RawMessage(text(echo.Content[0]))
	got.Structured, err = json.Marshal(echo.StructuredContent)
	require.NoError(t, err)
	got.Failed = call("test_error_handling", nil, nil).IsError
	got.Stepped = text(call("progress", map[string]any{"n": 3, "ms": 20}, "steps").Content[0])
	assert.Eventually(t, func() bool { return progress.Load() >= 3 }, clientLimit, pollEvery)
	got.Progress = new(int(progress.Load()))

	read := func(uri string) string {
		request := mcpgotypes.ReadResourceRequest{}
		request.Params.URI = uri
		result, err := c.ReadResource(ctx, request)
		require.NoError(t, err)
		require.NotEmpty(t, result.Contents)
		contents, ok := mcpgotypes.AsTextResourceContents(result.Contents[0])
		require.True(t, ok)
		return contents.Text
	}
	got.Resource = read("test://static-text")
	got.Templated = read("test://template/42/data")

	request := mcpgotypes.GetPromptRequest{}
	request.Params.Name = "test_prompt_with_arguments"
	request.Params.Arguments = map[string]string{"arg1": "first", "arg2": "zweites"}
	prompt, err := c.GetPrompt(ctx, request)
	require.NoError(t, err)
	for _, m := range prompt.Messages {
		got.Prompt += text(m.Content)
	}
	return got
}
