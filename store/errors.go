package store

import (
	"context"
	"errors"
	"fmt"
)

// Wrap gives an error of a store its operation and its kind: kind is one of this package's errors, cause what the
// database's client said, or nil. ErrThrottled is ErrUnavailable as well.
func Wrap(op string, kind, cause error) error {
	if kind == ErrThrottled {
		kind = throttled{}
	}
	if cause == nil {
		return fmt.Errorf("%s: %w", op, kind)
	}
	return fmt.Errorf("%s: %w: %w", op, kind, cause)
}

// WrapContext wraps an operation's error when ctx is what ended it: a cancellation is passed on as such, a deadline is
// [ErrUnavailable] as well. It returns nil when ctx has not ended.
func WrapContext(ctx context.Context, op string) error {
	switch err := ctx.Err(); {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return Wrap(op, ErrUnavailable, err)
	default:
		return fmt.Errorf("%s: %w", op, err)
	}
}

type throttled struct{}

func (throttled) Error() string { return ErrThrottled.Error() }

func (throttled) Is(target error) bool { return target == ErrThrottled || target == ErrUnavailable }
