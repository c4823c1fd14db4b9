// Command cloudrun serves the notes on Google Cloud Run, with the notes and the sessions in the project's Firestore
// database. The endpoint is /mcp. GOOGLE_CLOUD_PROJECT names another project than the one that it runs in, and HYDRANT_KEYS
// has the keys that the instances share, in place of one in the database.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"

	gcfirestore "cloud.google.com/go/firestore"

	"github.com/hydrant-mcp/hydrant/adapters/cloudrun"
	"github.com/hydrant-mcp/hydrant/examples/notes"
	notesfirestore "github.com/hydrant-mcp/hydrant/examples/notes/firestore"
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
	keys, err := notes.ParseKeys(os.Getenv("HYDRANT_KEYS"))
	if err != nil {
		return err
	}
	project := cmp.Or(os.Getenv("GOOGLE_CLOUD_PROJECT"), gcfirestore.DetectProjectID)
	client, err := gcfirestore.NewClient(ctx, project)
	if err != nil {
		return fmt.Errorf("opening Firestore: %w", err)
	}
	defer func() { _ = client.Close() }()
	h := notes.NewHandler(
		notesfirestore.New(client, "notes"),
		firestore.New(client, firestore.DefaultPrefix),
		&handler.Options{Keys: keys},
	)
	return cloudrun.Serve(ctx, h, append(opts, cloudrun.WithPath("/mcp"))...)
}
