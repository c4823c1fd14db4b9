package firestore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hydrant-mcp/hydrant/internal/emulator"
	"github.com/hydrant-mcp/hydrant/store"
	hydrant "github.com/hydrant-mcp/hydrant/store/firestore"
	"github.com/hydrant-mcp/hydrant/store/internal/drivertest"
	"github.com/hydrant-mcp/hydrant/store/storetest"
)

func TestUnreachableDatabaseIsUnavailableSoon(t *testing.T) {
	st := newStore(t, drivertest.ClosedPort(t), "")
	st.SetTimeout(time.Second) // the client would try for ever
	start := time.Now()
	for name, err := range callAll(t.Context(), st) {
		require.ErrorIs(t, err, store.ErrUnavailable, name)
		assert.NotErrorIs(t, err, store.ErrNotFound, name)
		assert.ErrorContains(t, err, "firestore: ", name)
	}
	assert.Less(t, time.Since(start), 5*time.Second)
}

// serve answers every call with what answer returns.
func serve(t *testing.T, answer func() error) string {
	t.Helper()
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error { return answer() }))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan error)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		require.NoError(t, <-done)
	})
	return l.Addr().String()
}

func TestSilentDatabaseIsUnavailableAtTheDeadline(t *testing.T) {
	release := make(chan struct{})
	address := serve(t, func() error { <-release; return nil })
	defer close(release)
	st := newStore(t, address, "")
	for name, call := range drivertest.EveryCall(st, hydrant.Revision) {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			err := call(ctx)
			require.ErrorIs(t, err, store.ErrUnavailable)
			assert.NotErrorIs(t, err, store.ErrNotFound)
		})
		t.Run(name+", cancelled", func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(20*time.Millisecond, cancel)
			require.ErrorIs(t, call(ctx), context.Canceled)
		})
	}
}

func TestErrorsOfTheDatabaseAreClassified(t *testing.T) {
	const database = `database "projects/project/databases/(default)"`
	for code, says := range map[codes.Code]string{
		codes.Unavailable:        database,
		codes.DeadlineExceeded:   database,
		codes.Aborted:            database,
		codes.ResourceExhausted:  database,
		codes.Internal:           database,
		codes.Unknown:            database,
		codes.InvalidArgument:    database,
		codes.FailedPrecondition: "",
		codes.PermissionDenied:   "no permission to use " + database,
		codes.Unauthenticated:    "no permission to use " + database,
		codes.NotFound:           "there is no " + database,
	} {
		t.Run(code.String(), func(t *testing.T) {
			t.Parallel()
			address := serve(t, func() error { return status.Error(code, "m") })
			st := newStore(t, address, "")
			st.SetTimeout(time.Second) // for what the client repeats
			start := time.Now()
			for name, err := range callAll(t.Context(), st) {
				require.ErrorIs(t, err, store.ErrUnavailable, name)
				assert.NotErrorIs(t, err, store.ErrNotFound, name)
				assert.NotErrorIs(t, err, store.ErrConflict, name)
				assert.ErrorContains(t, err, says, name)
				throttled := code == codes.ResourceExhausted && !isWrite(name)
				assert.Equal(t, throttled, errors.Is(err, store.ErrThrottled), name)
			}
			assert.Less(t, time.Since(start), 10*time.Second)
		})
	}
}

// isWrite says whether a call begins with a write: what is large is looked for first.
func isWrite(call string) bool {
	if strings.HasSuffix(call, ", large") {
		return false
	}
	for _, verb := range []string{"Create", "Update", "Delete", "Append", "Put", "Raise"} {
		if strings.HasPrefix(call, verb) {
			return true
		}
	}
	return false
}

