package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/store"
)

var exchangeTests = []test{
	{"IsMissingUntilCreated", testExchangeMissing},
	{"ComesBackExactly", testExchangeComesBack},
	{"IsACopy", testExchangeIsACopy},
	{"IsCreatedOnce", testExchangeCreatedOnce},
	{"IsCreatedOnceByRacingWriters", testExchangeCreatedOnceRacing},
	{"UpdateChangesWhatMayChangeAndNothingElse", testExchangeUpdate},
	{"UpdateOfStaleRevisionIsConflict", testExchangeStale},
	{"UpdateOfWhatWasNeverReadIsConflict", testExchangeNeverRead},
	{"IsClaimedByOneOfRacingOwners", testExchangeClaimed},
	{"ExpiresByTheClock", testExchangeExpires},
	{"EndsWhenItsExpiryIsMovedToThePast", testExchangeExpiryMoved},
	{"LargeIsStoredAndTooLargeIsRefused", testExchangeLarge},
	{"IsNeitherItsOutboxNorItsInbox", testExchangeApart},
}

func createExchange(ctx context.Context, t *testing.T, st store.Store, change func(*store.Exchange)) *store.Exchange {
	t.Helper()
	x := NewExchange()
	if change != nil {
		change(x)
	}
	require.NoError(t, st.CreateExchange(ctx, x))
	return x
}

// assertSameExchange compares exchanges in all but the revision.
func assertSameExchange(t *testing.T, want, got *store.Exchange) {
	t.Helper()
	assert.Equal(t, want.Key, got.Key)
	assert.Equal(t, want.Session, got.Session)
	assert.Equal(t, want.State, got.State)
	assert.Equal(t, want.Round, got.Round)
	assert.Equal(t, want.Owner, got.Owner)
	assert.WithinDuration(t, want.Lease, got.Lease, time.Millisecond)
	assert.Equal(t, string(want.Data), string(got.Data), "byte for byte")
	assert.WithinDuration(t, want.Expires, got.Expires, time.Second)
}

func testExchangeMissing(ctx context.Context, t *testing.T, st store.Store) {
	_, err := st.Exchange(ctx, unused())
	require.ErrorIs(t, err, store.ErrNotFound)
	assert.NotErrorIs(t, err, store.ErrUnavailable)
}

func testExchangeComesBack(ctx context.Context, t *testing.T, st store.Store) {
	for name, change := range map[string]func(*store.Exchange){
		"all fields": nil,
		"unowned":    func(x *store.Exchange) { x.Round, x.Owner, x.Lease = 0, "", time.Time{} },
		"no data":    func(x *store.Exchange) { x.Data = nil },
		"odd data":   func(x *store.Exchange) { x.Data = json.RawMessage("{ \"a\" :\t1.0,\n\"a\":1e400} ") },
		"odd key":    func(x *store.Exchange) { x.Key += "/../ü?#__" + strings.Repeat("long", 1000) },
		"lapsed":     func(x *store.Exchange) { x.Lease = time.Now().Add(-time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			x := createExchange(ctx, t, st, change)
			assert.NotNil(t, x.Revision)
			got, err := st.Exchange(ctx, x.Key)
			require.NoError(t, err)
			assertSameExchange(t, x, got)
			assert.Equal(t, x.Lease.IsZero(), got.Lease.IsZero())
			assert.Equal(t, x.Revision, got.Revision, "create and read give the same revision")
		})
	}
}

func testExchangeIsACopy(ctx context.Context, t *testing.T, st store.Store) {
	x := createExchange(ctx, t, st, nil)
	want, err := st.Exchange(ctx, x.Key)
	require.NoError(t, err)
	clear(x.Data)
	for range 2 {
		read, err := st.Exchange(ctx, x.Key)
		require.NoError(t, err)
		assertSameExchange(t, want, read)
		clear(read.Data)
	}
}

func testExchangeCreatedOnce(ctx context.Context, t *testing.T, st store.Store) {
	first := createExchange(ctx, t, st, nil)
	second := NewExchange()
	second.Key = first.Key
	require.ErrorIs(t, st.CreateExchange(ctx, second), store.ErrExists)
	require.ErrorIs(t, st.CreateExchange(ctx, first), store.ErrExists, "the same content is not the same call")
	got, err := st.Exchange(ctx, first.Key)
	require.NoError(t, err)
	assertSameExchange(t, first, got)
}

