package server

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The parts of the template's URIs around the id.
const (
	templatePrefix = "test://template/"
	templateSuffix = "/data"
)

// addResources adds the suite's resources.
func addResources(s *mcp.Server) {
	s.AddResource(&mcp.Resource{
		URI: "test://static-text", Name: "static-text", Description: "A text.", MIMEType: "text/plain",
	}, reads(&mcp.ResourceContents{Text: "This is the content of the static text resource."}))
	s.AddResource(&mcp.Resource{
		URI: "test://static-binary", Name: "static-binary", Description: "An image.", MIMEType: "image/png",
	}, reads(&mcp.ResourceContents{Blob: pixelPNG}))
	s.AddResource(&mcp.Resource{
		URI: "test://watched-resource", Name: "watched-resource", MIMEType: "text/plain",
		Description: "A text to subscribe to. The tool touch announces updates of it.",
	}, reads(&mcp.ResourceContents{Text: "Watched resource content"}))
	s.AddResourceTemplate(&mcp.ResourceTemplate{
		URITemplate: templatePrefix + "{id}" + templateSuffix, Name: "template", MIMEType: "application/json",
		Description: "A document made for the id in its URI.",
	}, readTemplate)
}

// reads makes a handler that returns the same contents each time. The SDK fills in the URI and the media type, so every
// call gets a copy.
func reads(c *mcp.ResourceContents) mcp.ResourceHandler {
	return func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		mine := *c
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{&mine}}, nil
	}
}

func readTemplate(_ context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	uri := req.Params.URI
	id := strings.TrimSuffix(strings.TrimPrefix(uri, templatePrefix), templateSuffix)
	if id == "" {
		return nil, mcp.ResourceNotFoundError(uri)
	}
	doc, err := json.Marshal(struct {
		ID           string `json:"id"`
		TemplateTest bool   `json:"templateTest"`
		Data         string `json:"data"`
	}{id, true, "Data for ID: " + id})
	if err != nil {
		return nil, err
	}
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: uri, Text: string(doc)}}}, nil
}
