// Command everything serves the MCP server of the "everything" example over HTTP, configured by environment variables
// only. The endpoint is /mcp, health is /healthz.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"github.com/hydrant-mcp/hydrant/adapters/cloudrun"
	"github.com/hydrant-mcp/hydrant/examples/everything/config"
	"github.com/hydrant-mcp/hydrant/identity"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := run(ctx, os.Getenv, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "everything:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends and the calls that are under way have had their time.
func run(ctx context.Context, getenv func(string) string, stdout io.Writer) (err error) {
	c, err := config.Load(getenv)
	if err != nil {
		return err
	}
	st, shut, err := c.OpenStore(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, shut()) }()
	onCloudRun := getenv("K_SERVICE") != ""
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if onCloudRun {
		logger = slog.New(cloudrun.NewLogHandler(os.Stderr, nil))
	}

	var baseURL func(*http.Request) string
	if onCloudRun {
		baseURL = identity.CloudRunBaseURL
	}
	h, err := c.Handler(ctx, st, logger, baseURL)
	if err != nil {
		return err
	}

	listener, err := net.Listen("tcp", c.Addr)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(stdout, "everything: listening on http://%s%s with the %s store\n",
		listener.Addr(), config.Path, c.Store)

	opts := []cloudrun.Option{cloudrun.WithListener(listener), cloudrun.WithLogger(logger)}
	if !onCloudRun {
		opts = append(opts, cloudrun.WithRequestTimeout(0)) // nobody but the handler bounds a request here
	}
	return cloudrun.Serve(ctx, h, opts...)
}
