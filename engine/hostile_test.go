package engine

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What handlers return by mistake must not reach the SDK's own goroutine: there it would end the process, or the response.
func TestResultsThatCannotBeEncoded(t *testing.T) {
	s := newServer(&mcp.ServerOptions{
		CompletionHandler: func(context.Context, *mcp.CompleteRequest) (*mcp.CompleteResult, error) { return nil, nil },
	})
	returns := func(name string, r *mcp.CallToolResult) {
		addTool(s, name, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return r, nil })
	}
	returns("nothing", nil)
	returns("panicking meta", &mcp.CallToolResult{Meta: mcp.Meta{"x": bomb{}}, Content: []mcp.Content{}})
	returns("impossible meta", &mcp.CallToolResult{Meta: mcp.Meta{"x": math.NaN()}, Content: []mcp.Content{}})
	returns("nil content", &mcp.CallToolResult{Content: []mcp.Content{(*mcp.TextContent)(nil)}})
	returns("no JSON", &mcp.CallToolResult{StructuredContent: json.RawMessage(`{`)})
	returns("panicking schema", &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{
		"q": &mcp.ElicitParams{Message: "?", RequestedSchema: bomb{}}}})
	returns("impossible schema", &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{
		"q": &mcp.ElicitParams{Message: "?", RequestedSchema: make(chan int)}}})
	s.AddPrompt(&mcp.Prompt{Name: "nothing"}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) { return nil, nil })
	e := New(s, &Options{Logger: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for _, state := range []*State{nil, legacyState} {
		meta := ""
		if state == nil {
			meta = "," + modernMeta
		}
		for _, tool := range []string{
			"nothing", "panicking meta", "impossible meta", "nil content", "no JSON", "panicking schema", "impossible schema",
		} {
			result, err := e.Call(ctx, &Message{Method: "tools/call", Params: json.RawMessage(`{"name":"` + tool + `"` + meta + `}`), State: state}, &recorder{})
			require.NoError(t, ctx.Err(), tool)
			if err == nil {
				assert.Contains(t, string(result), `"isError":true`, tool)
			}
		}
		for method, params := range map[string]string{
			"prompts/get":         `"name":"nothing"`,
			"completion/complete": `"ref":{"type":"ref/prompt","name":"nothing"},"argument":{"name":"a","value":"b"}`,
		} {
			_, err := e.Call(ctx, &Message{Method: method, Params: json.RawMessage(`{` + params + meta + `}`), State: state}, &recorder{})
			assert.ErrorContains(t, err, "neither a result nor an error", method)
		}
	}
}

// A handler leaves a question behind, with a context of its own, and returns: the call is over all the same.
func TestAQuestionThatWasLeftBehindEndsWithTheCall(t *testing.T) {
	s := newServer(nil)
	asked := make(chan error, 1)
	addTool(s, "leave", func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		begun := make(chan struct{})
		go func() {
			close(begun)
			_, err := req.Session.Elicit(context.WithoutCancel(ctx), &mcp.ElicitParams{Message: "?"})
			asked <- err
		}()
		<-begun
		return text("done"), nil
	})
	silent := &silentClient{}
	result, err := New(s, nil).Call(t.Context(), call("leave"), silent)
	require.NoError(t, err)
	assert.Equal(t, "done", firstText(t, result))
	assert.Error(t, <-asked)
}

// silentClient never answers.
type silentClient struct{ recorder }

func (*silentClient) Ask(string, json.RawMessage, func(json.RawMessage, *jsonrpc.Error)) {}

// The SDK's errors about params quote them, with the state of the handler's that is in them.
func TestErrorsDoNotQuoteParams(t *testing.T) {
	s := newServer(nil)
	addTool(s, "x", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return text("ran"), nil })
	_, err := New(s, nil).Call(t.Context(), &Message{Method: "tools/call",
		Params: json.RawMessage(`{"name":"x","requestState":"secret","inputResponses":{"who":5},` + modernMeta + `}`)}, &recorder{})
	wire, ok := errors.AsType[*jsonrpc.Error](err)
	require.True(t, ok)
	assert.EqualValues(t, jsonrpc.CodeInvalidParams, wire.Code)
	assert.NotContains(t, wire.Message, "secret")
}
