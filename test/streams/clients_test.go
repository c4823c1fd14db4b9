package streams

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/internal/harness"
)

// A feature is a line of the table.
type feature string

const (
	elicit    feature = "elicit"    // a tool asks the user and waits
	rounds    feature = "rounds"    // a tool asks the user by returning the question
	suspended feature = "suspended" // the same, and the server ends the response with the question
	sampling  feature = "sampling"
	roots     feature = "roots"
	progress  feature = "progress"
	cancel    feature = "cancel"
	resume    feature = "resume" // the connection breaks off in the middle of a call
	subscribe feature = "subscribe"
)

// linger is to cancel a call and to stay connected for as long as the person thinks. It is no line of the table.
const linger feature = "linger"

// features are all of them, as the README calls them.
var features = []struct {
	feature
	title string
}{
	{elicit, "elicitation, the tool waits"},
	{rounds, "elicitation, the tool returns the question"},
	{suspended, "the same, nothing runs meanwhile"},
	{sampling, "sampling"},
	{roots, "roots"},
	{progress, "progress"},
	{cancel, "cancellation"},
	{resume, "resumption after a broken connection"},
	{subscribe, "resource subscriptions"},
}

// A place is what a client plays against. Its JSON is what the scripts are given.
type place struct {
	URL       string    `json:"url"`       // three processes behind round-robin
	Suspended string    `json:"suspended"` // the same, and they suspend
	Cut       string    `json:"cut"`       // behind a proxy that cuts the first streamed answer
	Think     int       `json:"think"`     // how long the person thinks, in milliseconds
	Key       string    `json:"key"`       // names the calls in the tally
	Features  []feature `json:"features"`
}

// A client plays features, all at the same time and most of them over one session, and says what went wrong with each; "" is nothing.
type client struct {
	name     string
	protocol string
	play     func(t *testing.T, at place) map[feature]string
	// cannot are the features that this client has not got, and why.
	cannot map[feature]string
	// impatient are those that it gives up before 45 seconds have passed, and why.
	impatient map[feature]string
}

// Why a modern client shows nothing for some features: the protocol has no such thing.
const (
	modernAsks    = "2026-07-28: servers ask by results only"
	modernResumes = "2026-07-28: a broken connection cancels the call"
)

var modernCannot = map[feature]string{elicit: modernAsks, suspended: modernAsks, resume: modernResumes}

func TestClients(t *testing.T) {
	w := startWorld(t, harness.DynamoDB)
	table := newTable()
	t.Run("all", func(t *testing.T) {
		for _, c := range slices.Concat(goClients(), scriptClients()) {
			t.Run(c.name+" speaking "+c.protocol, func(t *testing.T) {
				t.Parallel()
				w.play(t, c, table, time.Second, c.cannot)
			})
		}
	})
	t.Logf("\n%s", table)
}

// Only the official Go SDK's client, in both eras: the others would show nothing more about another store.
func TestClientsOnFirestore(t *testing.T) {
	w := startWorld(t, harness.Firestore)
	table := newTable()
	t.Run("all", func(t *testing.T) {
		for _, c := range sdkClients() {
			t.Run(c.name+" speaking "+c.protocol, func(t *testing.T) {
				t.Parallel()
				w.play(t, c, table, time.Second, c.cannot)
			})
		}
	})
	t.Logf("\n%s", table)
}

// A person who takes 45 seconds is one for whom most time-outs are too short.
func TestAPersonThinksForLong(t *testing.T) {
	if !long() {
		t.Skip("takes 45 seconds for every two clients: LONG=1 runs it")
	}
	questions := []feature{elicit, rounds, suspended}
	w := startWorld(t, harness.DynamoDB)
	table := newTable(questions...)
	t.Run("all", func(t *testing.T) {
		for _, c := range slices.Concat(goClients(), scriptClients()) {
			t.Run(c.name+" speaking "+c.protocol, func(t *testing.T) {
				t.Parallel()
				left := map[feature]string{}
				for _, f := range features {
					if !slices.Contains(questions, f.feature) {
						left[f.feature] = "asks nobody"
					}
				}
				for _, reasons := range []map[feature]string{c.cannot, c.impatient} {
					for f, why := range reasons {
						left[f] = why
					}
				}
				w.play(t, c, table, 45*time.Second, left)
			})
		}
	})
	t.Logf("\n%s", table)
}

// A world is what all clients play against.
type world struct{ holding, suspending *harness.Cluster }

