// Command lambda is the quickstart on AWS Lambda: one tool, sessions in the DynamoDB table that HYDRANT_TABLE names. The
// endpoint is /mcp.
package main

import (
	"cmp"
	"context"
	"os"

	"github.com/aws/aws-sdk-go-v2/credentials"
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

	sessions := dynamo.New(newClient(), cmp.Or(os.Getenv("HYDRANT_TABLE"), "hydrant"))
	lambda.Start(handler.At("/mcp", handler.New(server, sessions, nil)))
}

// newClient takes what Lambda puts into a function's environment. config.LoadDefaultConfig would do as well: it knows
// every other way to configure AWS too, and adds 2 MB and a millisecond to each cold start.
func newClient() *dynamodb.Client {
	options := dynamodb.Options{
		Region: os.Getenv("AWS_REGION"),
		Credentials: credentials.NewStaticCredentialsProvider(
			os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY"), os.Getenv("AWS_SESSION_TOKEN")),
	}
	if emulator := os.Getenv("AWS_ENDPOINT_URL_DYNAMODB"); emulator != "" {
		options.BaseEndpoint = &emulator
	}
	return dynamodb.New(options)
}
