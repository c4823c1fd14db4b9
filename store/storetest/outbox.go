package storetest

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/store"
)

var outboxTests = []test{
	{"IsEmptyAtFirst", testOutboxEmpty},
	{"IsReadInOrderFromACursor", testOutboxOrder},
	{"IsReadInPages", testOutboxPages},
	{"EndsAtAHoleUntilItIsFilled", testOutboxHole},
	{"ShowsTheFinalEventAlsoBehindAHole", testOutboxFinalBehindHole},
	{"ShowsTheFinalEventBehindAHoleAndManyEvents", testOutboxFinalBehindHoleAndMany},
	{"KeepsOutboxesApart", testOutboxApart},
	{"IsACopy", testOutboxCopy},
	{"AppendIsIdempotent", testOutboxIdempotent},
	{"OtherBytesAtATakenPositionAreConflict", testOutboxConflict},
	{"OneOfRacingWritersWins", testOutboxRacing},
	{"OneOfRacingWritersOfLargeEventsWins", testOutboxRacingLarge},
	{"KeepsLargeEventsByteForByte", testOutboxLarge},
	{"ReadsLargeAndSmallEventsInOrder", testOutboxMixed},
	{"RefusesWhatIsTooLarge", testOutboxTooLarge},
	{"ShowsNoFinalEventBeforeTheOthers", testOutboxReadWhileWritten},
}

func appendEvent(ctx context.Context, t *testing.T, st store.Store, exchange string, seq int64, data []byte) {
	t.Helper()
	require.NoError(t, st.AppendEvent(ctx, exchange, store.Event{Seq: seq, Data: data}, inAnHour()))
}

func small(seq int64) []byte { return fmt.Appendf(nil, `{"seq":%d}`, seq) }

// assertEvents checks the events' positions and, for all of them, the bytes that small gives.
func assertEvents(t *testing.T, got []store.Event, seqs ...int64) {
	t.Helper()
	var gotSeqs []int64
	for _, e := range got {
		gotSeqs = append(gotSeqs, e.Seq)
		assert.Equal(t, string(small(e.Seq)), string(e.Data))
	}
	assert.Equal(t, seqs, gotSeqs)
}

// readAll reads an outbox as a client would, page by page, and checks that each page moves on.
func readAll(ctx context.Context, t *testing.T, st store.Store, exchange string, limit int) []store.Event {
	t.Helper()
	var all []store.Event
	var after int64
	for {
		page, err := st.Events(ctx, exchange, after, limit)
		require.NoError(t, err)
		if len(page) == 0 {
			return all
		}
		if limit > 0 {
			require.LessOrEqual(t, len(page), limit)
		}
		for _, e := range page {
			require.Greater(t, e.Seq, after)
			after = e.Seq
		}
		all = append(all, page...)
	}
}

func testOutboxEmpty(ctx context.Context, t *testing.T, st store.Store) {
	events, err := st.Events(ctx, unused(), 0, 0)
	require.NoError(t, err)
	assert.Empty(t, events)
}

func testOutboxOrder(ctx context.Context, t *testing.T, st store.Store) {
	exchange := unused()
	for seq := int64(1); seq <= 12; seq++ { // past 9: the order is not that of text
		appendEvent(ctx, t, st, exchange, seq, small(seq))
	}
	appendEvent(ctx, t, st, exchange, store.Final, small(store.Final))
	for after, want := range map[int64][]int64{
		0:           {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, store.Final},
		1:           {2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, store.Final},
		9:           {10, 11, 12, store.Final},
		11:          {12, store.Final},
		12:          {store.Final},
		13:          {store.Final},
		store.Final: nil,
	} {
		got, err := st.Events(ctx, exchange, after, 0)
		require.NoError(t, err)
		assertEvents(t, got, want...)
	}
}

func testOutboxPages(ctx context.Context, t *testing.T, st store.Store) {
	exchange := unused()
	for seq := int64(1); seq <= 5; seq++ {
		appendEvent(ctx, t, st, exchange, seq, small(seq))
	}
	appendEvent(ctx, t, st, exchange, store.Final, small(store.Final))
	for _, page := range []struct {
		after int64
		limit int
		want  []int64
	}{
		{0, 1, []int64{1}},
		{0, 2, []int64{1, 2}},
		{2, 2, []int64{3, 4}},
		{4, 2, []int64{5, store.Final}},
		{4, 1, []int64{5}},
		{5, 1, []int64{store.Final}},
		{0, 5, []int64{1, 2, 3, 4, 5}},
		{0, 6, []int64{1, 2, 3, 4, 5, store.Final}},
		{0, 1000, []int64{1, 2, 3, 4, 5, store.Final}},
	} {
		got, err := st.Events(ctx, exchange, page.after, page.limit)
		require.NoError(t, err)
		assertEvents(t, got, page.want...)
	}
}

