// Command latency measures what it costs to wait: how soon an answer that arrives at one instance reaches the call that
// waits for it on another, and what the store is asked meanwhile.
//
//	go run ./internal/cmd/latency [-stores dynamodb,firestore] [-long] [-streams 1000]
//
// For each store it starts an emulator and lets a number of people think for 1 and for 45 seconds, with -long for 300
// too, all at the same time. Each is asked by a call on an instance of its own, A, whose operations are counted, and
// answers at instance B. Others do not answer, and cancel the call at B: there the 95th percentile is held against the
// goal. With -streams it goes on to open so many streams that wait for announcements, on one instance, and counts what they
// spend and what memory they hold. A mark shows what misses its goal.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/hydrant-mcp/hydrant/internal/harness"
)

func main() {
	stores := flag.String("stores", "dynamodb,firestore", "what to measure: memory, dynamodb, firestore")
	long := flag.Bool("long", false, "also let people think for 300 seconds")
	streams := flag.Int("streams", 0, "how many streams to open, if any")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *stores, *long, *streams, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "latency:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, stores string, long bool, streams int, stdout io.Writer) error {
	people := []group{
		{think: time.Second, people: 40}, {think: 45 * time.Second, people: 40},
		{think: 10 * time.Second, people: 20, cancels: true},
	}
	if long {
		people = append(people, group{think: 300 * time.Second, people: 10},
			group{think: 90 * time.Second, people: 20, cancels: true})
	}
	for _, name := range strings.Split(stores, ",") {
		kind, err := harness.ParseStore(name)
		if err != nil {
			return err
		}
		st, stop, err := open(ctx, kind)
		if err != nil {
			return err
		}
		err = measure(ctx, stdout, kind, st, people, streams, carefully)
		stop()
		if err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
	}
	return nil
}

// The goals.
type goals struct {
	latency      map[time.Duration]time.Duration // of the tool, the median; by how long people think
	cancel       time.Duration                   // until a call knows that it is cancelled
	first, later float64                         // reads in the first minute of waiting, and in each later one; less than 0: none
}

// heldStream is the goal for the memory of a stream, in bytes.
const heldStream = 64 << 10

var goalsOf = map[harness.Store]goals{
	harness.DynamoDB: {
		latency: map[time.Duration]time.Duration{time.Second: 60 * time.Millisecond, 45 * time.Second: 500 * time.Millisecond},
		cancel:  2 * time.Second, first: 120, later: 30,
	},
	harness.Firestore: {
		latency: map[time.Duration]time.Duration{
			time.Second: 15 * time.Millisecond, 45 * time.Second: 15 * time.Millisecond, 300 * time.Second: 15 * time.Millisecond,
		},
		cancel: 200 * time.Millisecond, first: 2, later: 0.5, // to begin with; and to be safe, every five minutes
	},
	harness.Memory: {first: -1, later: -1},
}

func measure(
	ctx context.Context, stdout io.Writer, kind harness.Store, st shared, people []group, streams int, how watch,
) error {
	goal := goalsOf[kind]
	results, machine, err := think(ctx, st, people)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(stdout, "\n%s: how long an answer takes from when it is sent to B, and what the instance that waits asks of\n"+
		"the store (medians, but for the 95th percentile; meanwhile %v)\n", kind, machine)
	out := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(out, "a person\tpeople\tB has it\tthen A\ttool on A\tp95\tgoal\t\tclient\t"+
		"reads in 1st min\tgoal\t\tlater, a min\tgoal\t\twrites a min\ttold a min\t")
	for i, g := range people {
		r, want := results[i], goal.latency[g.think]
		if g.cancels {
			want = goal.cancel
		}
		toTool := func(q float64) time.Duration {
			return r.quantile(q, func(s sample) time.Duration { return s.toTool })
		}
		_, _ = fmt.Fprintf(out, "%v\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", g, g.people,
			ms(r.quantile(0.5, func(s sample) time.Duration { return s.accepted })),
			ms(r.quantile(0.5, func(s sample) time.Duration { return max(s.toTool-s.accepted, 1) })),
			ms(toTool(0.5)), ms(toTool(0.95)), ms(want), mark(want > 0 && toTool(g.quantile()) > want),
			ms(r.quantile(0.5, func(s sample) time.Duration { return s.toClient })),
			number(r.firstMinute), number(goal.first), mark(goal.first >= 0 && r.firstMinute > goal.first),
			number(r.laterMinutes), number(goal.later), mark(goal.later >= 0 && r.laterMinutes > goal.later),
			number(r.writes), number(r.told))
	}
	if err := out.Flush(); err != nil || streams == 0 {
		return err
	}
	return listen(ctx, stdout, kind, st, streams, how)
}

func ms(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}

// number shows what was measured; less than nothing is what was not.
func number(f float64) string {
	if f < 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", f)
}

func mark(missed bool) string {
	if missed {
		return "MISSED"
	}
	return ""
}
