package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/store"
)

var sessionTests = []test{
	{"IsMissingUntilCreated", testSessionMissing},
	{"ComesBackExactly", testSessionComesBack},
	{"IsACopy", testSessionIsACopy},
	{"IsCreatedOnce", testSessionCreatedOnce},
	{"IsCreatedOnceByRacingWriters", testSessionCreatedOnceRacing},
	{"UpdateChangesWhatMayChangeAndNothingElse", testSessionUpdate},
	{"UpdateFollowsUpdate", testSessionUpdateTwice},
	{"UpdateOfStaleRevisionIsConflict", testSessionStale},
	{"UpdateOfWhatWasNeverReadIsConflict", testSessionNeverRead},
	{"LosesNoUpdateOfRacingWriters", testSessionRacingUpdates},
	{"ChangeSessionLosesNoUpdateOfRacingWriters", testChangeSessionRacing},
	{"ExpiresByTheClock", testSessionExpires},
	{"EndsWhenItsExpiryIsMovedToThePast", testSessionExpiryMoved},
	{"DeleteIsForGood", testSessionDelete},
	{"DeleteOfMissingIsNotFoundOrNothing", testSessionDeleteMissing},
	{"DeleteWinsOverRacingUpdates", testSessionDeleteRacing},
	{"KeepsTheRingOfCancellations", testSessionCancelled},
	{"LargeIsStoredAndTooLargeIsRefused", testSessionLarge},
}

func testSessionMissing(ctx context.Context, t *testing.T, st store.Store) {
	_, err := st.Session(ctx, NewSession().Key)
	require.ErrorIs(t, err, store.ErrNotFound)
	assert.NotErrorIs(t, err, store.ErrUnavailable)
}

func testSessionComesBack(ctx context.Context, t *testing.T, st store.Store) {
	for name, change := range map[string]func(*store.Session){
		"all fields":       nil,
		"no principal":     func(s *store.Session) { s.Principal = "" },
		"no subscriptions": func(s *store.Session) { s.Subscriptions = nil },
		"one subscription": func(s *store.Session) { s.Subscriptions = []string{"x:y"} },
		"fresh": func(s *store.Session) {
			s.Initialized, s.LogLevel, s.Subscriptions, s.Cancels, s.Cancelled = false, "", nil, 0, nil
		},
		"odd params": func(s *store.Session) {
			s.InitializeParams = json.RawMessage("{ \"a\" :\t1.0,\n\"a\":1e400,\"é\":\"\\u00e9\"} ")
		},
		"many subscriptions": func(s *store.Session) {
			for i := range 500 {
				s.Subscriptions = append(s.Subscriptions, fmt.Sprintf("file:///many/%d", i))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := create(ctx, t, st, change)
			assert.NotNil(t, s.Revision)
			got, err := st.Session(ctx, s.Key)
			require.NoError(t, err)
			assertSame(t, s, got)
			assert.Equal(t, s.Revision, got.Revision, "create and read give the same revision")
		})
	}
}

// assertSame compares sessions in all but the revision.
func assertSame(t *testing.T, want, got *store.Session) {
	t.Helper()
	assert.Equal(t, want.Key, got.Key)
	assert.Equal(t, want.Principal, got.Principal)
	assert.Equal(t, want.ProtocolVersion, got.ProtocolVersion)
	assert.Equal(t, string(want.InitializeParams), string(got.InitializeParams), "byte for byte")
	assert.Equal(t, want.Initialized, got.Initialized)
	assert.Equal(t, want.LogLevel, got.LogLevel)
	assert.ElementsMatch(t, want.Subscriptions, got.Subscriptions)
	assert.Equal(t, want.Cancels, got.Cancels)
	assert.Equal(t, want.Cancelled, got.Cancelled, "in order, with duplicates")
	assert.WithinDuration(t, want.Created, got.Created, time.Second)
	assert.WithinDuration(t, want.Expires, got.Expires, time.Second)
}

