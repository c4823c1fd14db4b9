package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/hydrant-mcp/hydrant/internal/harness"
)

// demoTimeout bounds the demonstration.
const demoTimeout = time.Minute

// demo shows with a real client that a session survives hopping between the instances, and the loss of the one that it
// began on. The client speaks 2025-11-25, where a client has a session.
func demo(ctx context.Context, url string, cluster *harness.Cluster, out *printer) error {
	ctx, cancel := context.WithTimeout(ctx, demoTimeout)
	defer cancel()
	var who lastServedBy
	say := func(format string, args ...any) { out.line("demo", format, args...) }

	say("")
	say("a client connects, is sent from instance to instance, and loses the one it began on:")
	client := mcp.NewClient(&mcp.Implementation{Name: "hydrant-dev", Version: "1"}, nil)
	session, err := client.Connect(ctx, &mcp.StreamableClientTransport{
		Endpoint: url, DisableStandaloneSSE: true, MaxRetries: -1, HTTPClient: &http.Client{Transport: &who},
	}, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	if err != nil {
		return err
	}
	first := who.initialize.Load().(string)
	say("1. initialize: answered by %s, which made the session", first)

	call := func() (string, error) {
		result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"text": "hello"}})
		if err != nil {
			return "", err
		}
		if result.IsError {
			return "", errors.New("the tool failed")
		}
		return who.last.Load().(string), nil
	}
	// callOn calls until the proxy's turn comes to an instance that is good.
	callOn := func(good func(name string) bool) (string, error) {
		for range 2 * len(names) {
			name, err := call()
			if err != nil || good(name) {
				return name, err
			}
		}
		return "", errors.New("the proxy never came to the other instance")
	}

	name, err := callOn(func(name string) bool { return name != first })
	if err != nil {
		return fmt.Errorf("calling a tool on another instance: %w", err)
	}
	say("2. tools/call: answered by %s, which has read the session from the store", name)

	cluster.Kill(slices.Index(names, first))
	say("3. kill -9 %s", first)
	if name, err = call(); err != nil {
		return fmt.Errorf("calling a tool after %s was killed: %w", first, err)
	}
	say("4. tools/call: answered by %s", name)

	back := cluster.Processes[slices.Index(names, first)]
	for !back.Running() {
		if !wait(ctx, watchEvery) {
			return fmt.Errorf("%s did not come back: %w", first, ctx.Err())
		}
	}
	if name, err = callOn(func(name string) bool { return name == first }); err != nil {
		return fmt.Errorf("calling a tool after %s was started again: %w", first, err)
	}
	say("5. tools/call: answered by %s, a new process that never saw this client before", name)
	if err := session.Close(); err != nil {
		return fmt.Errorf("ending the session: %w", err)
	}
	say("the session survived: no instance holds it, the store does")
	return nil
}

// lastServedBy remembers which instance answered last, and which one answered first.
type lastServedBy struct{ initialize, last atomic.Value } // strings

func (s *lastServedBy) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err == nil {
		s.initialize.CompareAndSwap(nil, resp.Header.Get(servedBy))
		s.last.Store(resp.Header.Get(servedBy))
	}
	return resp, err
}
