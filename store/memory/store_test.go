package memory

import (
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

func TestWritesSweepWhatHasExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, ctx := New(), t.Context()
		hour := time.Now().Add(time.Hour)
		deleted, s := storetest.NewSession(), storetest.NewSession()
		require.NoError(t, st.CreateSession(ctx, s))
		require.NoError(t, st.CreateSession(ctx, deleted))
		require.NoError(t, st.DeleteSession(ctx, deleted.Key))
		require.NoError(t, st.AppendEvent(ctx, "short", store.Event{Seq: 1}, hour))
		require.NoError(t, st.AppendEvent(ctx, "long", store.Event{Seq: 1}, hour))
		require.NoError(t, st.AppendEvent(ctx, "long", store.Event{Seq: 2}, hour.Add(time.Hour)))
		require.NoError(t, st.PutAnswer(ctx, "short", "q", nil, hour))
		require.NoError(t, st.RaiseTopic(ctx, "topic"))

		time.Sleep(time.Hour)
		require.NoError(t, st.PutAnswer(ctx, "other", "q", nil, hour.Add(time.Hour)))
		assert.Empty(t, st.sessions)
		assert.Len(t, st.outboxes, 1)
		assert.Len(t, st.answers, 1)
		events, err := st.Events(ctx, "long", 0, 0)
		require.NoError(t, err)
		assert.Len(t, events, 2, "an event stays as long as a later one of its outbox")
		versions, err := st.TopicVersions(ctx, []string{"topic"})
		require.NoError(t, err)
		assert.EqualValues(t, 1, versions["topic"], "topics never go back")
	})
}
