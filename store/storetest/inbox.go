package storetest

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/store"
)

var inboxTests = []test{
	{"IsEmptyAtFirst", testInboxEmpty},
	{"GivesTheAnswerBack", testInboxAnswer},
	{"IsWrittenOnce", testInboxOnce},
	{"IsWrittenOnceByRacingWriters", testInboxRacing},
	{"KeepsSlotsApart", testInboxApart},
	{"KeepsLargeAnswersByteForByte", testInboxLarge},
	{"RefusesWhatIsTooLarge", testInboxTooLarge},
	{"IsNotTheOutbox", testInboxNotOutbox},
	{"IsLookedIntoTogetherWithASession", testInboxLook},
}

func testInboxEmpty(ctx context.Context, t *testing.T, st store.Store) {
	_, err := st.Answer(ctx, unused(), "q")
	require.ErrorIs(t, err, store.ErrNotFound)
}

func testInboxAnswer(ctx context.Context, t *testing.T, st store.Store) {
	for _, answer := range [][]byte{[]byte(`{"action":"accept"}`), {}, {0, 255, 0}} {
		exchange := unused()
		require.NoError(t, st.PutAnswer(ctx, exchange, "q", answer, inAnHour()))
		got, err := st.Answer(ctx, exchange, "q")
		require.NoError(t, err)
		assert.Equal(t, string(answer), string(got))
	}
}

func testInboxOnce(ctx context.Context, t *testing.T, st store.Store) {
	exchange := unused()
	first := []byte("first")
	require.NoError(t, st.PutAnswer(ctx, exchange, "q", first, inAnHour()))
	for _, again := range [][]byte{[]byte("second"), first, nil, pattern(600<<10, 1)} {
		require.ErrorIs(t, st.PutAnswer(ctx, exchange, "q", again, inAnHour()), store.ErrExists)
		got, err := st.Answer(ctx, exchange, "q")
		require.NoError(t, err)
		assert.Equal(t, "first", string(got))
	}
}

func testInboxRacing(ctx context.Context, t *testing.T, st store.Store) {
	for name, answer := range map[string]func(racer int) []byte{
		"small": func(racer int) []byte { return fmt.Appendf(nil, "racer %d", racer) },
		"large": func(racer int) []byte { return pattern(500<<10, uint32(racer)) },
		"same":  func(int) []byte { return []byte("the same") },
	} {
		t.Run(name, func(t *testing.T) {
			exchange := unused()
			winner := oneWinner(t, race(func(racer int) error {
				return st.PutAnswer(ctx, exchange, "q", answer(racer), inAnHour())
			}), store.ErrExists)
			for range 2 {
				got, err := st.Answer(ctx, exchange, "q")
				require.NoError(t, err)
				assert.True(t, bytes.Equal(answer(winner), got))
			}
		})
	}
}

func testInboxApart(ctx context.Context, t *testing.T, st store.Store) {
	exchange := unused()
	questions := []string{"", "q", "q/", "q/1", "q#", ".", "..", "__q__", "q ", "ü", "1", "01", strings.Repeat("long", 1000)}
	for _, x := range []string{exchange, exchange + "q"} {
		for _, question := range questions {
			require.NoError(t, st.PutAnswer(ctx, x, question, []byte(x+question), inAnHour()))
		}
	}
	for _, x := range []string{exchange, exchange + "q"} {
		for _, question := range questions {
			got, err := st.Answer(ctx, x, question)
			require.NoError(t, err)
			assert.Equal(t, x+question, string(got))
		}
	}
}

func testInboxLarge(ctx context.Context, t *testing.T, st store.Store) {
	for i, size := range []int{300 << 10, 500 << 10, 1 << 20, 1<<20 + 1, store.MaxAnswer} {
		exchange := unused()
		require.NoError(t, st.PutAnswer(ctx, exchange, "q", pattern(size, uint32(i)), inAnHour()))
		got, err := st.Answer(ctx, exchange, "q")
		require.NoError(t, err)
		assert.Truef(t, bytes.Equal(pattern(size, uint32(i)), got), "%d bytes", size)
		require.ErrorIs(t, st.PutAnswer(ctx, exchange, "q", []byte("late"), inAnHour()), store.ErrExists)
	}
}

func testInboxTooLarge(ctx context.Context, t *testing.T, st store.Store) {
	exchange := unused()
	err := st.PutAnswer(ctx, exchange, "q", make([]byte, store.MaxAnswer+1), inAnHour())
	require.ErrorIs(t, err, store.ErrTooLarge)
	_, err = st.Answer(ctx, exchange, "q")
	require.ErrorIs(t, err, store.ErrNotFound)
	require.NoError(t, st.PutAnswer(ctx, exchange, "q", []byte("fits"), inAnHour()))
}

func testInboxNotOutbox(ctx context.Context, t *testing.T, st store.Store) {
	exchange := unused()
	require.NoError(t, st.PutAnswer(ctx, exchange, "1", []byte("answer"), inAnHour()))
	got, err := st.Events(ctx, exchange, 0, 0)
	require.NoError(t, err)
	assert.Empty(t, got)
	appendEvent(ctx, t, st, exchange, 1, small(1))
	answer, err := st.Answer(ctx, exchange, "1")
	require.NoError(t, err)
	assert.Equal(t, "answer", string(answer))
	got, err = st.Events(ctx, exchange, 0, 0)
	require.NoError(t, err)
	assertEvents(t, got, 1)
}

func testInboxLook(ctx context.Context, t *testing.T, st store.Store) {
	s := create(ctx, t, st, nil)
	exchange, other := unused(), unused()
	slot := func(exchange, question string) store.Slot { return store.Slot{Exchange: exchange, Question: question} }
	slots := []store.Slot{slot(exchange, "0"), slot(exchange, "1"), slot(other, "0"), slot(other, "1")}
	large := pattern(1<<20, 1)
	require.NoError(t, st.PutAnswer(ctx, exchange, "1", []byte("one"), inAnHour()))
	require.NoError(t, st.PutAnswer(ctx, exchange, "2", []byte("not asked for"), inAnHour()))
	require.NoError(t, st.PutAnswer(ctx, other, "0", large, inAnHour()))
	require.NoError(t, st.PutAnswer(ctx, other, "1", []byte("over"), time.Now().Add(-time.Second)))
	want := map[store.Slot][]byte{slots[1]: []byte("one"), slots[2]: large}

	found, answers, err := st.Look(ctx, s.Key, slots)
	require.NoError(t, err)
	assert.Equal(t, want, answers)
	direct, err := st.Session(ctx, s.Key)
	require.NoError(t, err)
	assert.Equal(t, direct, found)
	found.Cancels++
	require.NoError(t, st.UpdateSession(ctx, found), "what was looked at can be changed")

	for _, key := range []string{"", unused()} {
		found, answers, err := st.Look(ctx, key, slots)
		require.NoError(t, err)
		assert.Nil(t, found)
		assert.Equal(t, want, answers)
	}
	require.NoError(t, st.DeleteSession(ctx, s.Key))
	found, answers, err = st.Look(ctx, s.Key, nil)
	require.NoError(t, err)
	assert.Nil(t, found, "deleted")
	assert.Empty(t, answers)
	_, _, err = st.Look(ctx, "", nil)
	require.NoError(t, err, "nothing to look at")
}
