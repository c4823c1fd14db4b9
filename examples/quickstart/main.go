// Command quickstart is the smallest useful server: one tool, sessions in memory, http://127.0.0.1:8080/mcp.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/hydrant-mcp/hydrant/handler"
	"github.com/hydrant-mcp/hydrant/store/memory"
)

type greetInput struct {
	Name string `json:"name" jsonschema:"who to greet"`
}

// greet is a tool. Its argument's type is its schema: the SDK checks what comes in before it calls it.
func greet(_ context.Context, _ *mcp.CallToolRequest, in greetInput) (*mcp.CallToolResult, any, error) {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "Hello, " + in.Name + "!"}}}, nil, nil
}

// newHandler puts Hydrant in front of a server that is written with the official SDK.
func newHandler() http.Handler {
	server := mcp.NewServer(&mcp.Implementation{Name: "quickstart", Version: "1.0.0"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "greet", Description: "Greets somebody."}, greet)
	return handler.At("/mcp", handler.New(server, memory.New(), nil))
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:"+cmp.Or(os.Getenv("PORT"), "8080"))
	if err != nil {
		log.Fatal(err)
	}
	url := fmt.Sprintf("http://%s/mcp", listener.Addr())
	fmt.Printf("MCP server on %s. Try it:\n\n%s\n\n", url, try(url))
	log.Fatal(http.Serve(listener, newHandler()))
}
