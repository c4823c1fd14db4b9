// Command fuzz runs every fuzz target of the module: `make fuzz`.
//
//	FUZZ_SECONDS=600 go run ./internal/cmd/fuzz [PATTERN]
//
// Each gets FUZZ_SECONDS (30) from its seed corpus on; with a pattern, only those whose package and name match it. It prints
// how many inputs each has tried, and how long all processors together were at it, and exits 1 if one failed. The input that
// made it fail is kept below the package's testdata/fuzz, and every run of the tests tries it from then on.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"strconv"
	"syscall"
	"time"

	"github.com/hydrant-mcp/hydrant/internal/cmd/fuzz/targets"
	"github.com/hydrant-mcp/hydrant/internal/harness"
)

const seconds = 30

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ok, err := run(ctx)
	stop()
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "fuzz:", err)
		os.Exit(2)
	case !ok:
		os.Exit(1)
	}
}

func run(ctx context.Context) (ok bool, err error) {
	duration := seconds * time.Second
	if text := os.Getenv("FUZZ_SECONDS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return false, fmt.Errorf("FUZZ_SECONDS: %q is no number of seconds", text)
		}
		duration = time.Duration(n) * time.Second
	}
	pattern := ""
	if len(os.Args) > 1 {
		pattern = os.Args[1]
	}
	matches, err := regexp.Compile(pattern)
	if err != nil {
		return false, err
	}
	root, err := harness.Root()
	if err != nil {
		return false, err
	}
	all, err := targets.Find(root)
	if err != nil {
		return false, err
	}
	ok = true
	for _, t := range all {
		if !matches.MatchString(t.Dir + " " + t.Name) {
			continue
		}
		r, err := t.Run(ctx, root, duration.String())
		if err != nil {
			return false, err
		}
		verdict := "ok  "
		if !r.OK {
			ok, verdict = false, "FAIL"
			fmt.Println(r.Output)
		}
		fmt.Printf("%s  %-22s %-18s %12d inputs in %.1f minutes of processor time\n", verdict, t.Dir, t.Name, r.Inputs, r.CPU.Minutes())
	}
	return ok, nil
}
