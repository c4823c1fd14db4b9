// Command soak puts load and faults on three processes of the server of examples/everything: `make soak`.
//
//	STORE=dynamodb SOAK_SECONDS=120 go run ./internal/cmd/soak
//
// Clients of both eras do mixed work through a proxy that sends every request to another process: plain calls, progress,
// questions in all styles, cancellations, announcements, changes to sessions and their end. Meanwhile the store fails and is
// slow (HYDRANT_FAULTS), connections break at random bytes, and every two seconds a process is killed and started again.
//
// It exits 1 unless the last four of its closing figures are 0:
//
//   - lost: a legacy client that held an event id and followed the protocol got neither its answer nor, where the process
//     that ran the call was killed, a result that says so; an answer without an event id did not come, though its connection
//     was not among those that this program breaks and its process not killed meanwhile; a call did not end; or an
//     announcement did not come on a stream that did not break;
//   - doubled: a tool ran twice in one round of one call, though its client repeated only what the protocol lets it repeat;
//   - wrong: an answer to something else, a message of somebody else's, an error or a status that nothing explains;
//   - false 404: a session is said to be gone that lives, whatever was asked of it.
//
// What no protocol can save is counted apart: inline answers that were cut, and streams that broke after the store had
// refused their events. SOAK_CLIENTS is the number of clients at work at the same time. More than four minutes are rounds of
// four minutes, each with a new emulator. Evidence of each fault, the tallies and the logs of the processes are in dist/soak.
package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/hydrant-mcp/hydrant/internal/harness"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if os.Getenv(envServe) != "" {
		fmt.Fprintln(os.Stderr, "soak:", serve(ctx))
		os.Exit(1)
	}
	ok, err := run(ctx)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(2)
	case !ok:
		os.Exit(1)
	}
}

const (
	instances    = 3
	killEvery    = 2 * time.Second
	seconds      = 120
	clients      = 64
	defaultFault = "error=0.025,throttle=0.01,lost=0.01,timeout=0.005,latency=10ms,patience=1s"
)

func run(ctx context.Context) (ok bool, err error) {
	store, err := harness.ParseStore(cmp.Or(os.Getenv("STORE"), string(harness.DynamoDB)))
	if err != nil {
		return false, err
	}
	if store == harness.Memory {
		return false, fmt.Errorf("processes cannot share the memory store: STORE is dynamodb or firestore")
	}
	duration := time.Duration(number("SOAK_SECONDS", seconds)) * time.Second
	plan := cmp.Or(os.Getenv("HYDRANT_FAULTS"), defaultFault)
	root, err := harness.Root()
	if err != nil {
		return false, err
	}
	dir := filepath.Join(root, "dist", "soak")
	if err := os.RemoveAll(dir); err != nil {
		return false, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return false, err
	}
	evidence, err := os.Create(filepath.Join(dir, "evidence"))
	if err != nil {
		return false, err
	}
	defer evidence.Close()

	self, err := os.Executable()
	if err != nil {
		return false, err
	}
	if err := os.Setenv("HARNESS_SERVER", self); err != nil {
		return false, err
	}
	l := newLedger(evidence)
	n := number("SOAK_CLIENTS", clients)
	fmt.Printf("%d clients for %v on %d processes over %s (%s), one killed every %v\n\n",
		n, duration, instances, store, plan, killEvery)
	var tally, logs []string
	var took time.Duration
	for done, i := time.Duration(0), 0; done < duration && ctx.Err() == nil; i++ {
		r := round{store: store, plan: plan, dir: filepath.Join(dir, fmt.Sprintf("round-%d", i+1)), first: i * n, clients: n}
		r.duration = min(roundLasts, duration-done)
		done += r.duration
		began := time.Now()
		if err := r.run(ctx, l); err != nil {
			return false, err
		}
		took += time.Since(began)
		tally, logs = append(tally, r.tally...), append(logs, r.logs...)
	}
	l.settle(tally, logs)
	if ok = l.print(os.Stdout, took); !ok {
		fmt.Printf("\nevidence and logs are in %s\n", dir)
	}
	return ok, ctx.Err()
}

// A round is a part of the whole, on a store of its own. The emulators never forget: after a while, and long after a
// database of the cloud would have removed what has expired, they are too slow for anything.
type round struct {
	store    harness.Store
	plan     string
	dir      string
	first    int // client
	clients  int
	duration time.Duration

	tally, logs []string
}

// roundLasts is how long a round does, at most.
const roundLasts = 4 * time.Minute

func (r *round) run(ctx context.Context, l *ledger) error {
	if err := os.MkdirAll(r.dir, 0o755); err != nil {
		return err
	}
	endpoint, stop, err := harness.Emulator(ctx, r.store)
	if err != nil {
		return err
	}
	defer stop()
	cluster, err := harness.Start(ctx, harness.Config{
		Instances: instances, Store: r.store, Endpoint: endpoint, Dir: r.dir,
		Env: map[string]string{envServe: "1", "HYDRANT_FAULTS": r.plan},
	})
	if err != nil {
		return err
	}
	defer cluster.Stop()
	working, finish := context.WithTimeout(ctx, r.duration)
	defer finish()
	var wg sync.WaitGroup
	for i := range r.clients {
		wg.Go(func() { newWorker(l, r.first+i, cluster.URL()).work(working) })
	}
	killing, stopKilling := context.WithCancel(ctx)
	defer stopKilling()
	killer := make(chan error, 1)
	go func() { killer <- killAll(killing, cluster, l) }()
	wg.Wait()
	stopKilling()
	if err := <-killer; err != nil {
		return err
	}
	if err := harness.StoreReachable(endpoint); err != nil {
		return err
	}
	if r.tally, err = cluster.Ran(); err != nil {
		return err
	}
	for _, p := range cluster.Processes {
		r.logs = append(r.logs, p.Log())
	}
	return nil
}

// killAll kills one process after the other and starts it again, until ctx ends.
func killAll(ctx context.Context, cluster *harness.Cluster, l *ledger) error {
	every := time.NewTicker(killEvery)
	defer every.Stop()
	for i := 0; ; i = (i + 1) % len(cluster.Processes) {
		select {
		case <-ctx.Done():
			return nil
		case <-every.C:
		}
		p := cluster.Processes[i]
		began := time.Now()
		cluster.Kill(i)
		l.killed(p.Addr(), kill{began, time.Now()})
		if err := p.Start(context.WithoutCancel(ctx)); err != nil {
			return err
		}
	}
}

func number(variable string, def int) int {
	if n, err := strconv.Atoi(os.Getenv(variable)); err == nil {
		return n
	}
	return def
}
