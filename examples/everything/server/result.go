package server

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// noInput is the schema of a tool that takes nothing. It is not closed: clients do send stray arguments, and the
// conformance suite does too.
var noInput = json.RawMessage(`{"type":"object"}`)

// text makes a result of one text block.
func text(format string, args ...any) *mcp.CallToolResult {
	return content(&mcp.TextContent{Text: fmt.Sprintf(format, args...)})
}

// content makes a result of the blocks given.
func content(blocks ...mcp.Content) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: blocks}
}

// jsonText makes a result of one text block that is v in JSON.
func jsonText(v any) (*mcp.CallToolResult, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encoding the result: %w", err)
	}
	return content(&mcp.TextContent{Text: string(b)}), nil
}

// invalidParams is a JSON-RPC error, as opposed to a result with isError: the request itself is wrong.
func invalidParams(format string, args ...any) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf(format, args...)}
}

// object returns the arguments of a raw tool as they were sent. Absent and null are the empty object; what is not an
// object at all is an invalid request.
func object(req *mcp.CallToolRequest) (json.RawMessage, error) {
	args := bytes.TrimSpace(req.Params.Arguments)
	switch {
	case len(args) == 0, string(args) == "null":
		return json.RawMessage("{}"), nil
	case args[0] != '{':
		return nil, invalidParams("the arguments of %s must be an object", req.Params.Name)
	}
	return req.Params.Arguments, nil
}
