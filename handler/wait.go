package handler

import (
	"context"
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
		return 15 * time.Second
	case waited < 1300*time.Millisecond:
		return 50 * time.Millisecond
	case waited < 8*time.Second:
		return 400 * time.Millisecond
	case waited < time.Minute:
		return time.Second
	}
	return 2500 * time.Millisecond
}

const (
	// cancelAfter is how long a call runs before it looks for its cancellation, and cancelEvery how often it looks then.
	// Short calls cost nothing.
	cancelAfter = time.Second
	cancelEvery = 1500 * time.Millisecond
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

// watch watches for answers and cancellations.
func (c *call) watch(ctx context.Context) <-chan struct{} {
	w := store.Watched{Session: c.session}
	if c.box != nil {
		w.Exchange = c.box.record.Key
	}
	return watch(ctx, c.h.store, w)
}

// lookAround looks for answers to what was asked, and for a cancellation.
func (c *call) lookAround(ctx context.Context) {
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
	if time.Since(c.looked) < cancelEvery/2 {
		return
	}
	c.looked = time.Now()
	s, err := c.h.store.Session(storeCtx, c.session)
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
