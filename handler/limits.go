package handler

import "sync"

// busy counts what one process has under way. It bounds what a client can make the process hold; nothing else depends on it.
type busy struct {
	mu      sync.Mutex
	calls   map[string]int // by session
	streams int
}

// call takes a place for a call of a session. The second result gives it back.
func (b *busy) call(session string, most int) (ok bool, done func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.calls[session] >= most {
		return false, nil
	}
	if b.calls == nil {
		b.calls = map[string]int{}
	}
	b.calls[session]++
	return true, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.calls[session]--; b.calls[session] == 0 {
			delete(b.calls, session)
		}
	}
}

// stream takes a place for a stream that waits. The second result gives it back.
func (b *busy) stream(most int) (ok bool, done func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.streams >= most {
		return false, nil
	}
	b.streams++
	return true, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.streams--
	}
}

// hold takes a place for a stream that waits.
func (q *request) hold() (done func(), f *failure) {
	ok, done := q.h.busy.stream(q.h.opts.MaxStreams)
	if !ok {
		return nil, errBusy("this process holds %d streams already", q.h.opts.MaxStreams)
	}
	return done, nil
}
