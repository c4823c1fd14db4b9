//lint:file-ignore SA1019 Sampling is deprecated as of 2026-07-28 and stays in the suite and in use.

package server

import (
	"context"
	"encoding/base64"
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The smallest files of their kinds: a PNG of one red pixel, and a WAV with one silent sample.
var (
	pixelPNG   = mustBase64("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==")
	silenceWAV = mustBase64("UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=")
)

func mustBase64(s string) []byte {
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return b
}

// schema2020 uses what JSON Schema 2020-12 has beyond the plain vocabulary. Clients must get it word for word (SEP-1613,
// SEP-2106).
var schema2020 = json.RawMessage(`{
	"$schema": "https://json-schema.org/draft/2020-12/schema",
	"type": "object",
	"$defs": {
		"address": {
			"$anchor": "addressDef",
			"type": "object",
			"properties": {"street": {"type": "string"}, "city": {"type": "string"}}
		}
	},
	"properties": {
		"name": {"type": "string"},
		"address": {"$ref": "#/$defs/address"},
		"contactMethod": {"type": "string", "enum": ["phone", "email"]},
		"phone": {"type": "string"},
		"email": {"type": "string"}
	},
	"allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
	"if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
	"then": {"required": ["phone"]},
	"else": {"required": ["email"]},
	"additionalProperties": false
}`)

// addContentTools adds the suite's tools that only answer: one for each kind of content, errors and schemas.
func addContentTools(s *mcp.Server) {
	image := &mcp.ImageContent{Data: pixelPNG, MIMEType: "image/png"}
	answers := []struct {
		name, description string
		content           []mcp.Content
	}{
		{"test_simple_text", "Returns a text.", []mcp.Content{
			&mcp.TextContent{Text: "This is a simple text response for testing."},
		}},
		{"test_image_content", "Returns an image.", []mcp.Content{image}},
		{"test_audio_content", "Returns a sound.", []mcp.Content{
			&mcp.AudioContent{Data: silenceWAV, MIMEType: "audio/wav"},
		}},
		{"test_embedded_resource", "Returns an embedded resource.", []mcp.Content{
			embeddedText("test://embedded-resource", "text/plain", "This is an embedded resource content."),
		}},
		{"test_multiple_content_types", "Returns a text, an image and a resource.", []mcp.Content{
			&mcp.TextContent{Text: "Multiple content types test:"},
			image,
			embeddedText("test://mixed-content-resource", "application/json", `{"test":"data","value":123}`),
		}},
		// SEP-2575: what goes out before the result may only be notifications, never a request of the server's.
		{"test_streaming_elicitation", "Answers without asking the client anything.", []mcp.Content{
			&mcp.TextContent{Text: "Answered without a request on the stream."},
		}},
	}
	for _, a := range answers {
		mcp.AddTool(s, &mcp.Tool{Name: a.name, Description: a.description, InputSchema: noInput},
			func(context.Context, *mcp.CallToolRequest, any) (*mcp.CallToolResult, any, error) {
				return content(a.content...), nil, nil
			})
	}
	mcp.AddTool(s, &mcp.Tool{
		Name: "test_error_handling", Description: "Fails, always.", InputSchema: noInput,
	}, func(context.Context, *mcp.CallToolRequest, any) (*mcp.CallToolResult, any, error) {
		r := text("This tool intentionally returns an error for testing")
		r.IsError = true
		return r, nil, nil
	})
	mcp.AddTool(s, &mcp.Tool{
		Name: "json_schema_2020_12_tool", Description: "Takes arguments of a JSON Schema 2020-12 schema.",
		InputSchema: schema2020,
	}, func(_ context.Context, _ *mcp.CallToolRequest, in map[string]any) (*mcp.CallToolResult, any, error) {
		r, err := jsonText(in)
		return r, nil, err
	})
	mcp.AddTool(s, &mcp.Tool{
		Name: "test_x_mcp_header", Description: "Takes a region that clients repeat in the header Mcp-Param-Region.",
		InputSchema: json.RawMessage(`{
			"type": "object",
			"properties": {"region": {"type": "string", "x-mcp-header": "Region"}, "level": {"type": "integer"}}
		}`),
	}, regional)
	mcp.AddTool(s, &mcp.Tool{
		Name: "test_missing_capability", Description: "Needs a client that can sample.", InputSchema: noInput,
	}, needsSampling)
}

func embeddedText(uri, mimeType, text string) *mcp.EmbeddedResource {
	return &mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: uri, MIMEType: mimeType, Text: text}}
}

type regionalInput struct {
	Region string `json:"region"`
	Level  int    `json:"level"`
}

func regional(_ context.Context, _ *mcp.CallToolRequest, in regionalInput) (*mcp.CallToolResult, any, error) {
	return text("region: %s", in.Region), nil, nil
}

// needsSampling refuses clients that have not declared the sampling capability, with the error that the specification
// has for it: https://modelcontextprotocol.io/seps/2575-stateless-mcp.
func needsSampling(_ context.Context, req *mcp.CallToolRequest, _ any) (*mcp.CallToolResult, any, error) {
	if caps := req.ClientCapabilities(); caps == nil || caps.Sampling == nil {
		data, err := json.Marshal(mcp.MissingRequiredClientCapabilityData{
			RequiredCapabilities: &mcp.ClientCapabilities{Sampling: &mcp.SamplingCapabilities{}},
		})
		if err != nil {
			return nil, nil, err
		}
		return nil, nil, &jsonrpc.Error{
			Code:    mcp.CodeMissingRequiredClientCapabilities,
			Message: "test_missing_capability needs the sampling capability, which the client has not declared",
			Data:    data,
		}
	}
	return text("The client can sample."), nil, nil
}
