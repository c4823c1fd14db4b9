package faulty_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hydrant-mcp/hydrant/store"
	"github.com/hydrant-mcp/hydrant/store/faulty"
	"github.com/hydrant-mcp/hydrant/store/memory"
	"github.com/hydrant-mcp/hydrant/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Without faults it is the store that it wraps.
func TestContract(t *testing.T) {
	storetest.Run(t, func(*testing.T) store.Store { return faulty.New(faulty.Plan{}).Wrap(memory.New()) })
}

func TestOnlyAWatcherIsWrappedAsOne(t *testing.T) {
	_, ok := faulty.New(faulty.Plan{}).Wrap(memory.New()).(store.Watcher)
	assert.True(t, ok)
	_, ok = faulty.New(faulty.Plan{}).Wrap(struct{ store.Store }{memory.New()}).(store.Watcher)
	assert.False(t, ok)
}

// always gives a store all of whose operations fail in one way, and the store below it.
func always(r faulty.Rates) (st store.Store, below store.Store) {
	below = memory.New()
	return faulty.New(faulty.Plan{Rates: r}).Wrap(below), below
}

func TestErrorsAndThrottlingLeaveTheStoreAlone(t *testing.T) {
	for name, c := range map[string]struct {
		rates faulty.Rates
		err   error
	}{
		"error":    {faulty.Rates{Error: 1}, store.ErrUnavailable},
		"throttle": {faulty.Rates{Throttle: 1}, store.ErrThrottled},
	} {
		t.Run(name, func(t *testing.T) {
			st, below := always(c.rates)
			s := storetest.NewSession()
			require.ErrorIs(t, st.CreateSession(t.Context(), s), c.err)
			assert.Nil(t, s.Revision)
			_, err := below.Session(t.Context(), s.Key)
			require.ErrorIs(t, err, store.ErrNotFound)
			_, err = st.Session(t.Context(), s.Key)
			require.ErrorIs(t, err, c.err)
			require.NotErrorIs(t, err, store.ErrNotFound)
			err = st.(store.Watcher).Watch(t.Context(), store.Watched{Session: s.Key}, func() {})
			require.ErrorIs(t, err, c.err)
		})
	}
}

// The nasty case: the caller is told that the write failed, and it happened.
func TestALostWriteHappens(t *testing.T) {
	st, below := always(faulty.Rates{Lost: 1})
	ctx, inAnHour := t.Context(), time.Now().Add(time.Hour)
	s, x := storetest.NewSession(), storetest.NewExchange()
	for name, err := range map[string]error{
		"CreateSession":  st.CreateSession(ctx, s),
		"CreateExchange": st.CreateExchange(ctx, x),
		"AppendEvent":    st.AppendEvent(ctx, x.Key, store.Event{Seq: 1, Data: []byte("e")}, inAnHour),
		"PutAnswer":      st.PutAnswer(ctx, x.Key, "q", []byte("a"), inAnHour),
		"RaiseTopic":     st.RaiseTopic(ctx, "t"),
	} {
		require.ErrorIs(t, err, store.ErrUnavailable, name)
	}
	assert.Nil(t, s.Revision, "the caller does not learn the revision")
	read, err := below.Session(ctx, s.Key)
	require.NoError(t, err)
	exchange, err := below.Exchange(ctx, x.Key)
	require.NoError(t, err)
	events, err := below.Events(ctx, x.Key, 0, 0)
	require.NoError(t, err)
	assert.Len(t, events, 1)
	answer, err := below.Answer(ctx, x.Key, "q")
	require.NoError(t, err)
	assert.Equal(t, "a", string(answer))
	versions, err := below.TopicVersions(ctx, []string{"t"})
	require.NoError(t, err)
	assert.Positive(t, versions["t"])

	before := read.Revision
	read.LogLevel, exchange.Owner = "alert", "me"
	require.ErrorIs(t, st.UpdateSession(ctx, read), store.ErrUnavailable)
	require.ErrorIs(t, st.UpdateExchange(ctx, exchange), store.ErrUnavailable)
	assert.Equal(t, before, read.Revision)
	require.ErrorIs(t, below.UpdateSession(ctx, read), store.ErrConflict, "somebody has changed it: the caller")
	stored, err := below.Exchange(ctx, x.Key)
	require.NoError(t, err)
	assert.Equal(t, "me", stored.Owner)
	require.ErrorIs(t, st.DeleteSession(ctx, s.Key), store.ErrUnavailable)
	_, err = below.Session(ctx, s.Key)
	require.ErrorIs(t, err, store.ErrNotFound)
	_, err = st.Session(ctx, s.Key)
	require.ErrorIs(t, err, store.ErrUnavailable, "a read has nothing to lose")
	require.ErrorIs(t, st.DeleteSession(ctx, s.Key), store.ErrNotFound, "a write that the store refuses has not happened")
}

