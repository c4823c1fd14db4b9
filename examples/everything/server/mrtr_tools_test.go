//lint:file-ignore SA1019 Sampling and roots are deprecated as of 2026-07-28 and stay in use.

package server_test

import (
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/examples/everything/server"
)

// byHand is a client that gets to see every round.
func byHand() *mcp.ClientOptions {
	return &mcp.ClientOptions{
		MultiRoundTrip: &mcp.MultiRoundTripOptions{Disabled: true},
		Capabilities:   &mcp.ClientCapabilities{Elicitation: &mcp.ElicitationCapabilities{}},
	}
}

func accept(values map[string]any) *mcp.ElicitResult {
	return &mcp.ElicitResult{Action: "accept", Content: values}
}

// Each round of a call may land on another process: each is sent to a new server here.
func TestRoundsContinueOnAnyInstance(t *testing.T) {
	keys := [][]byte{[]byte("a key that all instances share...")}
	for name, opts := range map[string]*server.Options{"configured keys": {Keys: keys}, "no keys": nil} {
		t.Run(name, func(t *testing.T) {
			round := func(p *mcp.CallToolParams) *mcp.CallToolResult {
				p.Name = "test_input_required_result_multi_round"
				r, err := connect(t, server.New(opts), modern, byHand()).CallTool(t.Context(), p)
				require.NoError(t, err)
				return r
			}
			first := round(&mcp.CallToolParams{})
			require.Contains(t, first.InputRequests, "step1")
			second := round(&mcp.CallToolParams{
				InputResponses: mcp.InputResponseMap{"step1": accept(map[string]any{"name": "Ann"})},
				RequestState:   first.RequestState,
			})
			require.Contains(t, second.InputRequests, "step2")
			assert.NotEqual(t, first.RequestState, second.RequestState)
			third := round(&mcp.CallToolParams{
				InputResponses: mcp.InputResponseMap{"step2": accept(map[string]any{"color": "blue"})},
				RequestState:   second.RequestState,
			})
			assert.Equal(t, "Ann likes blue.", textOf(t, third))
		})
	}
}

func TestForgedStateIsRefused(t *testing.T) {
	const tool = "test_input_required_result_tampered_state"
	cs := connect(t, server.New(nil), modern, byHand())
	call := func(tool string, args map[string]any, state string) (*mcp.CallToolResult, error) {
		p := &mcp.CallToolParams{Name: tool, Arguments: args, RequestState: state}
		if state != "" {
			p.InputResponses = mcp.InputResponseMap{
				"confirm": accept(map[string]any{"ok": true}), "answer": accept(map[string]any{"answer": "me"}),
			}
		}
		return cs.CallTool(t.Context(), p)
	}
	first, err := call(tool, nil, "")
	require.NoError(t, err)
	state := first.RequestState
	who := map[string]any{"message": "who?"}
	asked, err := call("ask_mrtr", who, "")
	require.NoError(t, err)

	for name, forged := range map[string]struct {
		tool  string
		args  map[string]any
		state string
	}{
		"appended":        {tool, nil, state + "-TAMPERED"},
		"cut short":       {tool, nil, state[:len(state)-1]},
		"changed":         {tool, nil, "Q" + state[1:]},
		"unsigned":        {tool, nil, strings.SplitN(state, ".", 2)[0]},
		"invented":        {tool, nil, "aGVsbG8"},
		"another tool's":  {"test_input_required_result_request_state", nil, state},
		"other arguments": {"ask_mrtr", map[string]any{"message": "whom?"}, asked.RequestState},
	} {
		_, err := call(forged.tool, forged.args, forged.state)
		var rpc *jsonrpc.Error
		if assert.ErrorAs(t, err, &rpc, name) {
			assert.EqualValues(t, jsonrpc.CodeInvalidParams, rpc.Code, name)
		}
	}

	r, err := call(tool, nil, state)
	require.NoError(t, err)
	assert.Contains(t, textOf(t, r), "state-ok")
	r, err = call("ask_mrtr", who, asked.RequestState)
	require.NoError(t, err)
	assert.JSONEq(t, `{"action":"accept","content":{"answer":"me"}}`, textOf(t, r))
}

