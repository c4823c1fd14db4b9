package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/handler"
	"github.com/hydrant-mcp/hydrant/internal/cmd/soak/client"
	"github.com/hydrant-mcp/hydrant/store"
	"github.com/hydrant-mcp/hydrant/store/faulty"
)

// What the client sees in the middle of a call: the second table of docs/failures.md, and the tests of its lines.
var midCall = map[string]string{
	"the connection breaks, the client holds an event id":                 "TestMixedWork",
	"the connection breaks, the client holds no event id (inline answer)": "TestMixedWork",
	"the process that runs the call dies":                                 "TestTheProcessThatRunsTheCallDies",
	"what the store has of the call cannot be read":                       "TestWhatTheStoreHasOfACallCannotBeRead",
	"the store refuses an event":                                          "TestTheStoreRefusesAnEvent",
	"the client cannot be asked":                                          "TestTheClientCannotBeAsked",
	"the store refuses a held call's question for 5 s":                    "TestTheStoreRefusesAHeldQuestion",
	"the store refuses a suspended call's questions for 5 s":              "TestTheStoreRefusesASuspendedQuestion",
	"nobody answers a suspended call's question in time":                  "TestNobodyAnswersASuspendedQuestion",
	"a client ends its session (DELETE)":                                  "TestAClientThatEndsItsSessionCancelsUnderFaults",
	"a 2026-07-28 client closes its stream":                               "TestAModernClientThatLeavesCancelsUnderFaults",
	"a tool ignores that its time is over":                                "TestAToolIgnoresItsEnd",
}

func TestEveryFailureInMidCallIsTested(t *testing.T) {
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	written := ""
	for _, file := range files {
		code, err := os.ReadFile(file)
		require.NoError(t, err)
		written += string(code)
	}
	rows := tableOf(t, "| what happened | what the client gets |")
	assert.Len(t, rows, len(midCall))
	for _, cells := range rows {
		assert.True(t, strings.Contains(written, "\nfunc "+midCall[cells[0]]+"(t *testing.T)"), "without a test: %s", cells[0])
	}
}

// refusals are the ways in which a store takes nothing.
var refusals = map[string]faulty.Rates{"error": {Error: 1}, "throttle": {Throttle: 1}, "timeout": {Timeout: 1}}

// refusingOnly is a plan in which only some operations fail, always.
func refusingOnly(rates faulty.Rates, ops ...faulty.Operation) faulty.Plan {
	plan := faulty.Plan{Only: map[faulty.Operation]faulty.Rates{}}
	for _, op := range ops {
		plan.Only[op] = rates
	}
	return plan
}

func TestTheStoreRefusesAnEvent(t *testing.T) {
	for name, rates := range refusals {
		for _, op := range []faulty.Operation{faulty.CreateExchange, faulty.AppendEvent} {
			t.Run(name+" of "+string(op), func(t *testing.T) {
				inWorld(t, setup{plan: refusingOnly(rates, op)}, func(w *world) {
					s := w.session(w.client, latest)
					q := client.Tool("slow", `{"key":"k","ms":3000,"n":3}`)
					q.Progress = `"p"`
					o := s.Call(w.t.Context(), q)
					assert.Equal(w.t, "k", o.Text(), o.Trace)
					assert.Equal(w.t, 3, o.Notifications)
					assert.True(w.t, o.NoID)
					assert.Zero(w.t, o.Resumes, "whoever is attached gets everything")
					assert.Contains(w.t, strings.Join(w.log.of(s), "\n"), "ERROR the store refused an event: this stream cannot be resumed")
				})
			})
		}
	}
}

// spoiled is a store whose events have lost their end.
type spoiled struct{ store.Store }

// Events implements [store.Exchanges].
func (s spoiled) Events(ctx context.Context, exchange string, after int64, limit int) ([]store.Event, error) {
	events, err := s.Store.Events(ctx, exchange, after, limit)
	for i := range events {
		events[i].Data = events[i].Data[:len(events[i].Data)/2]
	}
	return events, err
}

