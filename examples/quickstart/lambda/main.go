// Command lambda is the quickstart on AWS Lambda: one tool, sessions in the DynamoDB table that HYDRANT_TABLE names. The
// endpoint is /mcp.
package main

import (
	"cmp"
	"context"
	"log"
	"net/http"
	"os"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/hydrant-mcp/hydrant/adapters/lambda"
	"github.com/hydrant-mcp/hydrant/handler"
	"github.com/hydrant-mcp/hydrant/store/dynamo"
)

type greetInput struct {
	Name string `json:"name" jsonschema:"who to greet"`
}

func greet(_ context.Context, _ *mcp.CallToolRequest, in greetInput) (*mcp.CallToolResult, any, error) {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "Hello, " + in.Name + "!"}}}, nil, nil
}

func main() {
	server := mcp.NewServer(&mcp.Implementation{Name: "quickstart", Version: "1.0.0"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "greet", Description: "Greets somebody."}, greet)

	aws, err := config.LoadDefaultConfig(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	sessions := dynamo.New(dynamodb.NewFromConfig(aws), cmp.Or(os.Getenv("HYDRANT_TABLE"), "hydrant"))

	mux := http.NewServeMux()
	mux.Handle("/mcp", handler.New(server, sessions, nil))
	lambda.Start(mux)
}
