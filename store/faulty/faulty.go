// Package faulty makes a store fail: it is for tests that show what a program does when its database has a bad day.
//
//	faults := faulty.New(faulty.Plan{Seed: 1, Rates: faulty.Rates{Error: 0.05, Lost: 0.02}, Latency: 20 * time.Millisecond})
//	h := handler.New(server, faults.Wrap(memory.New()), nil)
//
// What fails is decided by a plan and its seed, so that a run can be repeated. A write that is [Lost] happens and reports
// that it failed: the case that a caller forgets.
package faulty

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/hydrant-mcp/hydrant/store"
)

// Faults are a plan that is carried out, over any number of stores.
type Faults struct {
	mu       sync.Mutex
	plan     Plan
	calls    map[Operation]uint64
	injected map[Kind]int
	singles  map[Operation]single
}

// single is a fault of one call.
type single struct {
	call  uint64
	rates Rates
}

// New carries out a plan. It panics when the plan's rates cannot be meant.
func New(plan Plan) *Faults {
	f := &Faults{calls: map[Operation]uint64{}, injected: map[Kind]int{}, singles: map[Operation]single{}}
	f.Set(plan)
	return f
}

// Set changes the plan. The operations are counted on; the zero Plan ends all faults.
func (f *Faults) Set(plan Plan) {
	if err := plan.check(); err != nil {
		panic("faulty: " + err.Error())
	}
	if plan.Patience == 0 {
		plan.Patience = defaultPatience
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plan = plan
}

// FailNext gives one call of an operation rates of its own, beside the plan: the next one but n.
func (f *Faults) FailNext(op Operation, n int, rates Rates) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.singles[op] = single{f.calls[op] + uint64(n) + 1, rates}
}

// Injected says how many faults there were, by kind.
func (f *Faults) Injected() map[Kind]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.injected)
}

// Calls says how many calls of an operation there were.
func (f *Faults) Calls(op Operation) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return int(f.calls[op])
}

// Wrap gives a store that does what st does, and fails by the plan. It is a [store.Watcher] if st is one; of a watch, it is
// the beginning that fails.
func (f *Faults) Wrap(st store.Store) store.Store { return Around(f.do).Wrap(st) }

// next is the fate of the next call of an operation.
func (f *Faults) next(op Operation) (fate, time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[op]++
	plan := f.plan
	if one, ok := f.singles[op]; ok && one.call == f.calls[op] {
		plan.Only = map[Operation]Rates{op: one.rates}
	}
	next := plan.fate(op, f.calls[op])
	switch {
	case next.kind == Lost && !op.Writes():
		next.kind = Error
	case next.kind == Conflict && op != UpdateSession && op != UpdateExchange:
		next.kind = None
	}
	if next.kind != None {
		f.injected[next.kind]++
	}
	return next, f.plan.Patience
}

// do makes one call, or not, as the plan has it.
func (f *Faults) do(ctx context.Context, op Operation, call func(context.Context) error) error {
	text := "faulty: " + string(op)
	next, patience := f.next(op)
	if err := wait(ctx, text, next.latency); err != nil {
		return err
	}
	switch next.kind {
	case Error:
		return store.Wrap(text, store.ErrUnavailable, nil)
	case Throttle:
		return store.Wrap(text, store.ErrThrottled, nil)
	case Conflict:
		return store.Wrap(text, store.ErrConflict, nil)
	case Timeout:
		if err := wait(ctx, text, patience); err != nil {
			return err
		}
		return store.Wrap(text, store.ErrUnavailable, context.DeadlineExceeded)
	case Lost:
		if err := call(ctx); err != nil {
			return err // it did not happen
		}
		return store.Wrap(text, store.ErrUnavailable, nil)
	}
	return call(ctx)
}

func wait(ctx context.Context, op string, d time.Duration) error {
	if d <= 0 {
		return nil // the store itself looks whether ctx has ended
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return store.WrapContext(ctx, op)
	}
}