func TestWhatTheStoreHasOfACallCannotBeRead(t *testing.T) {
	spoil := func(_ *instance, st store.Store) store.Store { return telling(spoiled{st}, st) }
	inWorld(t, setup{plan: mixed(32, 0.2), wrap: spoil}, func(w *world) {
		for range 5 {
			s := w.session(w.client, latest)
			o := dropped(w, s, "slow", `{"key":"k","ms":3000}`)
			if o.HeldID {
				assert.Contains(w.t, string(o.Error), "-32603", o.Trace)
			}
		}
		w.faults.Set(faulty.Plan{})
		s := w.session(w.client, latest)
		o := dropped(w, s, "slow", `{"key":"k","ms":3000}`)
		assert.Contains(w.t, string(o.Error), "cannot be read", o.Trace)
		status, _, _ := w.do(s, http.MethodPost, listTools)
		assert.Equal(w.t, 200, status, "the session lives")
	})
}

func TestTheClientCannotBeAsked(t *testing.T) {
	for _, c := range []struct {
		why, version string
		capabilities string
		setup        setup
	}{
		{"does not support elicitation", latest, `{}`, setup{}},
		{"return an InputRequests map", latest, `{"elicitation":{}}`, buffered},
		{"Return InputRequests", "2025-06-18", `{"elicitation":{}}`, buffered},
	} {
		c.setup.plan = mixed(31, 0.2)
		inWorld(t, c.setup, func(w *world) {
			w.client.Capabilities = c.capabilities
			s := w.session(w.client, c.version)
			for n := range 20 {
				key := fmt.Sprint(n)
				o := s.Call(w.t.Context(), client.Tool("ask", fmt.Sprintf(`{"key":%q}`, key)))
				require.Equal(w.t, client.Answered, o.Fate, o.Trace)
				assert.Contains(w.t, string(o.Error), c.why)
				assert.Equal(w.t, 1, w.runs.of(key))
				assert.Less(w.t, o.Ended.Sub(o.Began), 10*time.Second, "the call asks nothing of the store but its session")
			}
		})
	}
}

// What holds for a question that the store does not take: the tool has run up to it, once, and the client is not told to
// repeat that.
func (w *world) refused(o *client.Outcome, key, why string) {
	w.t.Helper()
	require.Equal(w.t, client.Answered, o.Fate, o.Trace)
	assert.Contains(w.t, string(o.Error), why)
	assert.NotContains(w.t, string(o.Error), "retryable")
	assert.Zero(w.t, o.Retries)
	assert.Equal(w.t, 1, w.runs.of(key))
	assert.Less(w.t, o.Ended.Sub(o.Began), 17*time.Second)
}

func TestTheStoreRefusesAHeldQuestion(t *testing.T) {
	for name, rates := range refusals {
		for what, c := range map[string]struct {
			plan  faulty.Plan
			why   string
			tries bool
		}{
			"the stream":   {plan: refusingOnly(rates, faulty.CreateExchange), why: "the store cannot be reached, and so"},
			"the question": {plan: refusingOnly(rates, faulty.AppendEvent), why: "the store refused the question", tries: true},
			"everything":   {plan: faulty.Plan{Rates: rates}, why: "the store cannot be reached, and so"},
		} {
			t.Run(name+" of "+what, func(t *testing.T) {
				inWorld(t, setup{}, func(w *world) {
					s := w.session(w.client, latest)
					time.AfterFunc(300*time.Millisecond, func() { w.faults.Set(c.plan) })
					q := client.Tool("ask", `{"key":"k","ms":500}`)
					q.Answer = func(json.RawMessage) string { panic("it was not to be asked") }
					o := s.Call(w.t.Context(), q)
					w.refused(o, "k", c.why)
					if c.tries {
						assert.Greater(w.t, o.Ended.Sub(o.Began), 5*time.Second)
					}
					assert.Contains(w.t, strings.Join(w.log.of(s), "\n"), "ERROR the store refused an event: this stream cannot be resumed")
				})
			})
		}
	}
}