func startWorld(t *testing.T, store harness.Store) world {
	return world{
		holding: harness.StartForTest(t, harness.Config{Store: store}),
		suspending: harness.StartForTest(t, harness.Config{
			Store: store, Env: map[string]string{"HYDRANT_ASK": "suspend"},
		}),
	}
}

// play lets a client play all features but those that are left out, and looks at what it says and at what the tools say.
func (w world) play(t *testing.T, c client, table *table, think time.Duration, left map[feature]string) {
	cut := startCutter(t, w.holding.URL())
	cut.cutNext(0)
	at := place{
		URL: w.holding.URL(), Suspended: w.suspending.URL(), Cut: cut.url(),
		Think: int(think.Milliseconds()), Key: strings.ReplaceAll(c.name+"-"+c.protocol, " ", "-"),
	}
	for _, f := range features {
		if left[f.feature] == "" {
			at.Features = append(at.Features, f.feature)
		}
	}
	got := c.play(t, at)
	for _, f := range at.Features {
		wrong, played := got[f]
		if !played {
			wrong = "was not played"
		}
		if wrong == "" {
			wrong = w.check(t, f, at, cut)
		}
		assert.Empty(t, wrong, "%s", f)
		if wrong != "" {
			wrong = "failed"
		}
		table.note(c, f, wrong)
	}
	for f, why := range left {
		table.note(c, f, why)
	}
}

// check looks at the other side: what the tools tallied, and whether the connection was really cut.
func (w world) check(t *testing.T, f feature, at place, cut *cutter) string {
	switch f {
	case cancel:
		want := "cancelled:" + at.Key
		if !w.tallies(t, want, 1) {
			return "the tool was not told that its call was cancelled"
		}
	case resume:
		if cut.count() != 1 {
			return fmt.Sprintf("the connection was cut %d times", cut.count())
		}
		if !w.tallies(t, "done:"+at.Key, 1) {
			return "the tool did not run exactly once"
		}
	}
	return ""
}

// cancelWithin is how long a cancellation may take to reach a call on another instance, with some air for a busy machine.
const cancelWithin = 10 * time.Second

// tallies says whether a line turns up in the tally so many times.
func (w world) tallies(t *testing.T, line string, times int) bool {
	count := func() (n int) {
		ran, err := w.holding.Ran()
		require.NoError(t, err)
		for _, r := range ran {
			if r == line {
				n++
			}
		}
		return n
	}
	ctx, stop := context.WithTimeout(t.Context(), cancelWithin)
	defer stop()
	return poll(ctx, func() bool { return count() >= times }) && count() == times
}

// poll looks until the condition holds or ctx ends.
func poll(ctx context.Context, condition func() bool) bool {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return condition()
		}
	}
	return true
}

// A table is what is printed, and what the README has.
type table struct {
	rows    []feature
	mu      sync.Mutex
	columns []string
	cells   map[string]map[feature]string
}

// newTable makes a table of some features; without any, of all.
func newTable(rows ...feature) *table {
	return &table{rows: rows, cells: map[string]map[feature]string{}}
}

func (t *table) note(c client, f feature, why string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	column := c.name + ", " + c.protocol
	if t.cells[column] == nil {
		t.cells[column] = map[feature]string{}
		t.columns = append(t.columns, column)
	}
	t.cells[column][f] = why
}

// String implements [fmt.Stringer]: Markdown, and below it why there are gaps.
func (t *table) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	slices.Sort(t.columns)
	var b, notes strings.Builder
	fmt.Fprintf(&b, "| | %s |\n|---|%s\n", strings.Join(t.columns, " | "), strings.Repeat("---|", len(t.columns)))
	for _, f := range features {
		if len(t.rows) > 0 && !slices.Contains(t.rows, f.feature) {
			continue
		}
		fmt.Fprintf(&b, "| %s |", f.title)
		for _, column := range t.columns {
			switch why := t.cells[column][f.feature]; why {
			case "":
				b.WriteString(" yes |")
			case "failed":
				b.WriteString(" FAILED |")
			default:
				b.WriteString(" – |")
				fmt.Fprintf(&notes, "%s; %s: %s\n", column, f.title, why)
			}
		}
		b.WriteString("\n")
	}
	return b.String() + "\n" + notes.String()
}

// long says that the tests are to take the time that they need to see everything.
func long() bool { return os.Getenv("LONG") != "" }
