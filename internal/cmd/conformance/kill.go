package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hydrant-mcp/hydrant/internal/harness"
)

// repeats is how often a scenario is run again that failed while processes are killed.
const repeats = 3

// A killer takes one process after the other away.
type killer struct {
	pause time.Duration
	stop  func()

	mu       sync.Mutex
	killed   int
	failed   error
	repeated []string
}

func duration(variable string) time.Duration {
	d, _ := time.ParseDuration(os.Getenv(variable))
	return d
}

// startKilling kills a process after each pause and starts it again, until stop is called. Without a pause it does nothing.
func startKilling(ctx context.Context, cluster *harness.Cluster, pause time.Duration) *killer {
	k := &killer{pause: pause, stop: func() {}}
	if pause <= 0 {
		return k
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	k.stop = func() {
		cancel()
		<-done
	}
	go func() {
		defer close(done)
		every := time.NewTicker(pause)
		defer every.Stop()
		for i := 0; ; i = (i + 1) % len(cluster.Processes) {
			select {
			case <-ctx.Done():
				return
			case <-every.C:
			}
			cluster.Kill(i)
			err := cluster.Processes[i].Start(context.WithoutCancel(ctx))
			k.mu.Lock()
			k.killed, k.failed = k.killed+1, err
			k.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return k
}

// again runs the scenarios of a pass again that have failed, and puts what they do then in their place.
func (k *killer) again(ctx context.Context, s suite, o *outcome, expected []expectation) error {
	for i, sc := range o.scenarios {
		for try := 1; try <= repeats && !passes(o.pass, sc, expected); try++ {
			k.repeated = append(k.repeated, o.name+" "+sc.name)
			out := filepath.Join(s.out, fmt.Sprintf("%s-%s-%d", o.name, sc.name, try))
			args := []string{"--scenario", sc.name}
			if o.version != "" {
				args = append(args, "--spec-version", o.version)
			}
			if err := s.command(ctx, o.pass, out, args...); err != nil {
				return err
			}
			one, err := collect(o.pass, out, []string{sc.name})
			if err != nil {
				return err
			}
			sc = one.scenarios[0]
		}
		o.scenarios[i] = sc
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.failed
}

// passes says whether nothing in a scenario has failed but what is expected to.
func passes(p pass, sc scenario, expected []expectation) bool {
	for _, c := range sc.checks {
		if _, known := excused(expected, p.name, sc.name, c.ID); c.Status == failure && !known {
			return false
		}
	}
	return true
}

func (k *killer) print(w io.Writer) {
	if k.pause <= 0 {
		return
	}
	_, _ = fmt.Fprintf(w, "%d times a process was killed and started again\n", k.killed)
	for _, name := range k.repeated {
		_, _ = fmt.Fprintf(w, "REPEATED  %s\n", name)
	}
	_, _ = fmt.Fprintln(w)
}
