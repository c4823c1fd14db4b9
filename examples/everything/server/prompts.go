package server

import (
	"context"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// simplePrompt is a value of its own: the tool test_trigger_prompt_change adds it again.
var simplePrompt = &mcp.Prompt{Name: "test_simple_prompt", Description: "A prompt without arguments."}

// addPrompts adds the suite's prompts.
func addPrompts(s *mcp.Server) {
	s.AddPrompt(simplePrompt, getSimplePrompt)
	s.AddPrompt(&mcp.Prompt{
		Name: "test_prompt_with_arguments", Description: "A prompt with two arguments.",
		Arguments: []*mcp.PromptArgument{
			{Name: "arg1", Description: "the first", Required: true},
			{Name: "arg2", Description: "the second", Required: true},
		},
	}, func(_ context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		args := req.Params.Arguments
		return prompt(&mcp.TextContent{
			Text: fmt.Sprintf("Prompt with arguments: arg1='%s', arg2='%s'", args["arg1"], args["arg2"]),
		}), nil
	})
	s.AddPrompt(&mcp.Prompt{
		Name: "test_prompt_with_embedded_resource", Description: "A prompt that embeds a resource.",
		Arguments: []*mcp.PromptArgument{{Name: "resourceUri", Description: "its URI", Required: true}},
	}, func(_ context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return prompt(
			embeddedText(req.Params.Arguments["resourceUri"], "text/plain", "Embedded resource content for testing."),
			&mcp.TextContent{Text: "Please process the embedded resource above."},
		), nil
	})
	s.AddPrompt(&mcp.Prompt{
		Name: "test_prompt_with_image", Description: "A prompt with an image.",
	}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return prompt(
			&mcp.ImageContent{Data: pixelPNG, MIMEType: "image/png"},
			&mcp.TextContent{Text: "Please analyze the image above."},
		), nil
	})
	s.AddPrompt(&mcp.Prompt{
		Name: "test_input_required_result_prompt", Description: "A prompt that asks the user for its context.",
	}, getAskingPrompt)
}

// prompt makes a result of one message of the user's for each content.
func prompt(contents ...mcp.Content) *mcp.GetPromptResult {
	r := &mcp.GetPromptResult{}
	for _, c := range contents {
		r.Messages = append(r.Messages, &mcp.PromptMessage{Role: "user", Content: c})
	}
	return r
}

func getSimplePrompt(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
	return prompt(&mcp.TextContent{Text: "This is a simple prompt for testing."}), nil
}

func getAskingPrompt(_ context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
	if c := acceptedString(req.Params.InputResponses, "user_context", "context"); c != "" {
		return prompt(&mcp.TextContent{Text: "Use this context: " + c}), nil
	}
	return &mcp.GetPromptResult{InputRequests: mcp.InputRequestMap{
		"user_context": elicit("What context should the prompt use?", contextForm),
	}}, nil
}

// complete suggests values for the first argument of test_prompt_with_arguments.
func complete(_ context.Context, req *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
	values := []string{} // never null
	if req.Params.Ref.Name == "test_prompt_with_arguments" && req.Params.Argument.Name == "arg1" {
		for _, v := range []string{"paris", "park", "party", "test"} {
			if strings.HasPrefix(v, req.Params.Argument.Value) {
				values = append(values, v)
			}
		}
	}
	return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: values, Total: len(values)}}, nil
}
