// Command cloudrun is the quickstart's server on Google Cloud Run: one tool, sessions in Firestore.
//
// It needs a Firestore database in native mode, with firestore.indexes.json deployed, and a service account with the role
// roles/datastore.user. HYDRANT_TABLE is the prefix of the collections, "hydrant" by default.
package main

import (
	"context"
	"log/slog"
	"os"

	gcfirestore "cloud.google.com/go/firestore"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/hydrant-mcp/hydrant/adapters/cloudrun"
	"github.com/hydrant-mcp/hydrant/handler"
	"github.com/hydrant-mcp/hydrant/store/firestore"
)

type greetInput struct {
	Name string `json:"name" jsonschema:"who to greet"`
}

func greet(ctx context.Context, _ *mcp.CallToolRequest, in greetInput) (*mcp.CallToolResult, any, error) {
	slog.InfoContext(ctx, "greeting") // with the request's trace
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "Hello, " + in.Name + "!"}}}, nil, nil
}

func main() {
	slog.SetDefault(slog.New(cloudrun.NewLogHandler(os.Stderr, nil)))
	if err := run(context.Background()); err != nil {
		slog.Error("the server failed", "error", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	client, err := gcfirestore.NewClient(ctx, gcfirestore.DetectProjectID)
	if err != nil {
		return err
	}
	defer client.Close()

	server := mcp.NewServer(&mcp.Implementation{Name: "quickstart", Version: "1.0.0"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "greet", Description: "Greets somebody."}, greet)
	h := handler.New(server, firestore.New(client, os.Getenv("HYDRANT_TABLE")), nil)
	return cloudrun.Serve(ctx, h, cloudrun.WithPath("/mcp"))
}
