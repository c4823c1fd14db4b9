package handler

import (
	"sync"
	"time"
)

// busy counts what one process has under way, and what it has stored of late. It bounds what a client can make the process
// hold and the store keep; nothing else depends on it.
type busy struct {
	mu             sync.Mutex
	calls, streams map[string]int // by session; "" has the streams that belong to none
	held           int            // streams

	// What was stored of each session in this retention, and in the one before: what the store may still have of it.
	stored, before map[string]amount
	since          time.Time
}

// amount is how much the store keeps.
type amount struct {
	events int
	bytes  int64
}

func (a amount) plus(b amount) amount { return amount{a.events + b.events, a.bytes + b.bytes} }

// call takes a place for a call of a session. done gives it back.
func (b *busy) call(session string, opts *Options) (done func(), f *failure) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.calls[session] >= opts.MaxCalls {
		return nil, errBusy("the session has %d calls running here already", opts.MaxCalls)
	}
	if b.full(session, opts) {
		return nil, errBusy("the session has stored too much here of late: at most %d events and %d bytes in %v",
			opts.MaxSessionEvents, opts.MaxSessionStored, retention)
	}
	if b.calls == nil {
		b.calls = map[string]int{}
	}
	b.calls[session]++
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		release(b.calls, session)
	}, nil
}

func release(count map[string]int, session string) {
	if count[session]--; count[session] == 0 {
		delete(count, session)
	}
}

// stream takes a place for a stream that waits.
func (b *busy) stream(session string, opts *Options) (done func(), f *failure) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.held >= opts.MaxStreams:
		return nil, errBusy("this process holds %d streams already", opts.MaxStreams)
	case session != "" && b.streams[session] >= opts.MaxSessionStreams:
		return nil, errBusy("the session has %d streams open here already", opts.MaxSessionStreams)
	}
	if b.streams == nil {
		b.streams = map[string]int{}
	}
	b.streams[session]++
	b.held++
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		release(b.streams, session)
		b.held--
	}, nil
}

// keep notes an event that was stored of a session.
func (b *busy) keep(session string, bytes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.turn()
	if b.stored == nil {
		b.stored = map[string]amount{}
	}
	b.stored[session] = b.stored[session].plus(amount{1, int64(bytes)})
}

// mayKeep says whether more may be stored of a session.
func (b *busy) mayKeep(session string, opts *Options) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.full(session, opts)
}

func (b *busy) full(session string, opts *Options) bool {
	b.turn()
	kept := b.stored[session].plus(b.before[session])
	return kept.events >= opts.MaxSessionEvents || kept.bytes >= opts.MaxSessionStored
}

// turn forgets what the store does not keep any more.
func (b *busy) turn() {
	now := time.Now()
	switch passed := now.Sub(b.since); {
	case passed >= 2*retention:
		b.stored, b.before, b.since = nil, nil, now
	case passed >= retention:
		b.stored, b.before, b.since = nil, b.stored, now
	}
}
