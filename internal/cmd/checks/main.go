// Command checks runs all tests and says what it had to leave out: `make test`.
//
// It starts one emulator of each database for the whole run, runs `go test -race ./...` on it, gives every fuzz target a few
// seconds, and ends with a list of what was skipped and how to get it. Where an emulator is missing, the tests that need
// it skip by themselves, or fail with REQUIRE=all.
//
//	FUZZTIME=30s go run ./internal/cmd/checks [packages]
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/hydrant-mcp/hydrant/internal/emulator"
	"github.com/hydrant-mcp/hydrant/internal/harness"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ok, err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "checks:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

func run(ctx context.Context, packages []string) (ok bool, err error) {
	root, err := harness.Root()
	if err != nil {
		return false, err
	}
	if err := os.Chdir(root); err != nil {
		return false, err
	}
	if len(packages) == 0 {
		packages = []string{"./..."}
	}
	stop, err := startEmulators(ctx)
	defer stop()
	if err != nil {
		return false, err
	}
	results, err := goTest(ctx, packages)
	if err != nil {
		return false, err
	}
	fuzzed, err := fuzz(ctx, root, cmp.Or(os.Getenv("FUZZTIME"), "5s"))
	if err != nil {
		return false, err
	}
	results.print(os.Stdout)
	return results.ok && fuzzed, nil
}

// emulators are started once for all packages, and found by the variables that every SDK of these databases reads.
var emulators = []struct {
	name, variable string
	start          func(context.Context) (string, func(), error)
}{
	{"DynamoDB", "AWS_ENDPOINT_URL_DYNAMODB", emulator.DynamoDB},
	{"Firestore", "FIRESTORE_EMULATOR_HOST", emulator.Firestore},
}

func startEmulators(ctx context.Context) (stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, s := range stops {
			s()
		}
	}
	for _, e := range emulators {
		// What the environment names may be a real database: tests write to what was started here, and to nothing else.
		if err := os.Unsetenv(e.variable); err != nil {
			return stop, err
		}
		where, end, err := e.start(ctx)
		stops = append(stops, end)
		switch {
		case errors.Is(err, emulator.ErrMissing):
			fmt.Printf("%s: %v\n", e.name, err)
		case err != nil:
			return stop, err
		default:
			fmt.Printf("%s: emulator on %s\n", e.name, where)
			if err := os.Setenv(e.variable, where); err != nil {
				return stop, err
			}
		}
	}
	return stop, nil
}

// goTest runs the packages' tests, two packages at a time: most of them start processes of their own.
func goTest(ctx context.Context, packages []string) (*results, error) {
	// No cached results: what the tests of test/ run is built and started by them, where the cache does not see it.
	args := append([]string{"test", "-json", "-race", "-count=1", "-p=2", "-timeout=15m"}, packages...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Stderr = os.Stderr
	events, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	r := newResults()
	readErr := r.read(events, os.Stdout)
	waitErr := cmd.Wait()
	if exit := (*exec.ExitError)(nil); errors.As(waitErr, &exit) {
		r.ok, waitErr = false, nil
	}
	return r, errors.Join(readErr, waitErr, ctx.Err())
}
