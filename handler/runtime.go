package handler

import (
	"context"
	"time"
)

// A Runtime is what the platform can do for one HTTP request. Adapters put it into the request's context with
// [WithRuntime]; without one a request counts as served by net/http, which streams and has no limits.
type Runtime struct {
	// Buffered says that a response reaches the client only when it is complete.
	Buffered bool
	// Deadline is when the platform ends the request. Zero: never.
	Deadline time.Time
	// MaxResponse is the largest response body, in bytes. Zero: no limit.
	MaxResponse int64
	// HoldResponses says that the process may not get to run when a response has ended: none ends before its call does, also
	// where a tool would have its client poll.
	HoldResponses bool
	// Draining is closed when the process is about to end: streams that wait for something end then, politely, and their
	// clients come back to another instance. Nil: never.
	Draining <-chan struct{}
}

type runtimeKey struct{}

// WithRuntime says what the platform can do for the request that ctx belongs to.
func WithRuntime(ctx context.Context, r Runtime) context.Context {
	return context.WithValue(ctx, runtimeKey{}, r)
}

func runtimeOf(ctx context.Context) Runtime {
	r, _ := ctx.Value(runtimeKey{}).(Runtime)
	return r
}
