//lint:file-ignore SA1019 Sampling and roots are deprecated as of 2026-07-28 and stay in the suite and in use.

package server

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// addInputRequiredTools adds the suite's tools that ask by returning their questions and being called again with the
// answers (multi round-trip requests, SEP-2322).
func addInputRequiredTools(s *mcp.Server, states signer) {
	rounds := inputRequired{states}
	for _, t := range []struct {
		name, description string
		handler           mcp.ToolHandlerFor[any, any]
	}{
		{"elicitation", "Asks the user for a name.", rounds.elicitation},
		{"sampling", "Asks the client's model.", rounds.sampling},
		{"list_roots", "Asks for the client's roots.", rounds.listRoots},
		{"request_state", "Asks for a confirmation and gives a state to bring back.", rounds.confirmation},
		{"tampered_state", "Refuses a state that has been changed.", rounds.confirmation},
		{"multiple_inputs", "Asks the user, the model and for the roots at once.", rounds.multipleInputs},
		{"multi_round", "Asks twice, one question after the other.", rounds.multiRound},
		{"capabilities", "Asks only what the client says it can answer.", rounds.capabilities},
	} {
		mcp.AddTool(s, &mcp.Tool{
			Name: "test_input_required_result_" + t.name, Description: t.description, InputSchema: noInput,
		}, t.handler)
	}
}

type inputRequired struct{ states signer }

// The forms of the questions.
var (
	nameForm    = oneProperty("name", "string")
	colorForm   = oneProperty("color", "string")
	contextForm = oneProperty("context", "string")
	okForm      = oneProperty("ok", "boolean")
)

func oneProperty(name, typ string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(
		`{"type":"object","properties":{%q:{"type":%q}},"required":[%[1]q]}`, name, typ))
}

func elicit(message string, form json.RawMessage) *mcp.ElicitParams {
	return &mcp.ElicitParams{Message: message, RequestedSchema: form}
}

// ask makes the result that asks for input.
func ask(questions mcp.InputRequestMap, state string) *mcp.CallToolResult {
	return &mcp.CallToolResult{InputRequests: questions, RequestState: state}
}

// accepted returns what the user filled in for a question; nil when the question has not been answered, or was declined.
func accepted(answers mcp.InputResponseMap, key string) map[string]any {
	if a, ok := answers[key].(*mcp.ElicitResult); ok && a != nil && a.Action == "accept" {
		return a.Content
	}
	return nil
}

// acceptedString returns one property of what the user filled in, "" when it is not there or not a string.
func acceptedString(answers mcp.InputResponseMap, key, property string) string {
	v, _ := accepted(answers, key)[property].(string)
	return v
}

// sampled returns the text with which the client's model answered a question.
func sampled(answers mcp.InputResponseMap, key string) (string, bool) {
	// The SDK decodes every answer of a model into this type, which holds several blocks.
	a, ok := answers[key].(*mcp.CreateMessageWithToolsResult)
	if !ok || a == nil {
		return "", false
	}
	for _, c := range a.Content {
		if t, ok := c.(*mcp.TextContent); ok {
			return t.Text, true
		}
	}
	return "(not a text)", true
}

func roots(answers mcp.InputResponseMap, key string) ([]*mcp.Root, bool) {
	a, ok := answers[key].(*mcp.ListRootsResult)
	if !ok || a == nil {
		return nil, false
	}
	return a.Roots, true
}

func (inputRequired) elicitation(
	_ context.Context, req *mcp.CallToolRequest, _ any,
) (*mcp.CallToolResult, any, error) {
	if name := acceptedString(req.Params.InputResponses, "user_name", "name"); name != "" {
		return text("Hello, %s!", name), nil, nil
	}
	return ask(mcp.InputRequestMap{"user_name": elicit("What is your name?", nameForm)}, ""), nil, nil
}

func (inputRequired) sampling(
	_ context.Context, req *mcp.CallToolRequest, _ any,
) (*mcp.CallToolResult, any, error) {
	if answer, ok := sampled(req.Params.InputResponses, "capital_question"); ok {
		return text("Sampling response: %s", answer), nil, nil
	}
	return ask(mcp.InputRequestMap{
		"capital_question": samplingQuestion("What is the capital of France?", 100),
	}, ""), nil, nil
}

func (inputRequired) listRoots(
	_ context.Context, req *mcp.CallToolRequest, _ any,
) (*mcp.CallToolResult, any, error) {
	if list, ok := roots(req.Params.InputResponses, "client_roots"); ok {
		uris := []string{}
		for _, r := range list {
			uris = append(uris, r.URI)
		}
		return text("%d roots: %v", len(uris), uris), nil, nil
	}
	return ask(mcp.InputRequestMap{"client_roots": &mcp.ListRootsParams{}}, ""), nil, nil
}

