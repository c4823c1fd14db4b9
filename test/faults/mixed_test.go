package faults

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/hydrant-mcp/hydrant/handler"
	"github.com/hydrant-mcp/hydrant/internal/cmd/soak/client"
	"github.com/hydrant-mcp/hydrant/store/faulty"
)

// mixed is a plan of which this share of all operations fails, in every way.
func mixed(seed uint64, share float64) faulty.Plan {
	return faulty.Plan{
		Seed: seed,
		Rates: faulty.Rates{
			Error: share * 0.5, Throttle: share * 0.2, Timeout: share * 0.05, Lost: share * 0.2, Conflict: share * 0.05,
		},
		Latency: 40 * time.Millisecond, Patience: 2 * time.Second,
	}
}

var plans = []faulty.Plan{{Seed: 1}, mixed(2, 0.05), mixed(3, 0.10), mixed(4, 0.20)}

func nameOf(p faulty.Plan) string {
	r := p.Rates
	return fmt.Sprintf("%.0f percent of faults", 100*(r.Error+r.Throttle+r.Timeout+r.Lost+r.Conflict))
}

// Every way to call a tool, in both eras, while the store fails and connections break at random bytes: no session is ever
// said to be gone that is not, no message goes to the wrong call, no tool runs twice in one round of one call, and a client
// that holds an event id ends with its answer.
func TestMixedWork(t *testing.T) {
	for mode, ask := range map[string]handler.AskMode{"held": handler.AskHold, "suspended": handler.AskSuspend} {
		for _, plan := range plans {
			t.Run(nameOf(plan)+", rounds are "+mode, func(t *testing.T) {
				askFor := func(_, name string) handler.AskMode {
					if name == "rounds" {
						return ask
					}
					return handler.AskHold // the tool ask waits for its answer
				}
				inWorld(t, setup{plan: plan, opts: handler.Options{AskFor: askFor}}, func(w *world) {
					l := &ledger{w: w, fates: map[string]int{}}
					var wg sync.WaitGroup
					for worker := range 8 {
						wg.Go(func() { l.work(worker, plan.Seed) })
					}
					wg.Wait()
					assert.Empty(t, w.runs.twice(), "a tool ran twice in one round of one call")
					t.Log(l.fates, w.faults.Injected())
				})
			})
		}
	}
}

// A ledger has what became of all calls.
type ledger struct {
	w     *world
	mu    sync.Mutex
	fates map[string]int
}

func (l *ledger) note(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fates[what]++
}

const callsEach = 25 // over both kinds of store

func (l *ledger) work(worker int, seed uint64) {
	w, r := l.w, random(seed, worker)
	c := w.newClient(cuts(r, 0.3))
	defer c.HTTP.CloseIdleConnections()
	versions := []string{"2025-11-25", "2025-11-25", "2025-06-18", "2025-03-26"}
	for n := range callsEach {
		key := fmt.Sprintf("%d-%d", worker, n)
		want := key
		q := client.Tool("quick", fmt.Sprintf(`{"key":%q}`, key))
		switch r.IntN(6) {
		case 0, 1:
			q = client.Tool("slow", fmt.Sprintf(`{"key":%q,"ms":%d,"n":%d}`, key, r.IntN(3000), 1+r.IntN(4)))
			q.Progress = fmt.Sprintf("%q", "p"+key)
		case 2:
			q = client.Tool("slow", fmt.Sprintf(`{"key":%q,"ms":%d}`, key, r.IntN(45_000)))
		case 3:
			q = client.Tool("ask", fmt.Sprintf(`{"key":%q}`, key))
		case 4:
			q = client.Tool("rounds", fmt.Sprintf(`{"key":%q}`, key))
			want = fmt.Sprintf("%[1]s.1;%[1]s.2;%[1]s.3;", key)
		}
		q.Answer = echo
		if r.IntN(5) == 0 && !strings.Contains(q.Params, `"ask"`) {
			l.judge(nil, key, want, c.Modern(w.t.Context(), q))
			continue
		}
		s := w.session(c, versions[r.IntN(len(versions))]) // its own, so that the log says which call it is about
		if r.IntN(2) == 0 {
			q.ID = "1" // as a large client does
		}
		l.judge(s, key, want, s.Call(w.t.Context(), q))
	}
}

// honest are the failures of a tool that could not ask; they say so.
var honest = []string{"the store refused the question", "the store cannot be reached, and so"}

func (l *ledger) judge(s *client.Session, key, want string, o *client.Outcome) {
	t := l.w.t
	var logged []string
	if s != nil {
		logged = l.w.log.of(s)
	}
	complain := func(format string, args ...any) {
		assert.Fail(t, key+": "+fmt.Sprintf(format, args...), "%s\n%s", strings.Join(o.Trace, "\n"), strings.Join(logged, "\n"))
	}
	if len(o.Wrong) > 0 {
		complain("wrong: %v", o.Wrong)
	}
	switch {
	case o.Fate == client.Answered && o.Interrupted():
		// Nobody died. What remains is a store that refused the outbox, and the log says so.
		l.note("interrupted")
		if !slices.ContainsFunc(logged, func(m string) bool { return strings.Contains(m, "cannot be resumed") }) {
			complain("interrupted, though nobody died and the store took the outbox")
		}
	case o.Fate == client.Answered && slices.ContainsFunc(honest, func(h string) bool { return strings.Contains(string(o.Error), h) }):
		l.note("could not ask")
	case o.Fate == client.Answered && o.Text() == want:
		l.note(string(o.Fate))
	case o.Fate == client.Answered:
		complain("wrong answer: %s %s", o.Result, o.Error)
	case o.Fate == client.CutInline && !o.HeldID:
		l.note(string(o.Fate))
	default:
		complain("%s", o.Fate)
	}
}
