package handler

import (
	"context"
	"time"

	"github.com/hydrant-mcp/hydrant/store"
)

// pace says how long to wait before looking into the store again, for somebody who has waited already: often while a
// program may be about to answer, seldom while a person thinks. Where the store tells by itself, looking is a safeguard.
//
// At DynamoDB's rate that is 99 looks in the first minute, and 30 in each later one. A call looks for a cancellation as
// well then: no look may be later than two seconds after the one before.
func pace(waited time.Duration, watched bool) time.Duration {
	switch {
	case watched:
		return 5 * time.Minute
	case waited < 1200*time.Millisecond:
		return 50 * time.Millisecond
	case waited < 8*time.Second:
		return 500 * time.Millisecond
	case waited < time.Minute:
		return 850 * time.Millisecond
	}
	return 2 * time.Second
}

const (
	// cancelAfter is how long a call runs before it looks for its cancellation, and cancelEvery how often it looks then.
	// Short calls cost nothing.
	cancelAfter = time.Second
	cancelEvery = 1500 * time.Millisecond
	// watchAgain is how soon watching is tried again where it could not begin, or was lost.
	watchAgain = 15 * time.Second
	// leaseLook is how often whoever waits for another process looks whether that one still lives.
	leaseLook = 5 * time.Second
)

// watch has the store tell when something changes, if it can and until lost is closed. It gives nil if it cannot.
func watch(ctx context.Context, st store.Store, w store.Watched) (changed, lost <-chan struct{}) {
	watcher, ok := st.(store.Watcher)
	if !ok {
		return nil, nil
	}
	wake, over := make(chan struct{}, 1), make(chan struct{})
	tell := func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
	w.Lost = func() {
		close(over)
		tell() // there may be something to see, and the next look is far away
	}
	if watcher.Watch(ctx, w, tell) != nil {
		return nil, nil // we look for ourselves
	}
	return wake, over
}

// watched is what the store tells somebody who waits.
type watched struct {
	changed <-chan struct{} // nil: nothing
	lost    <-chan struct{} // closed when it does not tell any more
	tried   time.Time
	cancel  context.CancelFunc
}

// begin has the store tell of something, and only then no longer of what it told before.
func (w *watched) begin(ctx context.Context, st store.Store, what store.Watched) {
	watching, cancel := context.WithCancel(ctx)
	changed, lost := watch(watching, st, what)
	w.stop()
	*w = watched{changed, lost, time.Now(), cancel}
}

// tells says whether the store tells. When it does not any more, it is as if it had just refused.
func (w *watched) tells() bool {
	select {
	case <-w.lost:
		w.stop()
		*w = watched{tried: time.Now()}
	default:
	}
	return w.changed != nil
}

// refused says that the store could not tell a moment ago: it is not asked again yet.
func (w *watched) refused() bool { return !w.tells() && time.Since(w.tried) < watchAgain }

func (w *watched) stop() {
	if w.cancel != nil {
		w.cancel()
	}
}

// watch watches for cancellations, and for the answers to what was asked.
func (c *call) watch(ctx context.Context) {
	if c.told.refused() || c.toldAll() {
		return
	}
	c.told.begin(ctx, c.h.store, store.Watched{Session: c.session, Slots: c.slots()})
	c.toldOf = len(c.x.slots)
}

// toldAll says whether the store tells of everything that this call waits for.
func (c *call) toldAll() bool {
	return c.told.tells() && (c.toldOf == len(c.x.slots) || len(c.pending) == 0)
}

// nextLook says when to look again.
func (c *call) nextLook() time.Duration {
	switch {
	case c.toldAll():
		return pace(0, true)
	case len(c.pending) > 0:
		return pace(time.Since(c.asked), false)
	}
	return cancelEvery
}

// lookAround looks for answers to what was asked, and for a cancellation. It gives how soon to look again.
func (c *call) lookAround(ctx context.Context) time.Duration {
	storeCtx, stop := toStore(ctx)
	defer stop()
	looked := time.Now()
	s, answers, err := c.h.store.Look(storeCtx, c.session, c.slots())
	if err != nil { // what the store has told of is still to be seen
		return min(c.nextLook(), cancelEvery)
	}
	for slot, raw := range answers {
		q := c.pending[slot.Question]
		delete(c.pending, slot.Question)
		result, failed, err := decodeAnswer(raw)
		if err != nil {
			c.h.log(c.request, errStore(err))
			q.fail("the client's answer cannot be read")
			continue
		}
		q.answer(result, failed)
	}
	if s == nil {
		// The client has ended the session, perhaps right after it has cancelled. One that has expired meanwhile is no reason.
		if looked.Before(c.lives) {
			c.cancel(errCancelled)
		}
		return c.nextLook()
	}
	c.lives = s.Expires // other messages have renewed it
	if cancelledSince(s, c.cancels, c.x.msg.id) {
		c.cancel(errCancelled)
	}
	c.cancels = max(c.cancels, s.Cancels)
	return c.nextLook()
}

// slots are where the answers go that the call waits for.
func (c *call) slots() []store.Slot {
	var slots []store.Slot
	for slot := range c.pending {
		slots = append(slots, store.Slot{Exchange: c.box.record.Key, Question: slot})
	}
	return slots
}