func TestTheStoreRefusesASuspendedQuestion(t *testing.T) {
	suspends := setup{opts: handler.Options{Ask: handler.AskSuspend}}
	for name, rates := range refusals {
		for _, ops := range [][]faulty.Operation{
			{faulty.PutAnswer}, {faulty.AppendEvent}, {faulty.CreateExchange}, {faulty.PutAnswer, faulty.AppendEvent, faulty.CreateExchange},
		} {
			t.Run(fmt.Sprint(name, " of ", ops), func(t *testing.T) {
				inWorld(t, suspends, func(w *world) {
					s := w.session(w.client, latest)
					w.faults.Set(refusingOnly(rates, ops...))
					o := s.Call(w.t.Context(), client.Tool("rounds", `{"key":"k"}`))
					w.refused(o, "k round 0", "has run up to its question")
					assert.Greater(w.t, o.Ended.Sub(o.Began), 5*time.Second-time.Millisecond)
					assert.True(w.t, w.log.has("ERROR", -32603))
				})
			})
		}
		// In a later round it is the one who has come back for it that is told, also while the store takes nothing.
		t.Run(name+" in a later round", func(t *testing.T) {
			inWorld(t, suspends, func(w *world) {
				s := w.session(w.client, latest)
				q := client.Tool("rounds", `{"key":"k"}`)
				q.Answer = func(params json.RawMessage) string {
					w.faults.Set(refusingOnly(rates, faulty.AppendEvent))
					return echo(params)
				}
				o := s.Call(w.t.Context(), q)
				w.refused(o, "k round 1", "has run up to its question")
				assert.Empty(w.t, w.runs.twice())
			})
		})
	}
}

func TestAClientThatEndsItsSessionCancelsUnderFaults(t *testing.T) {
	inWorld(t, setup{plan: mixed(32, tenth)}, func(w *world) {
		for n := range 10 {
			s, key := w.session(w.client, latest), fmt.Sprint(n)
			ended := make(chan *client.Outcome)
			go func() {
				ended <- s.Call(w.t.Context(), client.Tool("slow", fmt.Sprintf(`{"key":%q,"ms":600000}`, key)))
			}()
			w.until(func() bool { return w.runs.of(key) > 0 })
			status, _ := s.Delete(w.t.Context())
			assert.Contains(w.t, []int{204, 404}, status, "one that was lost has happened")
			deleted := time.Now()
			o := <-ended
			require.Equal(w.t, client.Answered, o.Fate, o.Trace)
			assert.Contains(w.t, string(o.Error), "-32800")
			assert.Less(w.t, time.Since(deleted), 30*time.Second)
			assert.Equal(w.t, 1, w.runs.of("cancelled "+key))
		}
	})
}

func TestAToolIgnoresItsEnd(t *testing.T) {
	short := short
	short.plan = mixed(33, tenth)
	inWorld(t, short, func(w *world) {
		s := w.session(w.client, latest)
		for era, call := range map[string]func(context.Context, client.Request) *client.Outcome{"legacy": s.Call, "modern": w.client.Modern} {
			q := client.Tool("deaf", fmt.Sprintf(`{"key":%q,"ms":60000}`, era))
			q.Progress = `"p"`
			w.log.clear()
			o := call(w.t.Context(), q)
			require.Equal(w.t, client.Answered, o.Fate, o.Trace)
			assert.Contains(w.t, string(o.Error), "5s")
			assert.Less(w.t, o.Ended.Sub(o.Began), 20*time.Second)
			assert.True(w.t, w.log.has("ERROR", -32603))
			before := w.attends.Load()
			time.Sleep(2 * time.Minute)
			assert.Equal(w.t, 1, w.runs.of("late "+era), "nobody can stop it")
			assert.Equal(w.t, before, w.attends.Load(), "what it still sends goes nowhere")
		}
	})
}