func testOutboxHole(ctx context.Context, t *testing.T, st store.Store) {
	exchange := unused()
	for _, seq := range []int64{1, 2, 4, 5} {
		appendEvent(ctx, t, st, exchange, seq, small(seq))
	}
	got, err := st.Events(ctx, exchange, 0, 0)
	require.NoError(t, err)
	assertEvents(t, got, 1, 2)
	got, err = st.Events(ctx, exchange, 2, 0)
	require.NoError(t, err)
	assertEvents(t, got)
	got, err = st.Events(ctx, exchange, 3, 0)
	require.NoError(t, err)
	assertEvents(t, got, 4, 5)

	appendEvent(ctx, t, st, exchange, 3, small(3))
	got, err = st.Events(ctx, exchange, 2, 0)
	require.NoError(t, err)
	assertEvents(t, got, 3, 4, 5)
}

func testOutboxFinalBehindHole(ctx context.Context, t *testing.T, st store.Store) {
	exchange := unused()
	appendEvent(ctx, t, st, exchange, store.Final, small(store.Final))
	got, err := st.Events(ctx, exchange, 0, 0)
	require.NoError(t, err)
	assertEvents(t, got, store.Final)

	for _, seq := range []int64{1, 3, 4} {
		appendEvent(ctx, t, st, exchange, seq, small(seq))
	}
	for limit, want := range map[int][]int64{0: {1, store.Final}, 1: {1}, 2: {1, store.Final}, 3: {1, store.Final}} {
		got, err := st.Events(ctx, exchange, 0, limit)
		require.NoError(t, err)
		assertEvents(t, got, want...)
	}
	got, err = st.Events(ctx, exchange, 1, 1)
	require.NoError(t, err)
	assertEvents(t, got, store.Final)
}

func testOutboxFinalBehindHoleAndMany(ctx context.Context, t *testing.T, st store.Store) {
	exchange := unused()
	appendEvent(ctx, t, st, exchange, 1, small(1))
	for seq := int64(3); seq < 9; seq++ { // more than a page of the database holds
		appendEvent(ctx, t, st, exchange, seq, pattern(300<<10, uint32(seq)))
	}
	appendEvent(ctx, t, st, exchange, store.Final, small(store.Final))
	assertEvents(t, readAll(ctx, t, st, exchange, 0), 1, store.Final)
	assertEvents(t, readAll(ctx, t, st, exchange, 2), 1, store.Final)
}

func testOutboxApart(ctx context.Context, t *testing.T, st store.Store) {
	base := unused()
	exchanges := []string{base, base + "/", base + "/a", base + "#", base + "#1", base + "-1", base + " ", base + "ü",
		base + string(bytes.Repeat([]byte("x"), 2000))}
	for _, exchange := range exchanges {
		appendEvent(ctx, t, st, exchange, 1, []byte(exchange))
	}
	for _, exchange := range exchanges {
		got, err := st.Events(ctx, exchange, 0, 0)
		require.NoError(t, err)
		assert.Equal(t, []store.Event{{Seq: 1, Data: []byte(exchange)}}, got)
	}
}

func testOutboxCopy(ctx context.Context, t *testing.T, st store.Store) {
	exchange := unused()
	data := small(1)
	appendEvent(ctx, t, st, exchange, 1, data)
	clear(data)
	got, err := st.Events(ctx, exchange, 0, 0)
	require.NoError(t, err)
	assertEvents(t, got, 1)
	clear(got[0].Data)
	got, err = st.Events(ctx, exchange, 0, 0)
	require.NoError(t, err)
	assertEvents(t, got, 1)
}

func testOutboxIdempotent(ctx context.Context, t *testing.T, st store.Store) {
	exchange := unused()
	for _, e := range []store.Event{{Seq: 1, Data: small(1)}, {Seq: 2, Data: nil}, {Seq: 3, Data: pattern(1<<20, 1)},
		{Seq: store.Final, Data: small(store.Final)}} {
		for range 3 {
			appendEvent(ctx, t, st, exchange, e.Seq, e.Data)
		}
	}
	got := readAll(ctx, t, st, exchange, 0)
	require.Len(t, got, 4)
	assert.Equal(t, string(small(1)), string(got[0].Data))
	assert.Empty(t, got[1].Data)
	assert.True(t, bytes.Equal(pattern(1<<20, 1), got[2].Data))
	assert.Equal(t, string(small(store.Final)), string(got[3].Data))
}

func testOutboxConflict(ctx context.Context, t *testing.T, st store.Store) {
	for name, data := range map[string][]byte{"small": small(1), "nothing": nil, "large": pattern(1<<20, 1)} {
		for otherName, other := range map[string][]byte{"small": []byte("other"), "nothing": {}, "large": pattern(1<<20, 2)} {
			if bytes.Equal(data, other) {
				continue
			}
			t.Run(name+" then "+otherName, func(t *testing.T) {
				for _, seq := range []int64{1, store.Final} {
					exchange := unused()
					appendEvent(ctx, t, st, exchange, seq, data)
					err := st.AppendEvent(ctx, exchange, store.Event{Seq: seq, Data: other}, inAnHour())
					require.ErrorIs(t, err, store.ErrConflict)
					got, err := st.Events(ctx, exchange, 0, 0)
					require.NoError(t, err)
					require.Len(t, got, 1)
					assert.True(t, bytes.Equal(data, got[0].Data), "the first one stays")
				}
			})
		}
	}
}

