// Command lambda serves the "everything" example on AWS Lambda, configured by the same environment variables as everywhere
// (but for PORT and HOST), and by HYDRANT_STREAMING: 1 where the Function URL or the REST API streams. The endpoint is
// /mcp.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"

	"github.com/hydrant-mcp/hydrant/adapters/lambda"
	"github.com/hydrant-mcp/hydrant/examples/everything/config"
	"github.com/hydrant-mcp/hydrant/identity/awsidentity"
)

func main() {
	h, opts, err := load(context.Background(), os.Getenv)
	if err != nil {
		fmt.Fprintln(os.Stderr, "everything:", err)
		os.Exit(1)
	}
	lambda.Start(h, opts...)
}

// load opens the store once, while Lambda starts the environment, not in the first request.
func load(ctx context.Context, getenv func(string) string) (http.Handler, []lambda.Option, error) {
	c, err := config.Load(getenv)
	if err != nil {
		return nil, nil, err
	}
	opts, err := options(getenv)
	if err != nil {
		return nil, nil, err
	}
	st, _, err := c.OpenStore(ctx) // it is shut with the process
	if err != nil {
		return nil, nil, err
	}
	h, err := c.Handler(ctx, st, slog.New(slog.NewJSONHandler(os.Stderr, nil)), awsidentity.BaseURL)
	return h, opts, err
}

func options(getenv func(string) string) ([]lambda.Option, error) {
	switch v := getenv("HYDRANT_STREAMING"); v {
	case "", "0":
		return nil, nil
	case "1":
		return []lambda.Option{lambda.WithStreaming()}, nil
	default:
		return nil, fmt.Errorf("HYDRANT_STREAMING: %q is neither 0 nor 1", v)
	}
}