func TestTheProcessThatRunsTheCallDies(t *testing.T) {
	for _, share := range []float64{0, 0.1} {
		inWorld(t, setup{plan: mixed(5, share)}, func(w *world) {
			s := w.session(w.client, latest)
			q := client.Tool("slow", `{"key":"k","ms":600000,"n":1}`)
			q.Progress = `"p"`
			var dies time.Time
			q.Drop = func(n int) bool {
				if n == 1 { // whoever has sent this runs it
					for _, i := range w.instances {
						if w.runs.of("k on "+i.name) > 0 {
							i.kill()
						}
					}
					dies = time.Now()
				}
				return false
			}
			o := s.Call(w.t.Context(), q)
			require.True(w.t, o.Interrupted(), o.Trace)
			assert.True(w.t, o.IsError())
			assert.Contains(w.t, o.Text(), "may have run")
			assert.Less(w.t, time.Since(dies), 30*time.Second+slackOf(share))
			assert.Equal(w.t, 1, w.runs.of("k"), "it is never run again")
		})
	}
}

// slackOf is what a store that fails may add: each failure sends the client away for two seconds.
func slackOf(share float64) time.Duration { return time.Duration(share * float64(3*time.Minute)) }

func TestNobodyAnswersASuspendedQuestion(t *testing.T) {
	opts := handler.Options{Ask: handler.AskSuspend, AskTimeout: time.Minute}
	inWorld(t, setup{plan: faulty.Plan{Seed: 9, Rates: faulty.Rates{Throttle: 0.1}}, opts: opts}, func(w *world) {
		s := w.session(w.client, latest)
		q := client.Tool("rounds", `{"key":"k"}`)
		q.Unanswered = true
		o := s.Call(w.t.Context(), q)
		require.Equal(w.t, client.Answered, o.Fate, o.Trace)
		assert.True(w.t, o.IsError())
		assert.Contains(w.t, o.Text(), "not answered in time")
		assert.Zero(w.t, w.runs.of("k round 1"))
	})
}

func TestAModernClientThatLeavesCancelsUnderFaults(t *testing.T) {
	inWorld(t, setup{plan: mixed(6, 0.2)}, func(w *world) {
		for n := range 20 {
			q := client.Tool("slow", fmt.Sprintf(`{"key":"k%d","ms":60000,"n":1}`, n))
			q.Progress = "1"
			q.Drop = func(int) bool { return true }
			began := time.Now()
			o := w.client.Modern(w.t.Context(), q)
			assert.Equal(w.t, client.CutInline, o.Fate)
			assert.Less(w.t, time.Since(began), time.Second)
		}
		time.Sleep(time.Second)
		for n := range 20 {
			assert.Equal(w.t, 1, w.runs.of(fmt.Sprintf("cancelled k%d", n)))
		}
	})
}

// The store comes and goes while a client polls: it is told to come back, with a new id each time, and ends with its answer.
func TestAnOutageWhileAClientComesBack(t *testing.T) {
	inWorld(t, setup{}, func(w *world) {
		s := w.session(w.client, latest)
		q := client.Tool("slow", `{"key":"k","ms":8000,"n":1}`)
		q.Progress = `"p"`
		q.Drop = func(n int) bool {
			if n == 2 {
				w.faults.Set(faulty.Plan{Rates: faulty.Rates{Error: 1}})
				time.AfterFunc(6*time.Second, func() { w.faults.Set(faulty.Plan{}) })
			}
			return n == 2
		}
		o := s.Call(w.t.Context(), q)
		require.Equal(w.t, client.Answered, o.Fate, o.Trace)
		assert.Equal(w.t, "k", o.Text())
		assert.Greater(w.t, o.Resumes, 2)
		for _, line := range o.Trace {
			assert.NotContains(w.t, line, "-> 503", "some clients give up the whole session on an error here")
		}
	})
}

// Mechanisms: one write at a time fails in the nastiest way, while the rest of the store works.