func testExchangeCreatedOnceRacing(ctx context.Context, t *testing.T, st store.Store) {
	key := unused()
	owner := func(racer int) string { return fmt.Sprintf("racer %d", racer) }
	winner := oneWinner(t, race(func(racer int) error {
		x := NewExchange()
		x.Key, x.Owner = key, owner(racer)
		return st.CreateExchange(ctx, x)
	}), store.ErrExists)
	got, err := st.Exchange(ctx, key)
	require.NoError(t, err)
	assert.Equal(t, owner(winner), got.Owner)
}

func testExchangeUpdate(ctx context.Context, t *testing.T, st store.Store) {
	x := createExchange(ctx, t, st, nil)
	want := *x
	want.State, want.Round, want.Owner = "running", x.Round+1, "somebody else"
	want.Lease, want.Expires = x.Lease.Add(1234*time.Millisecond), x.Expires.Add(time.Hour)

	written := want
	written.Session, written.Data = "thief", json.RawMessage(`{}`)
	before := x.Revision
	require.NoError(t, st.UpdateExchange(ctx, &written))
	assert.NotEqual(t, before, written.Revision)
	got, err := st.Exchange(ctx, x.Key)
	require.NoError(t, err)
	assertSameExchange(t, &want, got)
	assert.Equal(t, written.Revision, got.Revision)

	require.NoError(t, st.UpdateExchange(ctx, &written), "an update that changes nothing is an update")
	want.State, want.Round, want.Owner, want.Lease = "", 0, "", time.Time{}
	want.Revision = written.Revision
	require.NoError(t, st.UpdateExchange(ctx, &want), "with the revision that the update before set")
	got, err = st.Exchange(ctx, x.Key)
	require.NoError(t, err)
	assertSameExchange(t, &want, got)
}

func testExchangeStale(ctx context.Context, t *testing.T, st store.Store) {
	x := createExchange(ctx, t, st, nil)
	stale, err := st.Exchange(ctx, x.Key)
	require.NoError(t, err)
	require.NoError(t, st.UpdateExchange(ctx, x), "a heartbeat that changes nothing fences off the others")
	stale.Owner = "late"
	revision := stale.Revision
	require.ErrorIs(t, st.UpdateExchange(ctx, stale), store.ErrConflict)
	assert.Equal(t, revision, stale.Revision, "a failed update leaves the revision alone")
	got, err := st.Exchange(ctx, x.Key)
	require.NoError(t, err)
	assertSameExchange(t, x, got)
}

func testExchangeNeverRead(ctx context.Context, t *testing.T, st store.Store) {
	x := createExchange(ctx, t, st, nil)
	unread := NewExchange()
	unread.Key = x.Key
	require.ErrorIs(t, st.UpdateExchange(ctx, unread), store.ErrConflict)
	gone := createExchange(ctx, t, st, nil)
	gone.Key = unused()
	require.ErrorIs(t, st.UpdateExchange(ctx, gone), store.ErrConflict)
	_, err := st.Exchange(ctx, gone.Key)
	require.ErrorIs(t, err, store.ErrNotFound, "an update creates nothing")
}

