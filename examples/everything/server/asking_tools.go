//lint:file-ignore SA1019 Sampling is deprecated as of 2026-07-28 and stays in the suite and in use.

package server

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// addAskingTools adds the suite's tools that ask the client in the middle of a call and wait for its answer. Only legacy
// clients can be asked so; the SDK refuses it for modern ones, and the tool fails.
func addAskingTools(s *mcp.Server) {
	mcp.AddTool(s, &mcp.Tool{
		Name: "test_sampling", Description: "Asks the client's model.",
		InputSchema: requiredString("prompt", "what to ask"),
	}, samplingTool)
	mcp.AddTool(s, &mcp.Tool{
		Name: "test_elicitation", Description: "Asks the user for a name and an address.",
		InputSchema: requiredString("message", "what to tell the user"),
	}, elicitationTool)
	mcp.AddTool(s, &mcp.Tool{
		Name: "test_elicitation_sep1034_defaults", Description: "Asks with a default for every kind of value.",
		InputSchema: noInput,
	}, asks("Please review the defaults.", defaultsForm))
	mcp.AddTool(s, &mcp.Tool{
		Name: "test_elicitation_sep1330_enums", Description: "Asks with every form of enumeration.",
		InputSchema: noInput,
	}, asks("Please choose.", enumsForm))
}

// requiredString is the schema of a tool that takes one string.
func requiredString(name, description string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(
		`{"type":"object","properties":{%q:{"type":"string","description":%q}},"required":[%[1]q]}`, name, description))
}

type samplingInput struct {
	Prompt string `json:"prompt"`
}

func samplingTool(
	ctx context.Context, req *mcp.CallToolRequest, in samplingInput,
) (*mcp.CallToolResult, any, error) {
	// CreateMessage would send sampling/createMessage to a client that never said that it can answer.
	if caps := req.ClientCapabilities(); caps == nil || caps.Sampling == nil {
		return nil, nil, fmt.Errorf("the client does not support sampling")
	}
	answer, err := req.Session.CreateMessage(ctx, samplingQuestion(in.Prompt, 100))
	if err != nil {
		return nil, nil, fmt.Errorf("asking the client's model: %w", err)
	}
	if t, ok := answer.Content.(*mcp.TextContent); ok {
		return text("LLM response: %s", t.Text), nil, nil
	}
	return text("LLM response: (not a text)"), nil, nil
}

// samplingQuestion asks a model for at most maxTokens tokens.
func samplingQuestion(prompt string, maxTokens int64) *mcp.CreateMessageParams {
	return &mcp.CreateMessageParams{
		Messages:  []*mcp.SamplingMessage{{Role: "user", Content: &mcp.TextContent{Text: prompt}}},
		MaxTokens: maxTokens,
	}
}

type messageInput struct {
	Message string `json:"message"`
}

func elicitationTool(
	ctx context.Context, req *mcp.CallToolRequest, in messageInput,
) (*mcp.CallToolResult, any, error) {
	return asks(in.Message, json.RawMessage(`{
		"type": "object",
		"properties": {
			"username": {"type": "string", "description": "User's response"},
			"email": {"type": "string", "description": "User's email address"}
		},
		"required": ["username", "email"]
	}`))(ctx, req, nil)
}

// asks makes a tool that shows the user a form and returns what came back.
func asks(message string, form json.RawMessage) mcp.ToolHandlerFor[any, any] {
	return func(ctx context.Context, req *mcp.CallToolRequest, _ any) (*mcp.CallToolResult, any, error) {
		answer, err := req.Session.Elicit(ctx, &mcp.ElicitParams{Message: message, RequestedSchema: form})
		if err != nil {
			return nil, nil, fmt.Errorf("asking the user: %w", err)
		}
		got, err := json.Marshal(answer.Content)
		if err != nil {
			return nil, nil, err
		}
		return text("Elicitation completed: action=%s, content=%s", answer.Action, got), nil, nil
	}
}

// defaultsForm has a default for every primitive type (SEP-1034).
var defaultsForm = json.RawMessage(`{
	"type": "object",
	"properties": {
		"name": {"type": "string", "default": "John Doe"},
		"age": {"type": "integer", "default": 30},
		"score": {"type": "number", "default": 95.5},
		"status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
		"verified": {"type": "boolean", "default": true}
	}
}`)

// enumsForm has every form of enumeration (SEP-1330).
var enumsForm = json.RawMessage(`{
	"type": "object",
	"properties": {
		"untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
		"titledSingle": {"type": "string", "oneOf": [
			{"const": "value1", "title": "First Option"},
			{"const": "value2", "title": "Second Option"},
			{"const": "value3", "title": "Third Option"}
		]},
		"legacyEnum": {
			"type": "string",
			"enum": ["opt1", "opt2", "opt3"],
			"enumNames": ["Option One", "Option Two", "Option Three"]
		},
		"untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["option1", "option2", "option3"]}},
		"titledMulti": {"type": "array", "items": {"anyOf": [
			{"const": "value1", "title": "First Choice"},
			{"const": "value2", "title": "Second Choice"},
			{"const": "value3", "title": "Third Choice"}
		]}}
	}
}`)