func testSessionIsACopy(ctx context.Context, t *testing.T, st store.Store) {
	s := create(ctx, t, st, nil)
	want, err := st.Session(ctx, s.Key)
	require.NoError(t, err)
	scribble := func(s *store.Session) {
		clear(s.InitializeParams)
		clear(s.Subscriptions)
		clear(s.Cancelled)
	}
	scribble(s)
	read, err := st.Session(ctx, s.Key)
	require.NoError(t, err)
	assertSame(t, want, read)
	scribble(read)
	read, err = st.Session(ctx, s.Key)
	require.NoError(t, err)
	assertSame(t, want, read)
}

func testSessionCreatedOnce(ctx context.Context, t *testing.T, st store.Store) {
	first := create(ctx, t, st, nil)
	second := NewSession()
	second.Key, second.Principal = first.Key, "somebody else"
	require.ErrorIs(t, st.CreateSession(ctx, second), store.ErrExists)
	require.ErrorIs(t, st.CreateSession(ctx, first), store.ErrExists, "the same content is not the same call")
	got, err := st.Session(ctx, first.Key)
	require.NoError(t, err)
	assertSame(t, first, got)
}

func testSessionCreatedOnceRacing(ctx context.Context, t *testing.T, st store.Store) {
	key := NewSession().Key
	principal := func(racer int) string { return fmt.Sprintf("racer %d", racer) }
	winner := oneWinner(t, race(func(racer int) error {
		s := NewSession()
		s.Key, s.Principal = key, principal(racer)
		return st.CreateSession(ctx, s)
	}), store.ErrExists)
	got, err := st.Session(ctx, key)
	require.NoError(t, err)
	assert.Equal(t, principal(winner), got.Principal)
}

func testSessionUpdate(ctx context.Context, t *testing.T, st store.Store) {
	s := create(ctx, t, st, func(s *store.Session) { s.Initialized, s.LogLevel, s.Subscriptions = false, "", nil })
	want := *s
	want.Initialized, want.LogLevel, want.Subscriptions = true, "debug", []string{"a:b", "c:d"}
	want.Cancels, want.Cancelled = 6, append(slices.Clone(s.Cancelled)[2:], `"x"`, `"x"`)
	want.Expires = want.Expires.Add(time.Hour)

	written := want
	written.Principal, written.ProtocolVersion, written.InitializeParams = "thief", "1999-01-01", json.RawMessage(`{}`)
	written.Created = written.Created.Add(-time.Hour)
	before := s.Revision
	require.NoError(t, st.UpdateSession(ctx, &written))
	assert.NotEqual(t, before, written.Revision)

	got, err := st.Session(ctx, s.Key)
	require.NoError(t, err)
	assertSame(t, &want, got)
	assert.Equal(t, written.Revision, got.Revision)
}

func testSessionUpdateTwice(ctx context.Context, t *testing.T, st store.Store) {
	s := create(ctx, t, st, nil)
	s.LogLevel, s.Subscriptions = "error", nil
	require.NoError(t, st.UpdateSession(ctx, s))
	require.NoError(t, st.UpdateSession(ctx, s), "an update that changes nothing is an update")
	s.LogLevel, s.Initialized = "", false
	require.NoError(t, st.UpdateSession(ctx, s), "with the revision that the update before set")
	got, err := st.Session(ctx, s.Key)
	require.NoError(t, err)
	assertSame(t, s, got)
}

func testSessionStale(ctx context.Context, t *testing.T, st store.Store) {
	s := create(ctx, t, st, nil)
	stale, err := st.Session(ctx, s.Key)
	require.NoError(t, err)
	s.LogLevel = "error"
	require.NoError(t, st.UpdateSession(ctx, s))
	stale.LogLevel = "debug"
	revision := stale.Revision
	require.ErrorIs(t, st.UpdateSession(ctx, stale), store.ErrConflict)
	assert.Equal(t, revision, stale.Revision, "a failed update leaves the revision alone")
	got, err := st.Session(ctx, s.Key)
	require.NoError(t, err)
	assert.Equal(t, "error", got.LogLevel)
}

