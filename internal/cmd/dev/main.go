// Command dev is the local loop: `make dev`.
//
//	[PORT=8080] [STORE=dynamodb] go run ./internal/cmd/dev
//
// It starts an emulator of the store, two instances of examples/everything on it, named A and B, and a proxy on one port
// that sends every request to the next of them, as the cloud does. First it shows that a session survives both the
// hopping and the loss of an instance; then it stays up until Ctrl-C. An instance that ends is started again. The logs of
// all appear in one place, each line with the name of where it comes from, and HYDRANT_… variables reach the instances.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hydrant-mcp/hydrant/internal/emulator"
	"github.com/hydrant-mcp/hydrant/internal/harness"
)

const (
	// away is how long an instance that has ended stays away: long enough to see that nobody misses it.
	away = 2 * time.Second
	// watchEvery is how often it is looked whether the instances run.
	watchEvery = 100 * time.Millisecond
)

// names are those of the instances.
var names = []string{"A", "B"}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Environ(), os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "dev:", err)
		os.Exit(1)
	}
}

// run is the command, until ctx ends.
func run(ctx context.Context, environ []string, stdout io.Writer) (err error) {
	env := make(map[string]string)
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		env[name] = value
	}
	out := &printer{out: stdout}
	// First of all: the likeliest thing to go wrong is that something listens there already.
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", cmp.Or(env["PORT"], "8080")))
	if err != nil {
		return err
	}
	defer listener.Close()
	dir, err := os.MkdirTemp("", "hydrant-dev-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	store, endpoint, stop, err := startStore(ctx, env["STORE"], out)
	if err != nil {
		return err
	}
	defer stop()
	out.line("dev", "building and starting two instances of examples/everything")
	cluster, err := harness.Start(ctx, harness.Config{
		Instances: len(names), Store: store, Endpoint: endpoint, Dir: dir, Env: forInstances(env),
	})
	if err != nil {
		return err
	}
	defer cluster.Stop()

	ctx, cancel := context.WithCancel(ctx)
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer cancel()
	for i, name := range names {
		tasks.Go(func() { follow(ctx, filepath.Join(dir, fmt.Sprintf("instance-%d.log", i+1)), out, name) })
		tasks.Go(func() { watch(ctx, cluster, i, out) })
	}
	front := newFront(cluster, out)
	tasks.Go(func() { _ = front.Serve(listener) })
	defer front.Close()

	url := "http://" + listener.Addr().String() + "/mcp"
	if err := demo(ctx, url, cluster, out); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("the demonstration failed: %w", err)
	}
	out.line("dev", "")
	out.line("dev", "ready: %s, every request to the next instance. Ctrl-C ends everything.", url)
	for i, p := range cluster.Processes {
		out.line("dev", "       %s alone: %s", names[i], p.URL())
	}
	<-ctx.Done()
	return nil
}

// startStore starts the emulator of the store that was asked for, or else of the first that there is.
func startStore(ctx context.Context, name string, out *printer) (harness.Store, string, func(), error) {
	wanted := []harness.Store{harness.DynamoDB, harness.Firestore}
	if name != "" {
		store, err := harness.ParseStore(name)
		if err != nil {
			return "", "", nil, fmt.Errorf("STORE: %w", err)
		}
		if store == harness.Memory {
			return "", "", nil, errors.New("STORE: two processes share no memory: dynamodb or firestore")
		}
		wanted = []harness.Store{store}
	}
	var missing error
	for _, store := range wanted {
		endpoint, stop, err := harness.Emulator(ctx, store)
		if err == nil {
			out.line("dev", "the emulator of %s listens on %s", store, endpoint)
			return store, endpoint, stop, nil
		}
		if !errors.Is(err, emulator.ErrMissing) {
			return "", "", nil, err
		}
		missing = errors.Join(missing, err)
	}
	return "", "", nil, missing
}

// forInstances are the variables that the user has set for the server, but for where it keeps its sessions.
func forInstances(env map[string]string) map[string]string {
	chosen := make(map[string]string)
	for name, value := range env {
		if strings.HasPrefix(name, "HYDRANT_") && name != "HYDRANT_STORE" {
			chosen[name] = value
		}
	}
	return chosen
}

// watch starts an instance again a moment after it has ended, whoever ended it.
func watch(ctx context.Context, cluster *harness.Cluster, i int, out *printer) {
	p := cluster.Processes[i]
	for wait(ctx, watchEvery) {
		if p.Running() {
			continue
		}
		cluster.Proxy.Forget()
		// Ctrl-C in a terminal ends the instances too; that is no news.
		if !wait(ctx, watchEvery) {
			return
		}
		out.line("dev", "%s is gone; it comes back in %v", names[i], away)
		if !wait(ctx, away) {
			return
		}
		if err := p.Start(ctx); err != nil {
			out.line("dev", "%s does not start: %v", names[i], err)
			continue
		}
		out.line("dev", "%s is back", names[i])
	}
}

// wait waits, and says whether ctx goes on.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
