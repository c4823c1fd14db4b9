// Command conformance runs the official conformance suite against several processes of examples/everything behind a
// round-robin proxy: `make conformance`.
//
//	INSTANCES=3 STORE=dynamodb [KILL=2s] [FRONT=url|rest|http|alb [STREAMING=1]] go run ./internal/cmd/conformance [-out DIR]
//
// It runs the suite once per protocol version, the suite's protocol extensions, and the last release of the suite that knew
// the legacy era only. It prints a table of checks passed, failed and warned, names every check that failed, and exits 1
// when that is not exactly what test/conformance/expected.txt says: a failure that is not on the list is a fault, and a
// check on the list that passes must be taken off it, so that the list can only shrink. Nothing is retried.
//
// With KILL, one process after the other is killed that often and started again, while the suite runs. The proxy hands a
// request to another process only when it was never sent. So a call that a dying process was at cannot end as its scenario
// wants: only in this mode a scenario that fails is run again, on the same processes, while the killing goes on.
//
// With FRONT, every request reaches the processes as a Lambda event of that front door: of examples/everything/lambda, on a
// stand-in for the Runtime API. Without STREAMING they are buffered, and test/conformance/expected-buffered.txt has what
// cannot work then.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/hydrant-mcp/hydrant/internal/harness"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ok, err := run(ctx)
	stop()
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(2)
	case !ok:
		os.Exit(1)
	}
}

func run(ctx context.Context) (ok bool, err error) {
	root, err := harness.Root()
	if err != nil {
		return false, err
	}
	instances := flag.Int("instances", number("INSTANCES"), "processes; 0 is 3, or 1 with the memory store")
	storeName := flag.String("store", text("STORE", "dynamodb"), "dynamodb, firestore or memory")
	out := flag.String("out", filepath.Join(root, "dist", "conformance"), "where the suite's results and the logs go")
	front := flag.String("front", os.Getenv("FRONT"), "url, rest, http or alb: through Lambda events of this front door")
	streaming := flag.Bool("streaming", os.Getenv("STREAMING") == "1", "with -front: the front door streams")
	kill := flag.Duration("kill", duration("KILL"), "how often a process is killed and started again; 0: never")
	flag.Parse()

	store, err := harness.ParseStore(*storeName)
	if err != nil {
		return false, err
	}
	if *instances == 0 {
		*instances = 3
		if store == harness.Memory {
			*instances = 1
		}
	}
	expected, err := readExpected(filepath.Join(root, "test", "conformance", "expected.txt"))
	if err != nil {
		return false, err
	}
	if *front != "" && !*streaming {
		more, err := readExpected(filepath.Join(root, "test", "conformance", "expected-buffered.txt"))
		if err != nil {
			return false, err
		}
		expected = append(expected, more...)
	}
	// The suite needs Node 22.
	node, dir, err := harness.Node(22)
	if err != nil {
		return false, fmt.Errorf("%w: install Node 22 with npm, and run `npm ci` in test/node", err)
	}
	if err := os.RemoveAll(*out); err != nil {
		return false, err
	}
	if err := os.MkdirAll(*out, 0o755); err != nil {
		return false, err
	}
	endpoint, stop, err := harness.Emulator(ctx, store)
	if err != nil {
		return false, err
	}
	defer stop()
	cfg := harness.Config{Instances: *instances, Store: store, Endpoint: endpoint, Dir: *out}
	t, err := start(ctx, cfg, *front, *streaming)
	if err != nil {
		return false, err
	}
	defer t.stop()

	fmt.Printf("%s on %s behind %s\n\n", t.what, store, t.url)
	k := startKilling(ctx, t.cluster, *kill)
	defer k.stop()
	s := suite{node: node, dir: dir, url: t.url, out: *out}
	var all []outcome
	for _, r := range runs {
		o, err := s.run(ctx, r)
		if err == nil && *kill > 0 {
			err = k.again(ctx, s, &o, expected)
		}
		if err == nil {
			err = harness.StoreReachable(endpoint)
		}
		if err != nil {
			return false, fmt.Errorf("%s: %w (results and logs are in %s)", r.name, err, *out)
		}
		all = append(all, o)
	}
	k.stop()
	k.print(os.Stdout)
	printTable(os.Stdout, all, expected)
	ok = printVerdict(os.Stdout, all, expected)
	if dead := t.dead(); dead != "" {
		fmt.Printf("%s: see its log in %s\n", dead, *out)
		ok = false
	}
	if !ok {
		fmt.Printf("results and logs are in %s\n", *out)
	}
	return ok, nil
}

func text(variable, def string) string {
	if v := os.Getenv(variable); v != "" {
		return v
	}
	return def
}

func number(variable string) int {
	n, _ := strconv.Atoi(os.Getenv(variable))
	return n
}