func testSessionNeverRead(ctx context.Context, t *testing.T, st store.Store) {
	s := create(ctx, t, st, nil)
	unread := NewSession()
	unread.Key = s.Key
	require.ErrorIs(t, st.UpdateSession(ctx, unread), store.ErrConflict)
	gone := create(ctx, t, st, nil)
	gone.Key = NewSession().Key
	require.ErrorIs(t, st.UpdateSession(ctx, gone), store.ErrConflict)
	_, err := st.Session(ctx, gone.Key)
	require.ErrorIs(t, err, store.ErrNotFound, "an update creates nothing")
}

func testSessionRacingUpdates(ctx context.Context, t *testing.T, st store.Store) {
	key := create(ctx, t, st, func(s *store.Session) { s.Subscriptions = nil }).Key
	errs := race(func(racer int) error {
		for {
			s, err := st.Session(ctx, key)
			if err != nil {
				return err
			}
			s.Subscriptions = append(s.Subscriptions, racerURI(racer))
			if err := st.UpdateSession(ctx, s); !errors.Is(err, store.ErrConflict) {
				return err
			}
		}
	})
	assertAllSubscribed(ctx, t, st, key, errs)
}

func testChangeSessionRacing(ctx context.Context, t *testing.T, st store.Store) {
	key := create(ctx, t, st, func(s *store.Session) { s.Subscriptions = nil }).Key
	errs := race(func(racer int) error {
		s, err := st.Session(ctx, key)
		if err != nil {
			return err
		}
		return store.ChangeSession(ctx, st, s, func(s *store.Session) bool {
			s.Subscriptions = append(s.Subscriptions, racerURI(racer))
			return true
		})
	})
	assertAllSubscribed(ctx, t, st, key, errs)
}

func racerURI(racer int) string { return fmt.Sprintf("racer:%d", racer) }

func assertAllSubscribed(ctx context.Context, t *testing.T, st store.Store, key string, errs []error) {
	t.Helper()
	var want []string
	for racer, err := range errs {
		require.NoError(t, err)
		want = append(want, racerURI(racer))
	}
	got, err := st.Session(ctx, key)
	require.NoError(t, err)
	assert.ElementsMatch(t, want, got.Subscriptions)
}

func testSessionExpires(ctx context.Context, t *testing.T, st store.Store) {
	s := create(ctx, t, st, func(s *store.Session) { s.Expires = time.Now().Add(-time.Second) })
	_, err := st.Session(ctx, s.Key)
	require.ErrorIs(t, err, store.ErrNotFound, "though no database has removed it yet")
}

func testSessionExpiryMoved(ctx context.Context, t *testing.T, st store.Store) {
	s := create(ctx, t, st, nil)
	s.Expires = time.Now().Add(-2 * time.Second)
	require.NoError(t, st.UpdateSession(ctx, s))
	_, err := st.Session(ctx, s.Key)
	require.ErrorIs(t, err, store.ErrNotFound)

	s.Expires = inAnHour()
	require.ErrorIs(t, st.UpdateSession(ctx, s), store.ErrConflict, "what has expired is not prolonged")
	_, err = st.Session(ctx, s.Key)
	require.ErrorIs(t, err, store.ErrNotFound)
}

func testSessionDelete(ctx context.Context, t *testing.T, st store.Store) {
	s := create(ctx, t, st, nil)
	late, err := st.Session(ctx, s.Key)
	require.NoError(t, err)
	require.NoError(t, st.DeleteSession(ctx, s.Key))
	_, err = st.Session(ctx, s.Key)
	require.ErrorIs(t, err, store.ErrNotFound)

	require.ErrorIs(t, st.UpdateSession(ctx, late), store.ErrConflict)
	require.ErrorIs(t, store.ChangeSession(ctx, st, late, func(*store.Session) bool { return true }), store.ErrNotFound)
	again := NewSession()
	again.Key = s.Key
	require.ErrorIs(t, st.CreateSession(ctx, again), store.ErrExists, "an ended session's key is not used again")
	_, err = st.Session(ctx, s.Key)
	require.ErrorIs(t, err, store.ErrNotFound)
}

