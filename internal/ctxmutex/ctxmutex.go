// Package ctxmutex has a mutex for what may take long: whoever waits for it need not wait longer than it wants to.
package ctxmutex

import "context"

// A Mutex is a mutual exclusion lock. Make it with [New].
type Mutex chan struct{}

// New makes an unlocked mutex.
func New() Mutex { return make(Mutex, 1) }

// Lock locks m, or gives up with the context's cause when ctx ends first.
func (m Mutex) Lock(ctx context.Context) error {
	select {
	case m <- struct{}{}:
		return nil
	default:
	}
	select {
	case m <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Unlock unlocks m.
func (m Mutex) Unlock() { <-m }
