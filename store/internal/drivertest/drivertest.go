// Package drivertest is what the tests of the drivers of databases have in common, beside the contract of storetest.
package drivertest

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/store"
	"github.com/hydrant-mcp/hydrant/store/storetest"
)

// ClosedPort returns an address that nobody listens on.
func ClosedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

// EveryCall makes every call of a store, with arguments that are in order. revision gives a revision of the store's of a
// record that expires then.
func EveryCall(st store.Store, revision func(expires time.Time) any) map[string]func(context.Context) error {
	s, known := storetest.NewSession(), storetest.NewSession()
	known.Revision = revision(known.Expires)
	x, knownX := storetest.NewExchange(), storetest.NewExchange()
	knownX.Revision = revision(knownX.Expires)
	inAnHour := time.Now().Add(time.Hour)
	return map[string]func(context.Context) error{
		"CreateSession":  func(ctx context.Context) error { return st.CreateSession(ctx, s) },
		"Session":        func(ctx context.Context) error { _, err := st.Session(ctx, s.Key); return err },
		"UpdateSession":  func(ctx context.Context) error { return st.UpdateSession(ctx, known) },
		"DeleteSession":  func(ctx context.Context) error { return st.DeleteSession(ctx, s.Key) },
		"CreateExchange": func(ctx context.Context) error { return st.CreateExchange(ctx, x) },
		"Exchange":       func(ctx context.Context) error { _, err := st.Exchange(ctx, x.Key); return err },
		"UpdateExchange": func(ctx context.Context) error { return st.UpdateExchange(ctx, knownX) },
		"AppendEvent": func(ctx context.Context) error {
			return st.AppendEvent(ctx, "x", store.Event{Seq: 1}, inAnHour)
		},
		"AppendEvent, large": func(ctx context.Context) error {
			return st.AppendEvent(ctx, "x", store.Event{Seq: 1, Data: make([]byte, 1<<20)}, inAnHour)
		},
		"Events":    func(ctx context.Context) error { _, err := st.Events(ctx, "x", 0, 0); return err },
		"PutAnswer": func(ctx context.Context) error { return st.PutAnswer(ctx, "x", "q", nil, inAnHour) },
		"Answer":    func(ctx context.Context) error { _, err := st.Answer(ctx, "x", "q"); return err },
		"Look": func(ctx context.Context) error {
			_, _, err := st.Look(ctx, s.Key, []store.Slot{{Exchange: "x", Question: "q"}})
			return err
		},
		"RaiseTopic":    func(ctx context.Context) error { return st.RaiseTopic(ctx, "t") },
		"TopicVersions": func(ctx context.Context) error { _, err := st.TopicVersions(ctx, []string{"t"}); return err },
	}
}

// ReadAll reads everything that a store has, whatever the database says of it: each read gives a record, or says that it
// cannot be read or is not there.
func ReadAll(t *testing.T, st store.Store) {
	t.Helper()
	ctx := t.Context()
	s, err := st.Session(ctx, "s")
	requireRead(t, s != nil, err)
	x, err := st.Exchange(ctx, "x")
	requireRead(t, x != nil, err)
	events, err := st.Events(ctx, "x", 0, 0)
	requireRead(t, true, err)
	require.LessOrEqual(t, len(events), 1)
	answer, err := st.Answer(ctx, "x", "q")
	requireRead(t, answer != nil, err)
	versions, err := st.TopicVersions(ctx, []string{"t"})
	requireRead(t, versions != nil, err)
}

func requireRead(t *testing.T, got bool, err error) {
	t.Helper()
	if err == nil {
		require.True(t, got)
		return
	}
	require.True(t, errors.Is(err, store.ErrCorrupt) || errors.Is(err, store.ErrNotFound), err)
}
