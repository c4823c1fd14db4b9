package faults

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/handler"
	"github.com/hydrant-mcp/hydrant/internal/cmd/soak/client"
	"github.com/hydrant-mcp/hydrant/store/faulty"
)

// What the client sees in the middle of a call.

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
		if o.Fate == client.Answered && strings.Contains(string(o.Error), "store cannot be reached") {
			return
		}
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
