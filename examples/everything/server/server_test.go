//lint:file-ignore SA1019 Logging is deprecated as of 2026-07-28 and stays in use.

package server_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/examples/everything/server"
)

// The eras' newest versions.
const (
	legacy = "2025-11-25"
	modern = "2026-07-28"
)

// patience bounds every wait for something that is to happen.
const patience = 5 * time.Second

// connect gives a session of the SDK's client with a server.
func connect(t *testing.T, s *mcp.Server, version string, opts *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	here, there := mcp.NewInMemoryTransports()
	ss, err := s.Connect(t.Context(), there, nil)
	require.NoError(t, err)
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, opts)
	cs, err := client.Connect(t.Context(), here, &mcp.ClientSessionOptions{ProtocolVersion: version})
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = cs.Close()
		_ = ss.Wait()
	})
	return cs
}

// call calls a tool that is to answer.
func call(t *testing.T, cs *mcp.ClientSession, tool string, args any) *mcp.CallToolResult {
	t.Helper()
	r, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
	require.NoError(t, err)
	return r
}

// textOf gives the text of a result's only block.
func textOf(t *testing.T, r *mcp.CallToolResult) string {
	t.Helper()
	require.Len(t, r.Content, 1)
	block, ok := r.Content[0].(*mcp.TextContent)
	require.True(t, ok, "the content is %T", r.Content[0])
	return block.Text
}

// accepts is a client whose user fills in the same values always.
func accepts(values map[string]any) *mcp.ClientOptions {
	return &mcp.ClientOptions{
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: values}, nil
		},
	}
}

func bothEras(t *testing.T, test func(t *testing.T, version string)) {
	for _, version := range []string{legacy, modern} {
		t.Run(version, func(t *testing.T) { test(t, version) })
	}
}

func TestListsEverythingThatTheSuiteNeeds(t *testing.T) {
	bothEras(t, func(t *testing.T, version string) {
		cs := connect(t, server.New(nil), version, nil)
		tools, err := cs.ListTools(t.Context(), nil)
		require.NoError(t, err)
		var names []string
		for _, tool := range tools.Tools {
			names = append(names, tool.Name)
			assert.NotEmpty(t, tool.Description, tool.Name)
		}
		for _, want := range []string{
			"ask", "ask_mrtr", "echo", "json_schema_2020_12_tool", "large", "log", "panic", "progress", "sleep", "strict",
			"tally", "test_audio_content", "test_elicitation", "test_elicitation_sep1034_defaults",
			"test_elicitation_sep1330_enums", "test_embedded_resource", "test_error_handling", "test_image_content",
			"test_input_required_result_capabilities", "test_input_required_result_elicitation",
			"test_input_required_result_list_roots", "test_input_required_result_multi_round",
			"test_input_required_result_multiple_inputs", "test_input_required_result_request_state",
			"test_input_required_result_sampling", "test_input_required_result_tampered_state", "test_logging_tool",
			"test_missing_capability", "test_multiple_content_types", "test_reconnection", "test_sampling",
			"test_simple_text", "test_streaming_elicitation", "test_tool_with_logging", "test_tool_with_progress",
			"test_trigger_prompt_change", "test_trigger_tool_change", "test_x_mcp_header", "touch", "whoami",
		} {
			assert.Contains(t, names, want)
		}
		prompts, err := cs.ListPrompts(t.Context(), nil)
		require.NoError(t, err)
		assert.Len(t, prompts.Prompts, 5)
		resources, err := cs.ListResources(t.Context(), nil)
		require.NoError(t, err)
		assert.Len(t, resources.Resources, 3)
	})
}

func TestAdvertisesWhatItServes(t *testing.T) {
	caps := connect(t, server.New(nil), legacy, nil).InitializeResult().Capabilities
	assert.True(t, caps.Tools.ListChanged)
	assert.True(t, caps.Prompts.ListChanged)
	assert.True(t, caps.Resources.ListChanged)
	assert.True(t, caps.Resources.Subscribe)
	assert.NotNil(t, caps.Completions)
	assert.NotNil(t, caps.Logging)
}