func TestConflictsAreForCompareAndSwapOnly(t *testing.T) {
	st, _ := always(faulty.Rates{Conflict: 1})
	s, x := storetest.NewSession(), storetest.NewExchange()
	require.NoError(t, st.CreateSession(t.Context(), s))
	require.NoError(t, st.CreateExchange(t.Context(), x))
	require.ErrorIs(t, st.UpdateSession(t.Context(), s), store.ErrConflict)
	require.ErrorIs(t, st.UpdateExchange(t.Context(), x), store.ErrConflict)
	_, err := st.Session(t.Context(), s.Key)
	require.NoError(t, err)
}

func TestTimeoutsAndLatencyTakeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faults := faulty.New(faulty.Plan{Rates: faulty.Rates{Timeout: 1}, Patience: time.Minute})
		st := faults.Wrap(memory.New())
		began := time.Now()
		_, err := st.Session(t.Context(), "s")
		require.ErrorIs(t, err, store.ErrUnavailable)
		assert.Equal(t, time.Minute, time.Since(began))

		began = time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = st.Session(ctx, "s")
		require.ErrorIs(t, err, store.ErrUnavailable)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(began))

		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = st.Session(cancelled, "s")
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, store.ErrUnavailable, "it is the caller who went away")

		faults.Set(faulty.Plan{Latency: time.Second})
		began = time.Now()
		for range 100 {
			_, err = st.Session(t.Context(), "s")
			require.ErrorIs(t, err, store.ErrNotFound)
		}
		assert.InDelta(t, 50*time.Second, time.Since(began), float64(20*time.Second))
	})
}

// The n-th call of an operation has the same fate in every run; the rates are kept; another seed is another day.
func TestThePlanIsDeterministic(t *testing.T) {
	plan := faulty.Plan{Seed: 7, Rates: faulty.Rates{Error: 0.1, Throttle: 0.05, Lost: 0.1}, Only: map[faulty.Operation]faulty.Rates{faulty.RaiseTopic: {}}}
	const calls = 4000
	day := func(plan faulty.Plan, between func(store.Store)) (fates []string, faults *faulty.Faults) {
		faults = faulty.New(plan)
		st := faults.Wrap(memory.New())
		for range calls {
			between(st)
			_, err := st.TopicVersions(t.Context(), []string{"t"})
			switch {
			case errors.Is(err, store.ErrThrottled):
				fates = append(fates, "throttled")
			case err != nil:
				fates = append(fates, "failed")
			default:
				fates = append(fates, "")
			}
		}
		return fates, faults
	}
	quiet, faults := day(plan, func(store.Store) {})
	injected := faults.Injected()
	assert.InDelta(t, 0.2, float64(injected[faulty.Error])/calls, 0.03, "a lost read is an error")
	assert.InDelta(t, 0.05, float64(injected[faulty.Throttle])/calls, 0.02)
	assert.Zero(t, injected[faulty.Lost])
	assert.Equal(t, calls, faults.Calls(faulty.TopicVersions))

	busy, _ := day(plan, func(st store.Store) {
		_ = st.PutAnswer(t.Context(), "x", "q", nil, time.Now().Add(time.Hour))
		assert.NoError(t, st.RaiseTopic(t.Context(), "t"), "its own rates are none")
	})
	assert.Equal(t, quiet, busy)
	plan.Seed++
	other, _ := day(plan, func(store.Store) {})
	assert.NotEqual(t, quiet, other)
}

