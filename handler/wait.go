package handler

import (
	"context"
	"errors"
	"time"

	"github.com/hydrant-mcp/hydrant/store"
)

// pace says how long to wait before looking into the store again, for somebody who has waited already: often while a
// program may be about to answer, seldom while a person thinks. Where the store tells by itself, looking is a safeguard.
//
// At DynamoDB's rate that is 96 reads in the first minute, and 24 in each later one.
func pace(waited time.Duration, watched bool) time.Duration {
	switch {
	case watched:
		return time.Minute
	case waited < 1200*time.Millisecond:
		return 50 * time.Millisecond
	case waited < 8*time.Second:
		return 500 * time.Millisecond
	case waited < time.Minute:
		return 850 * time.Millisecond
	}
	return 2500 * time.Millisecond
}

const (
	// cancelAfter is how long a call runs before it looks for its cancellation, and cancelEvery how often it looks then.
	// Short calls cost nothing.
	cancelAfter = time.Second
	cancelEvery = 1500 * time.Millisecond
	// A call that waits for a person looks less often: whoever does not want to be asked declines, as a rule.
	cancelAsking     = 3 * time.Second
	cancelAskingLong = 12 * time.Second // after a minute
	// leftFor is how long a call looks often after its client's connection has ended: that is how most clients cancel.
	leftFor = 10 * time.Second
	// watchAgain is how soon watching is tried again where it could not begin.
	watchAgain = 15 * time.Second
	// leaseLook is how often whoever waits for another process looks whether that one still lives.
	leaseLook = 5 * time.Second
)

// watch has the store tell when something changes, if it can. It gives nil if it cannot.
func watch(ctx context.Context, st store.Store, w store.Watched) <-chan struct{} {
	watcher, ok := st.(store.Watcher)
	if !ok {
		return nil
	}
	changed := make(chan struct{}, 1)
	err := watcher.Watch(ctx, w, func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	if err != nil {
		return nil // we look for ourselves
	}
	return changed
}

// watched is what the store tells a call.
type watched struct {
	changed <-chan struct{} // nil: nothing
	answers bool            // also of answers
	tried   time.Time
	cancel  context.CancelFunc
}

func (w *watched) stop() {
	if w.cancel != nil {
		w.cancel()
	}
}

// watch watches for cancellations, and from the first question on for answers too.
func (c *call) watch(ctx context.Context) {
	answers := len(c.pending) > 0
	switch {
	case c.told.changed == nil && time.Since(c.told.tried) < watchAgain: // not now
		return
	case c.told.changed != nil && (c.told.answers || !answers): // it does already
		return
	}
	w := store.Watched{Session: c.session}
	if answers {
		w.Inbox = c.box.record.Key
	}
	watching, cancel := context.WithCancel(ctx)
	changed := watch(watching, c.h.store, w)
	c.told.stop()
	c.told = watched{changed: changed, answers: answers && changed != nil, tried: time.Now(), cancel: cancel}
}

// nextLook says when to look again.
func (c *call) nextLook() time.Duration {
	asking := len(c.pending) > 0
	switch {
	case c.told.changed != nil && (c.told.answers || !asking):
		return pace(0, true)
	case asking:
		return pace(time.Since(c.asked), false)
	}
	return cancelEvery
}

// cancelDue says whether it is time to look for a cancellation, for one who is not told.
func (c *call) cancelDue() bool {
	every := cancelEvery / 2
	if len(c.pending) > 0 && time.Since(c.left) > leftFor {
		every = cancelAsking
		if time.Since(c.asked) > time.Minute {
			every = cancelAskingLong
		}
	}
	return time.Since(c.looked) >= every
}

// lookAround looks for answers to what was asked, and for a cancellation. told: the store says that there is something.
func (c *call) lookAround(ctx context.Context, told bool) {
	storeCtx, stop := toStore(ctx)
	defer stop()
	for slot, q := range c.pending {
		result, failed, ok, err := readAnswer(storeCtx, c.h.store, c.box.record.Key, slot)
		switch {
		case err != nil:
			return // the store is away; we look again
		case ok:
			delete(c.pending, slot)
			q.answer(result, failed)
		}
	}
	if !told && !c.cancelDue() {
		return
	}
	c.looked = time.Now()
	s, err := c.h.store.Session(storeCtx, c.session)
	if errors.Is(err, store.ErrNotFound) && c.looked.Before(c.lives) {
		// The client has ended the session, perhaps right after it has cancelled. One that has expired meanwhile is no reason.
		c.cancel(errCancelled)
	}
	if err != nil || s.Cancels <= c.cancels {
		return
	}
	fresh := min(int(s.Cancels-c.cancels), len(s.Cancelled))
	c.cancels = s.Cancels
	mine := canonicalID(c.x.msg.id)
	for _, id := range s.Cancelled[len(s.Cancelled)-fresh:] {
		if id == mine {
			c.cancel(errCancelled)
		}
	}
}