func TestKeysCanBeRotated(t *testing.T) {
	older, newer := []byte("the older key, the older key...."), []byte("the newer key, the newer key....")
	const tool = "test_input_required_result_request_state"
	before := connect(t, server.New(&server.Options{Keys: [][]byte{older}}), modern, byHand())
	first, err := before.CallTool(t.Context(), &mcp.CallToolParams{Name: tool})
	require.NoError(t, err)
	retry := &mcp.CallToolParams{
		Name: tool, RequestState: first.RequestState,
		InputResponses: mcp.InputResponseMap{"confirm": accept(map[string]any{"ok": true})},
	}
	after := connect(t, server.New(&server.Options{Keys: [][]byte{newer, older}}), modern, byHand())
	r, err := after.CallTool(t.Context(), retry)
	require.NoError(t, err)
	assert.Contains(t, textOf(t, r), "state-ok")

	gone := connect(t, server.New(&server.Options{Keys: [][]byte{newer}}), modern, byHand())
	_, err = gone.CallTool(t.Context(), retry)
	assert.Error(t, err, "a state of a key that is gone")
}

func TestAnswersThatDoNotAnswerAreAskedForAgain(t *testing.T) {
	cs := connect(t, server.New(nil), modern, byHand())
	for name, answers := range map[string]mcp.InputResponseMap{
		"wrong key":  {"other": accept(map[string]any{"name": "Ann"})},
		"wrong type": {"user_name": accept(map[string]any{"name": 5})},
		"declined":   {"user_name": &mcp.ElicitResult{Action: "decline"}},
		"another":    {"user_name": &mcp.ListRootsResult{Roots: []*mcp.Root{}}},
	} {
		r, err := cs.CallTool(t.Context(), &mcp.CallToolParams{
			Name: "test_input_required_result_elicitation", InputResponses: answers,
		})
		require.NoError(t, err, name)
		assert.Contains(t, r.InputRequests, "user_name", name)
	}
}

func TestOnlyDeclaredCapabilitiesAreAskedFor(t *testing.T) {
	for name, tc := range map[string]struct {
		caps mcp.ClientCapabilities
		want []string
	}{
		"nothing":     {mcp.ClientCapabilities{}, nil},
		"sampling":    {mcp.ClientCapabilities{Sampling: &mcp.SamplingCapabilities{}}, []string{"greeting"}},
		"elicitation": {mcp.ClientCapabilities{Elicitation: &mcp.ElicitationCapabilities{}}, []string{"user_name"}},
		"roots":       {mcp.ClientCapabilities{RootsV2: &mcp.RootCapabilities{}}, []string{"client_roots"}},
	} {
		opts := byHand()
		opts.Capabilities = &tc.caps
		r, err := connect(t, server.New(nil), modern, opts).CallTool(t.Context(), &mcp.CallToolParams{
			Name: "test_input_required_result_capabilities",
		})
		require.NoError(t, err, name)
		var asked []string
		for key := range r.InputRequests {
			asked = append(asked, key)
		}
		assert.Equal(t, tc.want, asked, name)
	}
}

// The SDK puts the questions of a tool that returns them to legacy clients as well.
func TestAskMRTRAsksClientsOfBothEras(t *testing.T) {
	bothEras(t, func(t *testing.T, version string) {
		cs := connect(t, server.New(nil), version, accepts(map[string]any{"answer": "me"}))
		r := call(t, cs, "ask_mrtr", map[string]any{"message": "who?"})
		assert.JSONEq(t, `{"action":"accept","content":{"answer":"me"}}`, textOf(t, r))
	})
}