func TestALostHeartbeatIsNoDeath(t *testing.T) {
	for name, rates := range map[string]faulty.Rates{"lost": {Lost: 1}, "refused": {Error: 1}} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, setup{}, func(w *world) {
				s := w.session(w.client, latest)
				for _, at := range []time.Duration{9 * time.Second, 19 * time.Second} {
					time.AfterFunc(at, func() {
						w.faults.Set(faulty.Plan{Only: map[faulty.Operation]faulty.Rates{faulty.UpdateExchange: rates}})
					})
					time.AfterFunc(at+2*time.Second, func() { w.faults.Set(faulty.Plan{}) })
				}
				o := dropped(w, s, "slow", `{"key":"k","ms":90000}`)
				assert.Equal(w.t, "k", o.Text(), o.Trace)
			})
		})
	}
}

func TestAResponseThatTheStoreRefusesOnce(t *testing.T) {
	for _, rates := range []faulty.Rates{{Error: 1}, {Lost: 1}, {Throttle: 1}} {
		inWorld(t, setup{}, func(w *world) {
			s := w.session(w.client, latest)
			time.AfterFunc(2900*time.Millisecond, func() {
				w.faults.Set(faulty.Plan{Only: map[faulty.Operation]faulty.Rates{faulty.AppendEvent: rates}})
			})
			time.AfterFunc(3500*time.Millisecond, func() { w.faults.Set(faulty.Plan{}) })
			o := dropped(w, s, "slow", `{"key":"k","ms":3000}`)
			assert.Equal(w.t, "k", o.Text(), o.Trace)
		})
	}
}

// Any one write of a suspended call may fail once, in any way: the call ends with its result, and no round runs twice.
func TestASuspendedCallSurvivesAnyOneFailure(t *testing.T) {
	for _, op := range []faulty.Operation{
		faulty.CreateExchange, faulty.UpdateExchange, faulty.AppendEvent, faulty.PutAnswer, faulty.Answer, faulty.Exchange, faulty.Events,
	} {
		for name, rates := range map[string]faulty.Rates{"error": {Error: 1}, "lost": {Lost: 1}} {
			for n := range 6 { // the n-th call of it
				t.Run(fmt.Sprintf("%s of %s %d", name, op, n), func(t *testing.T) {
					inWorld(t, setup{opts: handler.Options{Ask: handler.AskSuspend}}, func(w *world) {
						s := w.session(w.client, latest)
						w.faults.FailNext(op, n, rates)
						q := client.Tool("rounds", `{"key":"k"}`)
						q.Answer = echo
						o := s.Call(w.t.Context(), q)
						assert.Equal(w.t, "k.1;k.2;k.3;", o.Text(), "%s\n%s", o.Error, strings.Join(o.Trace, "\n"))
						assert.Empty(w.t, w.runs.twice())
						assert.Less(w.t, time.Since(o.Began), time.Minute)
					})
				})
			}
		}
	}
}

// What is stored while one client's session changes under conflicts: no change takes another's away.
func TestChangesUnderConflictsAreAllKept(t *testing.T) {
	plan := faulty.Plan{Seed: 3, Only: map[faulty.Operation]faulty.Rates{faulty.UpdateSession: {Conflict: 0.4, Lost: 0.2}}}
	inWorld(t, setup{plan: plan}, func(w *world) {
		s := w.session(w.client, latest)
		done := make(chan struct{})
		const subscribers = 12
		for i := range subscribers {
			go func() {
				defer func() { done <- struct{}{} }()
				q := client.Request{Method: "resources/subscribe", Params: fmt.Sprintf(`{"uri":"test://%d"}`, i)}
				o := s.Call(w.t.Context(), q)
				assert.Equal(w.t, client.Answered, o.Fate, o.Trace)
			}()
		}
		for range subscribers {
			<-done
		}
		stored, err := w.under.Session(w.t.Context(), keyOf(s))
		require.NoError(w.t, err)
		assert.Len(w.t, stored.Subscriptions, subscribers, "each was acknowledged, and none twice")
	})
}
