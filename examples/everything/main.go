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
	"time"

	"github.com/hydrant-mcp/hydrant/examples/everything/config"
)

// grace is how long calls may go on after SIGTERM. Cloud Run kills an instance after 10 seconds.
const grace = 9 * time.Second

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
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))

	mux := http.NewServeMux()
	mux.Handle("/mcp", c.Handler(st, logger))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "ok\n")
	})
	// No time-out on reading or writing: a stream may take as long as it takes, and the handler bounds what it waits for.
	hs := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}

	listener, err := net.Listen("tcp", c.Addr)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(stdout, "everything: listening on http://%s/mcp with the %s store\n", listener.Addr(), c.Store)

	failed := make(chan error, 1)
	go func() { failed <- hs.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	if err := hs.Shutdown(ctx); err != nil {
		logger.Warn("calls were cut off: they took longer than the shutdown may", "grace", grace)
		return hs.Close()
	}
	return nil
}
