// Command local runs two instances of the server that share nothing but a store in memory, each on a port of its own:
// those that PORTS names, 8081,8082 by default. They stand for two containers of a service; STEP is how long a step of
// the work takes, a second by default.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/hydrant-mcp/hydrant/examples/longrun"
	"github.com/hydrant-mcp/hydrant/handler"
	"github.com/hydrant-mcp/hydrant/store/memory"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Getenv, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "longrun:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, getenv func(string) string, stdout io.Writer) error {
	step, err := time.ParseDuration(cmp.Or(getenv("STEP"), "1s"))
	if err != nil {
		return fmt.Errorf("STEP: %w", err)
	}
	sessions := memory.New()
	failed := make(chan error, 1)
	for port := range strings.SplitSeq(cmp.Or(getenv("PORTS"), "8081,8082"), ",") {
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port))
		if err != nil {
			return err
		}
		h := handler.New(longrun.NewServer(longrun.Pause(step)), sessions, nil)
		server := &http.Server{Handler: handler.At("/mcp", h)}
		defer server.Close()
		go func() {
			if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
				failed <- err
			}
		}()
		_, _ = fmt.Fprintf(stdout, "longrun: an instance listens on http://%s/mcp\n", listener.Addr())
	}
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}
