// Command coldstart measures how long a function's process takes from its start to its first poll of the Runtime API,
// which is the part of a cold start that is the function's own.
//
//	go run ./internal/cmd/coldstart [-n 20] [-check] [MAIN or BINARY ...]
//
// Without arguments it builds and measures examples/quickstart/lambda, which keeps its sessions in DynamoDB. The binary is
// in the page cache: on Lambda the time to load it comes on top, and grows with its size, which is printed too. With -check
// it exits 1 when the median is over 7 ms, or the binary over 13 MB.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"time"

	"github.com/hydrant-mcp/hydrant/internal/lambdafront"
)

const (
	maxMedian = 7 * time.Millisecond
	maxSize   = 13_000_000 // bytes
	// limit bounds one start.
	limit = 10 * time.Second
)

func main() {
	n := flag.Int("n", 20, "how often to start each")
	check := flag.Bool("check", false, "exit 1 over the limits")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	ok, err := run(ctx, *n, flag.Args())
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "coldstart:", err)
		os.Exit(2)
	}
	if *check && !ok {
		os.Exit(1)
	}
}

func run(ctx context.Context, n int, args []string) (ok bool, err error) {
	if n < 1 {
		return false, fmt.Errorf("-n %d: at least 1", n)
	}
	if len(args) == 0 {
		args = []string{"./examples/quickstart/lambda"}
	}
	ok = true
	for _, arg := range args {
		path := arg
		if info, err := os.Stat(arg); err != nil || info.IsDir() {
			if path, err = lambdafront.Build(ctx, arg, false); err != nil {
				return false, err
			}
		}
		info, err := os.Stat(path)
		if err != nil {
			return false, err
		}
		times, err := measure(ctx, path, n)
		if err != nil {
			return false, fmt.Errorf("%s: %w", arg, err)
		}
		median := times[len(times)/2]
		fmt.Printf("%s: process start to first poll: median %.1f ms of %d (fastest %.1f, slowest %.1f); binary %.1f MB\n",
			arg, ms(median), n, ms(times[0]), ms(times[n-1]), float64(info.Size())/1e6)
		if median > maxMedian || info.Size() > maxSize {
			ok = false
			fmt.Printf("%s: over the limits of %v and %d MB\n", arg, maxMedian, maxSize/1_000_000)
		}
	}
	return ok, nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// measure gives n times, the shortest first. One more start, which may have to load the binary, does not count.
func measure(ctx context.Context, binary string, n int) ([]time.Duration, error) {
	times := make([]time.Duration, 0, n)
	for i := range n + 1 {
		d, err := once(ctx, binary)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			times = append(times, d)
		}
	}
	slices.Sort(times)
	return times, nil
}

func once(ctx context.Context, binary string) (time.Duration, error) {
	api, err := lambdafront.NewAPI(lambdafront.Hooks{})
	if err != nil {
		return 0, err
	}
	defer api.Close()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary)
	// What Lambda sets, and nothing that would make the SDK look for configuration elsewhere.
	cmd.Env = []string{
		"AWS_LAMBDA_RUNTIME_API=" + api.Addr(), "AWS_LAMBDA_FUNCTION_NAME=hydrant", "AWS_LAMBDA_FUNCTION_MEMORY_SIZE=512",
		"AWS_REGION=us-east-1", "AWS_ACCESS_KEY_ID=local", "AWS_SECRET_ACCESS_KEY=local", "AWS_SESSION_TOKEN=local",
		"HYDRANT_STORE=dynamodb", "HOME=/nonexistent", "PATH=/usr/bin:/bin",
	}
	cmd.Stderr = os.Stderr
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	defer func() {
		_ = cmd.Process.Kill()
		<-ended
	}()
	select {
	case <-api.Polled():
		return time.Since(start), nil
	case <-ended:
		return 0, fmt.Errorf("it ended without asking for an event: %v", cmd.ProcessState)
	}
}
