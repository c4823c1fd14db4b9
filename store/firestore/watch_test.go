package firestore_test

import (
	"context"
	"math"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/firestore/apiv1/firestorepb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hydrant-mcp/hydrant/internal/emulator"
	"github.com/hydrant-mcp/hydrant/store"
	hydrant "github.com/hydrant-mcp/hydrant/store/firestore"
	"github.com/hydrant-mcp/hydrant/store/internal/drivertest"
	"github.com/hydrant-mcp/hydrant/store/storetest"
)

func nothing() {}

func TestWatchLeavesNothingBehind(t *testing.T) {
	db := newDatabase(t)
	x := storetest.NewExchange()
	require.NoError(t, db.CreateExchange(t.Context(), x)) // connects
	first, leave := context.WithCancel(t.Context())
	require.NoError(t, db.Watch(first, store.Watched{Session: x.Session}, nothing)) // connects as well
	leave()
	require.Eventually(t, idle(db.Store), 10*time.Second, time.Millisecond)
	for _, w := range []store.Watched{
		{Session: x.Session, Exchange: x.Key, Topics: []string{"a", "b"}},
		{Topics: []string{"a"}},
	} {
		before := goleak.IgnoreCurrent()
		ctx, stop := context.WithCancel(t.Context())
		told := make(chan struct{}, 100)
		for range 5 {
			require.NoError(t, db.Watch(ctx, w, func() { told <- struct{}{} }))
		}
		require.NoError(t, db.RaiseTopic(t.Context(), "a"))
		<-told
		stop()
		require.NoError(t, goleak.Find(before))
		assert.True(t, idle(db.Store)())
	}
}

func TestWatchThatCannotBeginIsUnavailableSoon(t *testing.T) {
	all := store.Watched{Session: "s", Exchange: "x", Topics: []string{"t"}}
	for name, tt := range map[string]struct {
		address string
		says    string
	}{
		"unreachable": {drivertest.ClosedPort(t), `database "`},
		"no permission": {serve(t, func() error { return status.Error(codes.PermissionDenied, "m") }),
			`no permission to use database "`},
		"no database":     {serve(t, func() error { return status.Error(codes.NotFound, "m") }), `there is no database "`},
		"unauthenticated": {serve(t, func() error { return status.Error(codes.Unauthenticated, "m") }), `database "`},
		"ended":           {serve(t, func() error { return nil }), `database "`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := newStore(t, tt.address, "")
			st.SetTimeout(time.Second)
			start := time.Now()
			err := st.Watch(t.Context(), all, func() { assert.Fail(t, "called") })
			require.ErrorIs(t, err, store.ErrUnavailable)
			assert.ErrorContains(t, err, "firestore: watch: ")
			assert.ErrorContains(t, err, tt.says)
			assert.Less(t, time.Since(start), 5*time.Second)
			assert.True(t, idle(st)())
		})
	}
}

// idle says that nothing is listened to.
func idle(st *hydrant.Store) func() bool {
	return func() bool {
		targets, streams := st.Listening()
		return targets == 0 && streams == 0
	}
}

// One watch waits for a database that says nothing, and those after it do not.
func TestWatchesDoNotAllWaitForASilentDatabase(t *testing.T) {
	release := make(chan struct{})
	st := newStore(t, serve(t, func() error { <-release; return nil }), "")
	defer close(release)
	require.ErrorIs(t, st.Watch(t.Context(), store.Watched{Session: "s"}, nothing), store.ErrUnavailable)
	start := time.Now()
	require.ErrorIs(t, st.Watch(t.Context(), store.Watched{Session: "s"}, nothing), store.ErrUnavailable)
	assert.Less(t, time.Since(start), time.Second)
	assert.True(t, idle(st)())
}