func testSessionDeleteMissing(ctx context.Context, t *testing.T, st store.Store) {
	notFoundOrNothing := func(err error) {
		if err != nil {
			assert.ErrorIs(t, err, store.ErrNotFound)
		}
	}
	key := NewSession().Key
	notFoundOrNothing(st.DeleteSession(ctx, key))
	_, err := st.Session(ctx, key)
	require.ErrorIs(t, err, store.ErrNotFound)

	key = create(ctx, t, st, nil).Key
	require.NoError(t, st.DeleteSession(ctx, key))
	notFoundOrNothing(st.DeleteSession(ctx, key))
	_, err = st.Session(ctx, key)
	require.ErrorIs(t, err, store.ErrNotFound)
}

func testSessionDeleteRacing(ctx context.Context, t *testing.T, st store.Store) {
	key := create(ctx, t, st, nil).Key
	errs := race(func(racer int) error {
		if racer == racers/2 {
			return st.DeleteSession(ctx, key)
		}
		for {
			s, err := st.Session(ctx, key)
			if err != nil {
				return err
			}
			if err := st.UpdateSession(ctx, s); err != nil && !errors.Is(err, store.ErrConflict) {
				return err
			}
		}
	})
	for racer, err := range errs {
		if racer == racers/2 {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, store.ErrNotFound)
		}
	}
	_, err := st.Session(ctx, key)
	require.ErrorIs(t, err, store.ErrNotFound)
}

func testSessionCancelled(ctx context.Context, t *testing.T, st store.Store) {
	s := create(ctx, t, st, func(s *store.Session) { s.Cancels, s.Cancelled = 0, nil })
	want := *s
	for i := range int64(2*store.MaxCancelled + 3) {
		id := fmt.Sprint(i / 2) // each twice
		require.NoError(t, store.ChangeSession(ctx, st, s, func(s *store.Session) bool {
			s.Cancels++
			s.Cancelled = append(s.Cancelled, id)
			s.Cancelled = s.Cancelled[max(0, len(s.Cancelled)-store.MaxCancelled):]
			return true
		}))
		want.Cancels, want.Cancelled = i+1, append(want.Cancelled, id)
	}
	want.Cancelled = want.Cancelled[len(want.Cancelled)-store.MaxCancelled:]
	got, err := st.Session(ctx, s.Key)
	require.NoError(t, err)
	assertSame(t, &want, got)

	got.Cancelled = []string{"", "", strings.Repeat("long", 1000), "ü"}
	require.NoError(t, st.UpdateSession(ctx, got))
	again, err := st.Session(ctx, s.Key)
	require.NoError(t, err)
	assertSame(t, got, again)

	got.Cancelled = append(got.Cancelled, strings.Repeat("x", store.MaxSession))
	require.ErrorIs(t, st.UpdateSession(ctx, got), store.ErrTooLarge, "they count")
}

func testSessionLarge(ctx context.Context, t *testing.T, st store.Store) {
	params := func(n int) json.RawMessage {
		return json.RawMessage(fmt.Sprintf(`{"x":%q}`, fmt.Sprintf("%0*d", n, 7)))
	}
	s := create(ctx, t, st, func(s *store.Session) { s.InitializeParams = params(200 << 10) })
	got, err := st.Session(ctx, s.Key)
	require.NoError(t, err)
	assertSame(t, s, got)

	s.Subscriptions = append(s.Subscriptions, string(params(60<<10)))
	require.ErrorIs(t, st.UpdateSession(ctx, s), store.ErrTooLarge)
	again, err := st.Session(ctx, s.Key)
	require.NoError(t, err)
	assertSame(t, got, again)

	tooLarge := NewSession()
	tooLarge.InitializeParams = params(store.MaxSession)
	require.ErrorIs(t, st.CreateSession(ctx, tooLarge), store.ErrTooLarge)
	_, err = st.Session(ctx, tooLarge.Key)
	require.ErrorIs(t, err, store.ErrNotFound)
}
