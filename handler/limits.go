package handler

import "sync"

// busy counts what one process has under way. It bounds what a client can make the process hold; nothing else depends on it.
type busy struct {
	mu             sync.Mutex
	calls, streams map[string]int // by session; "" has the streams that belong to none
	held           int            // streams
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
		release(b.calls, session)
	}
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