// A server takes 100 streams on a connection: watches share them, and what is the same is listened to once.
func TestWatchesShareStreams(t *testing.T) {
	db := newDatabase(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	const n = 2*hydrant.TargetsPerStream + hydrant.TargetsPerStream/2
	told := make([]chan struct{}, n)
	for i := range told {
		told[i] = make(chan struct{}, 10)
		w := store.Watched{Slots: []store.Slot{{Exchange: strconv.Itoa(i), Question: "0"}}, Topics: []string{"all"}}
		require.NoError(t, db.Watch(ctx, w, func() { told[i] <- struct{}{} }))
	}
	targets, streams := db.Listening()
	assert.Equal(t, n+1, targets)
	assert.Equal(t, 3, streams)

	for _, i := range []int{0, n / 2, n - 1} {
		require.NoError(t, db.PutAnswer(ctx, strconv.Itoa(i), "0", []byte("{}"), time.Now().Add(time.Hour)))
		<-told[i]
	}
	for i := range told {
		assert.Empty(t, told[i], i)
	}
	require.NoError(t, db.RaiseTopic(ctx, "all"))
	for i := range told {
		<-told[i]
	}

	first, leave := context.WithCancel(ctx)
	require.NoError(t, db.Watch(first, store.Watched{Topics: []string{"all"}}, nothing))
	leave()
	require.NoError(t, db.RaiseTopic(ctx, "all"))
	<-told[0] // who leaves takes nothing from those who stay
	stop()
	require.Eventually(t, idle(db.Store), 10*time.Second, 5*time.Millisecond)
}

func TestTooManyWatchesAreThrottled(t *testing.T) {
	db := newDatabase(t)
	db.SetMaxStreams(1)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	topics := make([]string, hydrant.TargetsPerStream+1)
	for i := range topics {
		topics[i] = strconv.Itoa(i)
	}
	require.ErrorIs(t, db.Watch(ctx, store.Watched{Topics: topics}, nothing), store.ErrThrottled)
	assert.True(t, idle(db.Store)())
	require.NoError(t, db.Watch(ctx, store.Watched{Topics: topics[1:]}, nothing))
	require.ErrorIs(t, db.Watch(ctx, store.Watched{Topics: topics[:1]}, nothing), store.ErrThrottled)
	require.NoError(t, db.Watch(ctx, store.Watched{Topics: topics[1:2]}, nothing), "this one is listened to")
}

// ofListeners has the streams of listeners, and not those of queries, go through something else.
func ofListeners(through func(grpc.ClientStream) grpc.ClientStream) grpc.DialOption {
	return grpc.WithStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
		open grpc.Streamer, opts ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		stream, err := open(ctx, desc, cc, method, opts...)
		if err == nil && desc.ClientStreams {
			stream = through(stream)
		}
		return stream, err
	})
}

// A watch for which there is no room asks nothing of the database, which bills each target.
func TestAWatchThatIsRefusedCostsNothing(t *testing.T) {
	var sent atomic.Int64
	st := newStore(t, emulator.FirestoreForTest(t), newPrefix(), ofListeners(func(s grpc.ClientStream) grpc.ClientStream {
		return counting{s, &sent}
	}))
	st.SetMaxStreams(2)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	require.NoError(t, st.Watch(ctx, store.Watched{Topics: []string{"t"}}, nothing))
	topics := make([]string, 2*hydrant.TargetsPerStream)
	for i := range topics {
		topics[i] = strconv.Itoa(i)
	}
	require.ErrorIs(t, st.Watch(ctx, store.Watched{Topics: topics}, nothing), store.ErrThrottled)
	require.NoError(t, st.Watch(ctx, store.Watched{Topics: topics[:1]}, nothing), "sent after what was refused")
	assert.EqualValues(t, 2, sent.Load())
}

type counting struct {
	grpc.ClientStream
	sent *atomic.Int64
}

func (c counting) SendMsg(m any) error {
	c.sent.Add(1)
	return c.ClientStream.SendMsg(m)
}

// A watch that is too large to begin in time is no sign that the database is silent.
func TestALargeWatchDoesNotKeepOthersFromBeginning(t *testing.T) {
	st := newStore(t, emulator.FirestoreForTest(t), newPrefix(), ofListeners(func(s grpc.ClientStream) grpc.ClientStream {
		return overtaxed{s}
	}))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	require.NoError(t, st.Watch(ctx, store.Watched{Topics: []string{"t"}}, nothing))
	require.ErrorIs(t, st.Watch(ctx, store.Watched{Topics: []string{"a", "b", "c"}}, nothing), store.ErrUnavailable)
	require.NoError(t, st.Watch(ctx, store.Watched{Session: "s"}, nothing))
}

// overtaxed is a stream on which the third and the fourth target never begin.
type overtaxed struct{ grpc.ClientStream }

func (o overtaxed) RecvMsg(m any) error {
	for {
		err := o.ClientStream.RecvMsg(m)
		ids := m.(*firestorepb.ListenResponse).GetTargetChange().GetTargetIds()
		if err != nil || len(ids) == 0 || ids[0] != 3 && ids[0] != 4 {
			return err
		}
	}
}

