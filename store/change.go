package store

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

const (
	changeTries   = 30
	changeBackoff = 4 * time.Millisecond // doubles up to changeMaxWait; the wait is a random part of it
	changeMaxWait = 250 * time.Millisecond
)

// ChangeSession applies change to a session that was read before, and stores it. When somebody else was faster it reads
// the session again, applies change to that and retries, a bounded number of times with a random pause between.
//
// change returns false when nothing is to be done, and then nothing is written. It may be called several times and must
// have no other effect than on its argument. [ErrNotFound] when the session has ended meanwhile, [ErrUnavailable] when
// the store fails or the contention does not end.
func ChangeSession(ctx context.Context, st Store, s *Session, change func(*Session) bool) error {
	const op = "change session"
	backoff := changeBackoff
	for try := 1; ; try++ {
		if !change(s) {
			return nil
		}
		err := st.UpdateSession(ctx, s)
		if !errors.Is(err, ErrConflict) {
			return err
		}
		if try == changeTries {
			return Wrap(op, ErrThrottled, err)
		}
		timer := time.NewTimer(rand.N(backoff))
		select {
		case <-ctx.Done():
			timer.Stop()
			return WrapContext(ctx, op)
		case <-timer.C:
		}
		backoff = min(2*backoff, changeMaxWait)
		fresh, err := st.Session(ctx, s.Key)
		if err != nil {
			return err
		}
		*s = *fresh
	}
}
