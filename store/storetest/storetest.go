// Package storetest is the contract of [store.Store], and of [store.Watcher] for a store that is one, in the form of
// tests. A new driver is done when Run passes:
//
//	func TestContract(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) store.Store { return mydriver.New(…) })
//	}
//
// What needs a look at the database itself (unknown fields, records that cannot be read, outages, costs) is tested by
// each driver.
package storetest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/store"
)

// racers is how many writers go for one record at once.
const racers = 20

// patience bounds every test: a store that hangs fails.
const patience = 2 * time.Minute

// Run tests a store against the contract. open is called for every test and may return the same store again: the tests
// use keys that nobody else uses, and leave what they wrote.
func Run(t *testing.T, open func(t *testing.T) store.Store) {
	for _, group := range []struct {
		name  string
		tests []test
	}{
		{"Session", sessionTests},
		{"Exchange", exchangeTests},
		{"Outbox", outboxTests},
		{"Inbox", inboxTests},
		{"Topic", topicTests},
		{"Watcher", watcherTests},
		{"Context", contextTests},
	} {
		t.Run(group.name, func(t *testing.T) {
			for _, tt := range group.tests {
				t.Run(tt.name, func(t *testing.T) {
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					tt.run(ctx, t, open(t))
				})
			}
		})
	}
}

type test struct {
	name string
	run  func(ctx context.Context, t *testing.T, st store.Store)
}

// NewSession returns a session that is in no store, with all fields set, for an hour.
func NewSession() *store.Session {
	key := sha256.Sum256([]byte(rand.Text()))
	return &store.Session{
		Key:              hex.EncodeToString(key[:]),
		Principal:        "https://issuer.example/ user-1",
		ProtocolVersion:  "2025-11-25",
		InitializeParams: json.RawMessage(`{"clientInfo": {"name":"c"}, "n":9007199254740993, "html":"<&>\u003c"}`),
		Initialized:      true,
		LogLevel:         "warning",
		Subscriptions:    []string{"file:///a", "file:///b?x=1#y", "näh://ü"},
		Cancels:          4,
		Cancelled:        []string{`"1"`, "1", "9007199254740993", "1"},
		Created:          time.Now(),
		Expires:          inAnHour(),
	}
}

// NewExchange returns an exchange that is in no store, with all fields set, for an hour.
func NewExchange() *store.Exchange {
	return &store.Exchange{
		Key:     rand.Text(),
		Session: NewSession().Key,
		State:   "asking",
		Round:   2,
		Owner:   rand.Text(),
		Lease:   time.Now().Add(30 * time.Second),
		Data:    json.RawMessage(`{"id": 9007199254740993, "html":"<&>\u003c"}`),
		Expires: inAnHour(),
	}
}

func create(ctx context.Context, t *testing.T, st store.Store, change func(*store.Session)) *store.Session {
	t.Helper()
	s := NewSession()
	if change != nil {
		change(s)
	}
	require.NoError(t, st.CreateSession(ctx, s))
	return s
}

func inAnHour() time.Time { return time.Now().Add(time.Hour) }

// unused returns an id that no other test has.
func unused() string { return rand.Text() }

// pattern returns n bytes that are not text, differ from one seed to another and are no repetition of a block.
func pattern(n int, seed uint32) []byte {
	data := make([]byte, n)
	x := seed*2654435761 + 1
	for i := range data {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		data[i] = byte(x >> 8)
	}
	return data
}

// race runs f for every racer at once and returns what each of them returned.
func race(f func(racer int) error) []error {
	errs := make([]error, racers)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range racers {
		wg.Go(func() {
			<-start
			errs[i] = f(i)
		})
	}
	close(start)
	wg.Wait()
	return errs
}

// oneWinner checks that exactly one racer succeeded and that the others were told err. It returns the winner.
func oneWinner(t *testing.T, errs []error, err error) int {
	t.Helper()
	winner := -1
	for i, got := range errs {
		switch {
		case got == nil && winner >= 0:
			require.Failf(t, "two winners", "%d and %d", winner, i)
		case got == nil:
			winner = i
		case !errors.Is(got, err):
			require.ErrorIs(t, got, err)
		}
	}
	require.GreaterOrEqual(t, winner, 0, "nobody won")
	return winner
}