func TestOneCallFails(t *testing.T) {
	faults := faulty.New(faulty.Plan{})
	st := faults.Wrap(memory.New())
	require.NoError(t, st.RaiseTopic(t.Context(), "t"))
	faults.FailNext(faulty.RaiseTopic, 2, faulty.Rates{Lost: 1})
	for i := range 5 {
		err := st.RaiseTopic(t.Context(), "t")
		assert.Equal(t, i == 2, err != nil)
	}
}

func TestParse(t *testing.T) {
	p, err := faulty.Parse("seed=1, error=0.03,throttle=0.01,lost=0.01,append_event.lost=0.5,append_event.conflict=0.1,timeout=0.02,latency=20ms,patience=1s")
	require.NoError(t, err)
	assert.Equal(t, faulty.Plan{
		Seed: 1, Rates: faulty.Rates{Error: 0.03, Throttle: 0.01, Timeout: 0.02, Lost: 0.01},
		Only:    map[faulty.Operation]faulty.Rates{faulty.AppendEvent: {Lost: 0.5, Conflict: 0.1}},
		Latency: 20 * time.Millisecond, Patience: time.Second,
	}, p)
	a, err := faulty.Parse("error=1")
	require.NoError(t, err)
	b, err := faulty.Parse("error=1")
	require.NoError(t, err)
	assert.NotEqual(t, a.Seed, b.Seed, "without a seed every run is another")
	for _, wrong := range []string{
		"", "error", "error=", "error=x", "error=1.1", "error=-1", "error=NaN", "error=0.6,lost=0.6", "fire=1", "seed=-1",
		"latency=1", "latency=-1s", "no_such.error=1", "session.fire=1",
	} {
		_, err := faulty.Parse(wrong)
		assert.Error(t, err, wrong)
	}
	assert.Panics(t, func() { faulty.New(faulty.Plan{Rates: faulty.Rates{Error: math.NaN()}}) })
}

// What is around a store sees every operation, and decides about it.
func TestAroundEveryOperation(t *testing.T) {
	refused := errors.New("refused")
	seen := map[faulty.Operation]int{}
	around := faulty.Around(func(_ context.Context, op faulty.Operation, _ func(context.Context) error) error {
		seen[op]++
		return refused
	})
	_, ok := around.Wrap(struct{ store.Store }{memory.New()}).(store.Watcher)
	assert.False(t, ok)
	st := around.Wrap(memory.New())
	ctx, s, x, in := t.Context(), storetest.NewSession(), storetest.NewExchange(), time.Now().Add(time.Hour)
	_, readSession := st.Session(ctx, "s")
	_, readExchange := st.Exchange(ctx, "x")
	_, readEvents := st.Events(ctx, "x", 0, 0)
	_, readAnswer := st.Answer(ctx, "x", "q")
	_, _, look := st.Look(ctx, "s", nil)
	_, readTopics := st.TopicVersions(ctx, []string{"t"})
	for _, err := range []error{
		st.CreateSession(ctx, s), readSession, st.UpdateSession(ctx, s), st.DeleteSession(ctx, "s"),
		st.CreateExchange(ctx, x), readExchange, st.UpdateExchange(ctx, x), st.AppendEvent(ctx, "x", store.Event{Seq: 1}, in),
		readEvents, st.PutAnswer(ctx, "x", "q", nil, in), readAnswer, look, st.RaiseTopic(ctx, "t"), readTopics,
		st.(store.Watcher).Watch(ctx, store.Watched{Session: "s"}, func() {}),
	} {
		require.ErrorIs(t, err, refused)
	}
	assert.Len(t, seen, 15)
	writes := 0
	for op, n := range seen {
		assert.Equal(t, 1, n, op)
		if op.Writes() {
			writes++
		}
	}
	assert.Equal(t, 8, writes)
}