func testExchangeClaimed(ctx context.Context, t *testing.T, st store.Store) {
	key := createExchange(ctx, t, st, func(x *store.Exchange) { x.Round, x.Owner = 0, "" }).Key
	owner := func(round, racer int) string { return fmt.Sprintf("racer %d in round %d", racer, round) }
	for round := 1; round <= 3; round++ {
		read := make([]*store.Exchange, racers)
		for racer, err := range race(func(racer int) (err error) {
			read[racer], err = st.Exchange(ctx, key)
			return err
		}) {
			require.NoError(t, err)
			require.Equal(t, round-1, read[racer].Round)
		}
		winner := oneWinner(t, race(func(racer int) error {
			x := read[racer]
			x.State, x.Round, x.Owner = "running", round, owner(round, racer)
			x.Lease = time.Now().Add(time.Minute)
			return st.UpdateExchange(ctx, x)
		}), store.ErrConflict)
		got, err := st.Exchange(ctx, key)
		require.NoError(t, err)
		assert.Equal(t, round, got.Round)
		assert.Equal(t, owner(round, winner), got.Owner)

		renewed := read[winner]
		renewed.Lease = renewed.Lease.Add(time.Minute)
		require.NoError(t, st.UpdateExchange(ctx, renewed), "the winner can renew its lease")
		for racer, x := range read {
			if racer != winner {
				require.ErrorIs(t, st.UpdateExchange(ctx, x), store.ErrConflict, "the others are fenced off")
			}
		}
	}
	errs := race(func(int) error { // each retries until it has moved the round on by one
		for {
			x, err := st.Exchange(ctx, key)
			if err != nil {
				return err
			}
			x.Round++
			if err := st.UpdateExchange(ctx, x); !errors.Is(err, store.ErrConflict) {
				return err
			}
		}
	})
	for _, err := range errs {
		require.NoError(t, err)
	}
	got, err := st.Exchange(ctx, key)
	require.NoError(t, err)
	assert.Equal(t, 3+racers, got.Round, "no update is lost")
}

func testExchangeExpires(ctx context.Context, t *testing.T, st store.Store) {
	x := createExchange(ctx, t, st, func(x *store.Exchange) { x.Expires = time.Now().Add(-time.Second) })
	_, err := st.Exchange(ctx, x.Key)
	require.ErrorIs(t, err, store.ErrNotFound, "though no database has removed it yet")
	require.ErrorIs(t, st.UpdateExchange(ctx, x), store.ErrConflict)
}

func testExchangeExpiryMoved(ctx context.Context, t *testing.T, st store.Store) {
	x := createExchange(ctx, t, st, nil)
	x.Expires = time.Now().Add(-2 * time.Second)
	require.NoError(t, st.UpdateExchange(ctx, x))
	_, err := st.Exchange(ctx, x.Key)
	require.ErrorIs(t, err, store.ErrNotFound)

	x.Expires = inAnHour()
	require.ErrorIs(t, st.UpdateExchange(ctx, x), store.ErrConflict, "what has expired is not prolonged")
	_, err = st.Exchange(ctx, x.Key)
	require.ErrorIs(t, err, store.ErrNotFound)
}

func testExchangeLarge(ctx context.Context, t *testing.T, st store.Store) {
	data := func(n int) json.RawMessage { return json.RawMessage(`"` + strings.Repeat("x", n-2) + `"`) }
	x := createExchange(ctx, t, st, func(x *store.Exchange) { x.Data = data(store.MaxExchangeData) })
	got, err := st.Exchange(ctx, x.Key)
	require.NoError(t, err)
	assertSameExchange(t, x, got)

	tooLarge := NewExchange()
	tooLarge.Data = data(store.MaxExchangeData + 1)
	require.ErrorIs(t, st.CreateExchange(ctx, tooLarge), store.ErrTooLarge)
	_, err = st.Exchange(ctx, tooLarge.Key)
	require.ErrorIs(t, err, store.ErrNotFound)
}

func testExchangeApart(ctx context.Context, t *testing.T, st store.Store) {
	x := createExchange(ctx, t, st, nil)
	events, err := st.Events(ctx, x.Key, 0, 0)
	require.NoError(t, err)
	assert.Empty(t, events)
	for seq := int64(1); seq <= 2; seq++ {
		appendEvent(ctx, t, st, x.Key, seq, small(seq))
		require.NoError(t, st.PutAnswer(ctx, x.Key, fmt.Sprint(seq), small(seq), inAnHour()))
	}
	appendEvent(ctx, t, st, x.Key, store.Final, small(store.Final))
	require.NoError(t, st.PutAnswer(ctx, x.Key, "", small(0), inAnHour()))
	events, err = st.Events(ctx, x.Key, 0, 0)
	require.NoError(t, err)
	assertEvents(t, events, 1, 2, store.Final)
	got, err := st.Exchange(ctx, x.Key)
	require.NoError(t, err)
	assertSameExchange(t, x, got)

	other := unused()
	appendEvent(ctx, t, st, other, 1, small(1))
	_, err = st.Exchange(ctx, other)
	require.ErrorIs(t, err, store.ErrNotFound, "an outbox needs no record")
}