// confirmation takes an answer only together with the state that its question came with.
func (t inputRequired) confirmation(
	_ context.Context, req *mcp.CallToolRequest, _ any,
) (*mcp.CallToolResult, any, error) {
	use := req.Params.Name
	if state := req.Params.RequestState; state != "" {
		if _, err := t.states.verify(use, state); err != nil {
			return nil, nil, invalidParams("%v", err)
		}
		if ok, _ := accepted(req.Params.InputResponses, "confirm")["ok"].(bool); ok {
			return text("state-ok: confirmed"), nil, nil
		}
	}
	return ask(mcp.InputRequestMap{"confirm": elicit("Please confirm", okForm)}, t.states.sign(use, "asked")), nil, nil
}

func (t inputRequired) multipleInputs(
	_ context.Context, req *mcp.CallToolRequest, _ any,
) (*mcp.CallToolResult, any, error) {
	use := req.Params.Name
	if state := req.Params.RequestState; state != "" {
		if _, err := t.states.verify(use, state); err != nil {
			return nil, nil, invalidParams("%v", err)
		}
		name := acceptedString(req.Params.InputResponses, "user_name", "name")
		greeting, greeted := sampled(req.Params.InputResponses, "greeting")
		list, listed := roots(req.Params.InputResponses, "client_roots")
		if name != "" && greeted && listed {
			return text("%s, %s! Your client has %d roots.", greeting, name, len(list)), nil, nil
		}
	}
	return ask(mcp.InputRequestMap{
		"user_name":    elicit("What is your name?", nameForm),
		"greeting":     samplingQuestion("Generate a greeting", 50),
		"client_roots": &mcp.ListRootsParams{},
	}, t.states.sign(use, "asked")), nil, nil
}

// multiRound keeps what it has learned so far, the name, in the state of its second question.
func (t inputRequired) multiRound(
	_ context.Context, req *mcp.CallToolRequest, _ any,
) (*mcp.CallToolResult, any, error) {
	use := req.Params.Name
	var progress struct {
		Round int    `json:"round"`
		Name  string `json:"name"`
	}
	if state := req.Params.RequestState; state != "" {
		payload, err := t.states.verify(use, state)
		if err != nil {
			return nil, nil, invalidParams("%v", err)
		}
		if err := json.Unmarshal([]byte(payload), &progress); err != nil {
			return nil, nil, err
		}
	}
	name := acceptedString(req.Params.InputResponses, "step1", "name")
	color := acceptedString(req.Params.InputResponses, "step2", "color")
	var question mcp.InputRequestMap
	switch {
	case progress.Round == 2 && color != "":
		return text("%s likes %s.", progress.Name, color), nil, nil
	case progress.Round == 2:
		question = mcp.InputRequestMap{"step2": elicit("Step 2: What is your favorite color?", colorForm)}
	case progress.Round == 1 && name != "":
		progress.Round, progress.Name = 2, name
		question = mcp.InputRequestMap{"step2": elicit("Step 2: What is your favorite color?", colorForm)}
	default:
		progress.Round = 1
		question = mcp.InputRequestMap{"step1": elicit("Step 1: What is your name?", nameForm)}
	}
	payload, err := json.Marshal(progress)
	if err != nil {
		return nil, nil, err
	}
	return ask(question, t.states.sign(use, string(payload))), nil, nil
}

// capabilities asks only what the client has declared that it can answer.
func (inputRequired) capabilities(
	_ context.Context, req *mcp.CallToolRequest, _ any,
) (*mcp.CallToolResult, any, error) {
	if len(req.Params.InputResponses) > 0 {
		return text("%d answers came back.", len(req.Params.InputResponses)), nil, nil
	}
	questions := mcp.InputRequestMap{}
	if caps := req.ClientCapabilities(); caps != nil {
		if caps.Elicitation != nil {
			questions["user_name"] = elicit("What is your name?", nameForm)
		}
		if caps.Sampling != nil {
			questions["greeting"] = samplingQuestion("Generate a greeting", 50)
		}
		if caps.RootsV2 != nil {
			questions["client_roots"] = &mcp.ListRootsParams{}
		}
	}
	if len(questions) == 0 {
		return text("The client has declared nothing that it could be asked for."), nil, nil
	}
	return ask(questions, ""), nil, nil
}