func testOutboxRacing(ctx context.Context, t *testing.T, st store.Store) {
	raceForPosition(ctx, t, st, func(racer int) []byte { return fmt.Appendf(nil, "racer %d", racer) })
}

func testOutboxRacingLarge(ctx context.Context, t *testing.T, st store.Store) {
	raceForPosition(ctx, t, st, func(racer int) []byte { return pattern(1<<20+racer, uint32(racer)) })
}

func raceForPosition(ctx context.Context, t *testing.T, st store.Store, data func(racer int) []byte) {
	for _, seq := range []int64{1, store.Final} {
		exchange := unused()
		winner := oneWinner(t, race(func(racer int) error {
			return st.AppendEvent(ctx, exchange, store.Event{Seq: seq, Data: data(racer)}, inAnHour())
		}), store.ErrConflict)
		got, err := st.Events(ctx, exchange, 0, 0)
		require.NoError(t, err)
		require.Len(t, got, 1)
		assert.True(t, bytes.Equal(data(winner), got[0].Data))
	}
}

func testOutboxLarge(ctx context.Context, t *testing.T, st store.Store) {
	exchange := unused()
	sizes := []int{300 << 10, 390 << 10, 400 << 10, 1000 << 10, 1<<20 - 1, 1 << 20, 1<<20 + 1, 3 << 20, 5<<20 + 12345}
	if !testing.Short() {
		sizes = append(sizes, store.MaxEvent)
	}
	for i, size := range sizes {
		appendEvent(ctx, t, st, exchange, int64(i+1), pattern(size, uint32(i)))
	}
	got := readAll(ctx, t, st, exchange, 0)
	require.Len(t, got, len(sizes))
	for i, size := range sizes {
		assert.Equal(t, int64(i+1), got[i].Seq)
		assert.Truef(t, bytes.Equal(pattern(size, uint32(i)), got[i].Data), "%d bytes", size)
	}
}

func testOutboxMixed(ctx context.Context, t *testing.T, st store.Store) {
	exchange := unused()
	var want [][]byte
	for i := range 40 {
		size := 20
		switch {
		case i%10 == 7:
			size = 700 << 10
		case i%3 == 0:
			size = 200 << 10
		}
		want = append(want, pattern(size, uint32(i)))
		appendEvent(ctx, t, st, exchange, int64(i+1), want[i])
	}
	want = append(want, pattern(1<<20, 99))
	appendEvent(ctx, t, st, exchange, store.Final, want[40])
	for _, limit := range []int{0, 3, 100} {
		got := readAll(ctx, t, st, exchange, limit)
		require.Len(t, got, len(want))
		for i, e := range got {
			assert.True(t, bytes.Equal(want[i], e.Data), i)
		}
		assert.Equal(t, store.Final, got[40].Seq)
	}
}

func testOutboxTooLarge(ctx context.Context, t *testing.T, st store.Store) {
	exchange := unused()
	err := st.AppendEvent(ctx, exchange, store.Event{Seq: 1, Data: make([]byte, store.MaxEvent+1)}, inAnHour())
	require.ErrorIs(t, err, store.ErrTooLarge)
	got, err := st.Events(ctx, exchange, 0, 0)
	require.NoError(t, err)
	assert.Empty(t, got)
	appendEvent(ctx, t, st, exchange, 1, small(1))
}

// A reader that takes the final event for the end must have been shown all that the one writer wrote before it.
func testOutboxReadWhileWritten(ctx context.Context, t *testing.T, st store.Store) {
	const last = 60
	exchange := unused()
	written := make(chan error, 1)
	go func() {
		defer close(written)
		for seq := int64(1); seq <= last+1; seq++ {
			if seq > last {
				seq = store.Final
			}
			if err := st.AppendEvent(ctx, exchange, store.Event{Seq: seq, Data: small(seq)}, inAnHour()); err != nil {
				written <- err
				return
			}
			if seq == store.Final {
				return
			}
		}
	}()
	var wg sync.WaitGroup
	for reader := range 4 {
		wg.Go(func() {
			var after int64
			for after < store.Final {
				page, err := st.Events(ctx, exchange, after, []int{0, 1, 5, 1000}[reader])
				if !assert.NoError(t, err) {
					return
				}
				for _, e := range page {
					if e.Seq == store.Final {
						assert.EqualValues(t, last, after, "the final event came early")
					} else {
						assert.Equal(t, after+1, e.Seq)
					}
					after = e.Seq
				}
			}
		})
	}
	require.NoError(t, <-written)
	wg.Wait()
}