// What the client does not repeat by itself: a write that was aborted because others were writing the same document.
func TestAbortedWriteIsRepeated(t *testing.T) {
	var abort atomic.Int64
	st := newStore(t, emulator.FirestoreForTest(t), newPrefix(), grpc.WithUnaryInterceptor(
		func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
			call grpc.UnaryInvoker, opts ...grpc.CallOption,
		) error {
			if abort.Add(-1) >= 0 {
				return status.Error(codes.Aborted, "contention")
			}
			return call(ctx, method, req, reply, cc, opts...)
		}))
	abort.Store(3)
	s := storetest.NewSession()
	require.NoError(t, st.CreateSession(t.Context(), s))
	abort.Store(3)
	require.NoError(t, st.UpdateSession(t.Context(), s))
	abort.Store(100)
	require.ErrorIs(t, st.UpdateSession(t.Context(), s), store.ErrUnavailable)
	assert.Greater(t, abort.Load(), int64(80), "in bounds")
}

// The client repeats a write whose response was lost. The second attempt finds the first one's work and must not take it
// for somebody else's.
func TestWriteWhoseResponseWasLostSucceeds(t *testing.T) {
	var lose atomic.Bool
	st := newStore(t, emulator.FirestoreForTest(t), newPrefix(), grpc.WithUnaryInterceptor(
		func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
			call grpc.UnaryInvoker, opts ...grpc.CallOption,
		) error {
			err := call(ctx, method, req, reply, cc, opts...)
			if err == nil && lose.CompareAndSwap(true, false) {
				return status.Error(codes.Unavailable, "connection lost")
			}
			return err
		}))
	ctx := t.Context()
	inAnHour := time.Now().Add(time.Hour)
	lost := func(call func() error) {
		t.Helper()
		lose.Store(true)
		require.NoError(t, call())
		require.False(t, lose.Load(), "a response was lost")
	}

	s := storetest.NewSession()
	lost(func() error { return st.CreateSession(ctx, s) })
	s.LogLevel = "alert"
	lost(func() error { return st.UpdateSession(ctx, s) })
	got, err := st.Session(ctx, s.Key)
	require.NoError(t, err)
	assert.Equal(t, "alert", got.LogLevel)
	require.NoError(t, st.UpdateSession(ctx, s), "the revision is the record's")
	lost(func() error { return st.DeleteSession(ctx, s.Key) })
	_, err = st.Session(ctx, s.Key)
	require.ErrorIs(t, err, store.ErrNotFound)

	x := storetest.NewExchange()
	lost(func() error { return st.CreateExchange(ctx, x) })
	x.Owner = "me"
	lost(func() error { return st.UpdateExchange(ctx, x) })
	gotX, err := st.Exchange(ctx, x.Key)
	require.NoError(t, err)
	assert.Equal(t, "me", gotX.Owner)
	require.NoError(t, st.UpdateExchange(ctx, x), "the revision is the record's")

	for seq, size := range []int{10, 1 << 20} {
		e := store.Event{Seq: int64(seq + 1), Data: make([]byte, size)}
		lost(func() error { return st.AppendEvent(ctx, "x", e, inAnHour) })
		question := fmt.Sprint(seq)
		lost(func() error { return st.PutAnswer(ctx, "x", question, e.Data, inAnHour) })
		answer, err := st.Answer(ctx, "x", question)
		require.NoError(t, err)
		assert.Len(t, answer, size)
	}
	events, err := st.Events(ctx, "x", 0, 0)
	require.NoError(t, err)
	assert.Len(t, events, 2)
}

