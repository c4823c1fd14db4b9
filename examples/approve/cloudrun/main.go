// Command cloudrun serves the refunds on Google Cloud Run, with the sessions in the project's Firestore database; it
// pays nothing, it only logs. The endpoint is /mcp. GOOGLE_CLOUD_PROJECT names another project than the one that it
// runs in.
//
// A client of 2025-11-25 is asked by a call that ends with its question: people think for longer than instances live,
// and so the question outlives the one that asked it. Older clients cannot be asked so; a call of theirs waits for the
// answer.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"

	gcfirestore "cloud.google.com/go/firestore"

	"github.com/hydrant-mcp/hydrant/adapters/cloudrun"
	"github.com/hydrant-mcp/hydrant/examples/approve"
	"github.com/hydrant-mcp/hydrant/handler"
	"github.com/hydrant-mcp/hydrant/store/firestore"
)

func main() {
	slog.SetDefault(slog.New(cloudrun.NewLogHandler(os.Stderr, nil)))
	if err := run(context.Background()); err != nil {
		slog.Error("the server failed", "error", err)
		os.Exit(1)
	}
}

// run serves until SIGTERM, or until ctx ends.
func run(ctx context.Context, opts ...cloudrun.Option) error {
	project := cmp.Or(os.Getenv("GOOGLE_CLOUD_PROJECT"), gcfirestore.DetectProjectID)
	client, err := gcfirestore.NewClient(ctx, project)
	if err != nil {
		return fmt.Errorf("opening Firestore: %w", err)
	}
	defer func() { _ = client.Close() }()
	h := approve.NewHandler(approve.LogOnly, firestore.New(client, firestore.DefaultPrefix),
		&handler.Options{Ask: handler.AskSuspend})
	return cloudrun.Serve(ctx, h, append(opts, cloudrun.WithPath("/mcp"))...)
}