// A change that is announced must not make this process list anything that the others do not.
func TestTriggeredChangesAreAnnouncedAndListsStayTheSame(t *testing.T) {
	bothEras(t, func(t *testing.T, version string) {
		changed := make(chan string, 10)
		cs := connect(t, server.New(nil), version, &mcp.ClientOptions{
			ToolListChangedHandler:   func(context.Context, *mcp.ToolListChangedRequest) { changed <- "tools" },
			PromptListChangedHandler: func(context.Context, *mcp.PromptListChangedRequest) { changed <- "prompts" },
		})
		for _, kind := range []string{"tool", "prompt"} {
			toolsBefore, promptsBefore := lists(t, cs)
			assert.False(t, call(t, cs, "test_trigger_"+kind+"_change", nil).IsError)
			select {
			case got := <-changed:
				assert.Equal(t, kind+"s", got)
			case <-time.After(patience):
				require.Fail(t, "not announced", kind)
			}
			toolsAfter, promptsAfter := lists(t, cs)
			assert.Equal(t, toolsBefore, toolsAfter)
			assert.Equal(t, promptsBefore, promptsAfter)
		}
	})
}

func lists(t *testing.T, cs *mcp.ClientSession) (tools, prompts []string) {
	t.Helper()
	for tool, err := range cs.Tools(t.Context(), nil) {
		require.NoError(t, err)
		tools = append(tools, tool.Name)
	}
	for prompt, err := range cs.Prompts(t.Context(), nil) {
		require.NoError(t, err)
		prompts = append(prompts, prompt.Name)
	}
	assert.True(t, slices.IsSorted(tools), "tools in a stable order")
	return tools, prompts
}

func TestReadsResources(t *testing.T) {
	cs := connect(t, server.New(nil), legacy, nil)
	r, err := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "test://template/123/data"})
	require.NoError(t, err)
	assert.JSONEq(t, `{"id":"123","templateTest":true,"data":"Data for ID: 123"}`, r.Contents[0].Text)
	assert.Equal(t, "application/json", r.Contents[0].MIMEType)

	for _, uri := range []string{"test://nothing", "test://template//data"} {
		_, err = cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri})
		var rpc *jsonrpc.Error
		require.ErrorAs(t, err, &rpc, uri)
		assert.EqualValues(t, jsonrpc.CodeInvalidParams, rpc.Code)
		assert.JSONEq(t, `{"uri":"`+uri+`"}`, string(rpc.Data))
	}
}

func TestCompletesTheFirstArgument(t *testing.T) {
	cs := connect(t, server.New(nil), modern, nil)
	for prefix, want := range map[string][]string{"par": {"paris", "park", "party"}, "none": {}} {
		r, err := cs.Complete(t.Context(), &mcp.CompleteParams{
			Ref:      &mcp.CompleteReference{Type: "ref/prompt", Name: "test_prompt_with_arguments"},
			Argument: mcp.CompleteParamsArgument{Name: "arg1", Value: prefix},
		})
		require.NoError(t, err)
		assert.Equal(t, want, r.Completion.Values)
	}
}

func TestMissingCapabilityIsTheSpecifiedError(t *testing.T) {
	_, err := connect(t, server.New(nil), modern, nil).
		CallTool(t.Context(), &mcp.CallToolParams{Name: "test_missing_capability"})
	var rpc *jsonrpc.Error
	require.ErrorAs(t, err, &rpc)
	assert.EqualValues(t, mcp.CodeMissingRequiredClientCapabilities, rpc.Code)
	var data map[string]map[string]any
	require.NoError(t, json.Unmarshal(rpc.Data, &data))
	assert.Contains(t, data["requiredCapabilities"], "sampling")
}

func TestSuiteToolsAskLegacyClients(t *testing.T) {
	opts := accepts(map[string]any{"username": "ann", "email": "ann@example.com"})
	opts.CreateMessageHandler = func(
		_ context.Context, req *mcp.CreateMessageRequest,
	) (*mcp.CreateMessageResult, error) {
		question := req.Params.Messages[0].Content.(*mcp.TextContent).Text
		return &mcp.CreateMessageResult{
			Role: "assistant", Model: "m", Content: &mcp.TextContent{Text: "re: " + question},
		}, nil
	}
	cs := connect(t, server.New(nil), legacy, opts)
	assert.Equal(t, "LLM response: re: why?", textOf(t, call(t, cs, "test_sampling", map[string]any{"prompt": "why?"})))
	r := call(t, cs, "test_elicitation", map[string]any{"message": "who?"})
	assert.Contains(t, textOf(t, r), "ann@example.com")
}

// Without the capability nothing may be asked, and nothing may hang.
func TestClientsThatCannotBeAskedGetAnErrorAtOnce(t *testing.T) {
	cs := connect(t, server.New(nil), legacy, nil)
	for tool, args := range map[string]map[string]any{
		"test_sampling":                  {"prompt": "why?"},
		"test_elicitation":               {"message": "who?"},
		"ask":                            {"message": "who?"},
		"test_elicitation_sep1330_enums": {},
	} {
		assert.True(t, call(t, cs, tool, args).IsError, tool)
	}
}