// What a message costs is part of the design: the table "Store operations per message". A conflict costs the read that
// tells whose write was in the way.
func TestOperationsAreAsFewAsTheDesignSays(t *testing.T) {
	var mu sync.Mutex
	var calls []string
	count := func(method string) {
		mu.Lock()
		defer mu.Unlock()
		calls = append(calls, method[strings.LastIndex(method, "/")+1:])
	}
	st := newStore(t, emulator.FirestoreForTest(t), newPrefix(),
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
			call grpc.UnaryInvoker, opts ...grpc.CallOption,
		) error {
			count(method)
			return call(ctx, method, req, reply, cc, opts...)
		}),
		grpc.WithStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
			open grpc.Streamer, opts ...grpc.CallOption,
		) (grpc.ClientStream, error) {
			count(method)
			return open(ctx, desc, cc, method, opts...)
		}))
	ctx := t.Context()
	inAnHour := time.Now().Add(time.Hour)
	s := storetest.NewSession()
	stale := *s
	x := storetest.NewExchange()
	staleX := *x
	event := func(exchange string, seq int64, size int) func() error {
		return func() error {
			return st.AppendEvent(ctx, exchange, store.Event{Seq: seq, Data: make([]byte, size)}, inAnHour)
		}
	}
	events := func(exchange string) func() error {
		return func() error { _, err := st.Events(ctx, exchange, 0, 0); return err }
	}
	var topics []string
	for i := range 250 {
		topics = append(topics, fmt.Sprint(i))
	}
	largeAnswer := func() error { return st.PutAnswer(ctx, "large", "q", make([]byte, 1<<20), inAnHour) }
	const write, read, query = "Commit", "BatchGetDocuments", "RunQuery"
	for _, step := range []struct {
		name string
		call func() error
		err  error
		want []string
	}{
		{"create a session", func() error { return st.CreateSession(ctx, s) }, nil, []string{write}},
		{"create it again", func() error { return st.CreateSession(ctx, s) }, store.ErrExists, []string{write, read}},
		{"read a session", func() error { _, err := st.Session(ctx, s.Key); return err }, nil, []string{read}},
		{"update a session", func() error {
			stale.Revision = s.Revision
			return st.UpdateSession(ctx, s)
		}, nil, []string{write}},
		{"update a stale one", func() error { return st.UpdateSession(ctx, &stale) }, store.ErrConflict, []string{write, read}},
		{"delete a session", func() error { return st.DeleteSession(ctx, s.Key) }, nil, []string{write}},
		{"create an exchange", func() error { return st.CreateExchange(ctx, x) }, nil, []string{write}},
		{"create it again", func() error { return st.CreateExchange(ctx, x) }, store.ErrExists, []string{write, read}},
		{"read an exchange", func() error { _, err := st.Exchange(ctx, x.Key); return err }, nil, []string{read}},
		{"update an exchange", func() error {
			staleX.Revision = x.Revision
			return st.UpdateExchange(ctx, x)
		}, nil, []string{write}},
		{"update a stale one", func() error { return st.UpdateExchange(ctx, &staleX) }, store.ErrConflict,
			[]string{write, read}},
		{"append an event", event("x", 1, 800), nil, []string{write}},
		{"append it again", event("x", 1, 800), nil, []string{write, read}},
		{"append the final event", event("x", store.Final, 800), nil, []string{write}},
		{"read events", events("x"), nil, []string{query}},
		{"append a large event", event("large", 1, 1<<20), nil, []string{read, write, write, write}},
		{"append it again", event("large", 1, 1<<20), nil, []string{read}},
		{"append other bytes", event("large", 1, 1<<20-1), store.ErrConflict, []string{read}},
		{"read a large event", events("large"), nil, []string{query, read}},
		{"put an answer", func() error { return st.PutAnswer(ctx, "x", "q", nil, inAnHour) }, nil, []string{write}},
		{"put another", func() error { return st.PutAnswer(ctx, "x", "q", nil, inAnHour) }, store.ErrExists,
			[]string{write, read}},
		{"put a large answer", largeAnswer, nil, []string{read, write, write, write}},
		{"put it again", largeAnswer, store.ErrExists, []string{read}},
		{"read an answer", func() error { _, err := st.Answer(ctx, "x", "q"); return err }, nil, []string{read}},
		{"look for two", func() error {
			_, _, err := st.Look(ctx, s.Key, []store.Slot{{Exchange: "x", Question: "q"}, {Exchange: "x", Question: "p"}})
			return err
		}, nil, []string{read}},
		{"raise a topic", func() error { return st.RaiseTopic(ctx, "7") }, nil, []string{write, write}},
		{"raise it again", func() error { return st.RaiseTopic(ctx, "7") }, nil, []string{write}},
		{"read topics", func() error { _, err := st.TopicVersions(ctx, topics); return err }, nil, []string{read, read, read}},
	} {
		calls = nil
		err := step.call()
		if step.err == nil {
			require.NoError(t, err, step.name)
		} else {
			require.ErrorIs(t, err, step.err, step.name)
		}
		assert.Equal(t, step.want, calls, step.name)
	}
}
