package memory

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hydrant-mcp/hydrant/store"
	"github.com/hydrant-mcp/hydrant/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestContract(t *testing.T) {
	storetest.Run(t, func(*testing.T) store.Store { return New() })
}

func TestSessionExpiresByTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := New()
		s := storetest.NewSession()
		require.NoError(t, st.CreateSession(t.Context(), s))
		time.Sleep(time.Until(s.Expires) - time.Nanosecond)
		_, err := st.Session(t.Context(), s.Key)
		require.NoError(t, err)
		time.Sleep(time.Nanosecond)
		_, err = st.Session(t.Context(), s.Key)
		require.ErrorIs(t, err, store.ErrNotFound)
		require.ErrorIs(t, st.UpdateSession(t.Context(), s), store.ErrConflict)
	})
}

func TestExchangeExpiresByTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := New()
		x := storetest.NewExchange()
		require.NoError(t, st.CreateExchange(t.Context(), x))
		time.Sleep(time.Until(x.Expires) - time.Nanosecond)
		_, err := st.Exchange(t.Context(), x.Key)
		require.NoError(t, err)
		time.Sleep(time.Nanosecond)
		_, err = st.Exchange(t.Context(), x.Key)
		require.ErrorIs(t, err, store.ErrNotFound)
		require.ErrorIs(t, st.UpdateExchange(t.Context(), x), store.ErrConflict)
	})
}

func TestWatchIsExactAndLeavesNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := New()
		ctx, stop := context.WithCancel(t.Context())
		x, calls := storetest.NewExchange(), 0
		require.NoError(t, st.CreateExchange(ctx, x))
		require.NoError(t, st.Watch(ctx, store.Watched{Session: "s", Exchange: x.Key, Topics: []string{"t", "t"}},
			func() { calls++ }))
		synctest.Wait()
		assert.Zero(t, calls)
		inAnHour := time.Now().Add(time.Hour)
		event := func(exchange string) func() error {
			return func() error { return st.AppendEvent(ctx, exchange, store.Event{Seq: 1}, inAnHour) }
		}
		for want, changes := range [][]func() error{
			0: {event("other"), func() error { return st.RaiseTopic(ctx, x.Key) }},
			1: {event(x.Key)},
			2: {func() error { return st.PutAnswer(ctx, x.Key, "q", nil, inAnHour) }, event(x.Key), event("other")},
			3: {func() error { return st.UpdateExchange(ctx, x) }},
			4: {func() error { return st.RaiseTopic(ctx, "t") }},
		} {
			for _, change := range changes {
				require.NoError(t, change())
			}
			synctest.Wait()
			assert.Equal(t, want, calls)
		}
		stop()
		synctest.Wait()
		assert.Empty(t, st.watches)
		require.NoError(t, st.RaiseTopic(t.Context(), "t"))
		synctest.Wait()
		assert.Equal(t, 4, calls)
	})
}

func TestWritesSweepWhatHasExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, ctx := New(), t.Context()
		hour := time.Now().Add(time.Hour)
		deleted, s := storetest.NewSession(), storetest.NewSession()
		require.NoError(t, st.CreateSession(ctx, s))
		require.NoError(t, st.CreateSession(ctx, deleted))
		require.NoError(t, st.DeleteSession(ctx, deleted.Key))
		require.NoError(t, st.CreateExchange(ctx, storetest.NewExchange()))
		require.NoError(t, st.AppendEvent(ctx, "short", store.Event{Seq: 1}, hour))
		require.NoError(t, st.AppendEvent(ctx, "long", store.Event{Seq: 1}, hour))
		require.NoError(t, st.AppendEvent(ctx, "long", store.Event{Seq: 2}, hour.Add(time.Hour)))
		require.NoError(t, st.PutAnswer(ctx, "short", "q", nil, hour))
		require.NoError(t, st.RaiseTopic(ctx, "topic"))

		time.Sleep(time.Hour)
		require.NoError(t, st.PutAnswer(ctx, "other", "q", nil, hour.Add(time.Hour)))
		assert.Empty(t, st.sessions)
		assert.Empty(t, st.exchanges)
		assert.Len(t, st.outboxes, 1)
		assert.Len(t, st.answers, 1)
		events, err := st.Events(ctx, "long", 0, 0)
		require.NoError(t, err)
		assert.Len(t, events, 2, "an event stays as long as a later one of its outbox")
		topic := func() int64 {
			versions, err := st.TopicVersions(ctx, []string{"topic"})
			require.NoError(t, err)
			return versions["topic"]
		}
		was := topic()
		assert.NotZero(t, was)

		time.Sleep(store.TopicLife)
		require.NoError(t, st.RaiseTopic(ctx, "other"))
		assert.Len(t, st.topics, 1)
		assert.Zero(t, topic())
		require.NoError(t, st.RaiseTopic(ctx, "topic"))
		assert.Greater(t, topic(), was, "topics never go back")
	})
}