func TestTargetsAreToldApartAfterTheLastNumber(t *testing.T) {
	db := newDatabase(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	told := map[string]chan struct{}{}
	for i, topic := range []string{"first", "last", "again"} {
		if i == 1 {
			db.SetLastID(math.MaxInt32 - 1)
		}
		told[topic] = make(chan struct{}, 1)
		require.NoError(t, db.Watch(ctx, store.Watched{Topics: []string{topic}}, func() { told[topic] <- struct{}{} }))
	}
	for topic := range told {
		require.NoError(t, db.RaiseTopic(ctx, topic))
		<-told[topic]
	}
	for topic := range told {
		assert.Empty(t, told[topic])
	}
}

// A listener that fails is opened again, and what may have been missed is told.
func TestWatchGoesOnAfterAFailure(t *testing.T) {
	var fail atomic.Pointer[error]
	var streams atomic.Int64
	st := newStore(t, emulator.FirestoreForTest(t), newPrefix(), ofListeners(func(s grpc.ClientStream) grpc.ClientStream {
		streams.Add(1)
		return failing{s, &fail}
	}))
	for _, code := range []codes.Code{codes.PermissionDenied, codes.Unavailable} {
		t.Run(code.String(), func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			told, lost := make(chan struct{}, 100), make(chan struct{}, 100)
			fail.Store(nil)
			streams.Store(0)
			w := store.Watched{Topics: []string{"t"}, Lost: func() { lost <- struct{}{} }}
			require.NoError(t, st.Watch(ctx, w, func() { told <- struct{}{} }))
			require.EqualValues(t, 1, streams.Load())
			err := status.Error(code, "m")
			fail.Store(&err)
			require.NoError(t, st.RaiseTopic(ctx, "t"), "what the listener would tell, had it not failed")
			require.Eventually(t, func() bool { return streams.Load() > 1 }, 20*time.Second, 5*time.Millisecond)
			require.ErrorIs(t, st.Watch(ctx, store.Watched{Topics: []string{"t"}}, nothing), store.ErrUnavailable,
				"what is listened to in vain does not begin either")
			require.Eventually(t, func() bool { return streams.Load() > 2 }, 20*time.Second, 5*time.Millisecond)
			assert.Len(t, lost, 1, "it is said that nothing is told, once")
			fail.Store(nil)
			select {
			case <-told:
			case <-time.After(20 * time.Second):
				require.Fail(t, "not told")
			}
			for len(told) > 0 {
				<-told
			}
			require.NoError(t, st.RaiseTopic(ctx, "t"))
			select {
			case <-told:
			case <-time.After(20 * time.Second):
				require.Fail(t, "not told of a change after the failure")
			}
			stop()
			require.Eventually(t, idle(st), 10*time.Second, time.Millisecond)
		})
	}
}

// Streams end now and then, and are there again in a second.
func TestAWatchOutlivesItsStream(t *testing.T) {
	var end atomic.Bool
	st := newStore(t, emulator.FirestoreForTest(t), newPrefix(), ofListeners(func(s grpc.ClientStream) grpc.ClientStream {
		return ending{s, &end}
	}))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	told := make(chan struct{}, 100)
	w := store.Watched{Topics: []string{"t"}, Lost: func() { assert.Fail(t, "lost") }}
	require.NoError(t, st.Watch(ctx, w, func() { told <- struct{}{} }))
	for range 3 {
		end.Store(true)
		require.NoError(t, st.RaiseTopic(ctx, "t"))
		<-told
	}
}

// ending is a stream that ends when it is told to, but not the one that is opened in its place.
type ending struct {
	grpc.ClientStream
	now *atomic.Bool
}

func (e ending) RecvMsg(m any) error {
	err := e.ClientStream.RecvMsg(m)
	if e.now.CompareAndSwap(true, false) {
		return status.Error(codes.Unavailable, "m")
	}
	return err
}

// failing is a stream that fails when it is told to.
type failing struct {
	grpc.ClientStream
	with *atomic.Pointer[error]
}

func (f failing) RecvMsg(m any) error {
	err := f.ClientStream.RecvMsg(m)
	if with := f.with.Load(); with != nil {
		return *with
	}
	return err
}

// How long a change takes to be told, from the end of the write. On the emulator, that is: the cloud is slower.
func BenchmarkWatch(b *testing.B) {
	st := newStore(b, emulator.FirestoreForTest(b), newPrefix())
	s, x := storetest.NewSession(), storetest.NewExchange()
	ctx := b.Context()
	require.NoError(b, st.CreateSession(ctx, s))
	require.NoError(b, st.CreateExchange(ctx, x))
	for _, bb := range []struct {
		name   string
		w      store.Watched
		change func() error
	}{
		{"session", store.Watched{Session: s.Key}, func() error { return st.UpdateSession(ctx, s) }},
		{"exchange", store.Watched{Exchange: x.Key}, func() error { return st.UpdateExchange(ctx, x) }},
		{"topic", store.Watched{Topics: []string{"a", "b", "c"}}, func() error { return st.RaiseTopic(ctx, "b") }},
	} {
		b.Run(bb.name, func(b *testing.B) {
			watching, stop := context.WithCancel(ctx)
			defer stop()
			told := make(chan time.Time, 1)
			require.NoError(b, st.Watch(watching, bb.w, func() { told <- time.Now() }))
			var begun, sum time.Duration
			b.ResetTimer()
			for range b.N {
				start := time.Now()
				require.NoError(b, bb.change())
				written := time.Now()
				at := <-told
				sum += max(0, at.Sub(written))
				begun += at.Sub(start)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(sum.Microseconds())/float64(b.N)/1000, "ms-after-write")
			b.ReportMetric(float64(begun.Microseconds())/float64(b.N)/1000, "ms-with-write")
		})
	}
}
