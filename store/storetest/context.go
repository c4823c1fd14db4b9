package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/hydrant-mcp/hydrant/store"
)

var contextTests = []test{
	{"CancellationEndsEveryCall", testCancelled},
	{"PassedDeadlineIsUnavailable", testDeadline},
}

// soon is how long a call may take whose context has ended before it began.
const soon = 5 * time.Second

// eachCall makes every call of a store, on records that exist where that makes a difference.
func eachCall(ctx context.Context, t *testing.T, st store.Store, ended context.Context, check func(*testing.T, error)) {
	s := create(ctx, t, st, nil)
	x := createExchange(ctx, t, st, nil)
	exchange, topic := unused(), unused()
	appendEvent(ctx, t, st, exchange, 1, small(1))
	for name, call := range map[string]func(ctx context.Context) error{
		"CreateSession":  func(ctx context.Context) error { return st.CreateSession(ctx, NewSession()) },
		"Session":        func(ctx context.Context) error { _, err := st.Session(ctx, s.Key); return err },
		"UpdateSession":  func(ctx context.Context) error { return st.UpdateSession(ctx, s) },
		"DeleteSession":  func(ctx context.Context) error { return st.DeleteSession(ctx, s.Key) },
		"CreateExchange": func(ctx context.Context) error { return st.CreateExchange(ctx, NewExchange()) },
		"Exchange":       func(ctx context.Context) error { _, err := st.Exchange(ctx, x.Key); return err },
		"UpdateExchange": func(ctx context.Context) error { return st.UpdateExchange(ctx, x) },
		"AppendEvent": func(ctx context.Context) error {
			return st.AppendEvent(ctx, exchange, store.Event{Seq: 2, Data: small(2)}, inAnHour())
		},
		"AppendEvent, large": func(ctx context.Context) error {
			return st.AppendEvent(ctx, exchange, store.Event{Seq: 2, Data: pattern(2<<20, 2)}, inAnHour())
		},
		"Events":        func(ctx context.Context) error { _, err := st.Events(ctx, exchange, 0, 0); return err },
		"PutAnswer":     func(ctx context.Context) error { return st.PutAnswer(ctx, exchange, "q", small(1), inAnHour()) },
		"Answer":        func(ctx context.Context) error { _, err := st.Answer(ctx, exchange, "q"); return err },
		"Look":          func(ctx context.Context) error { _, _, err := st.Look(ctx, s.Key, nil); return err },
		"RaiseTopic":    func(ctx context.Context) error { return st.RaiseTopic(ctx, topic) },
		"TopicVersions": func(ctx context.Context) error { _, err := version(ctx, st, topic); return err },
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			err := call(ended)
			assert.Less(t, time.Since(start), soon)
			check(t, err)
			assert.NotErrorIs(t, err, store.ErrNotFound)
		})
	}
}

func testCancelled(ctx context.Context, t *testing.T, st store.Store) {
	ended, cancel := context.WithCancel(ctx)
	cancel()
	eachCall(ctx, t, st, ended, func(t *testing.T, err error) {
		assert.ErrorIs(t, err, context.Canceled)
		assert.NotErrorIs(t, err, store.ErrUnavailable, "it is the caller who went away")
	})
}

func testDeadline(ctx context.Context, t *testing.T, st store.Store) {
	ended, cancel := context.WithDeadline(ctx, time.Now().Add(-time.Second))
	defer cancel()
	eachCall(ctx, t, st, ended, func(t *testing.T, err error) {
		assert.ErrorIs(t, err, store.ErrUnavailable)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
	})
}
