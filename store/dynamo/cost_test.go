package dynamo_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/store"
	"github.com/hydrant-mcp/hydrant/store/dynamo"
	"github.com/hydrant-mcp/hydrant/store/storetest"
)

// What a message costs is part of the design: the table "Store operations per message". The units are the database's own:
// a write unit is 1 KB of the item, a read unit 4 KB.
func TestOperationsCostWhatTheDesignSays(t *testing.T) {
	client, table := newTable(t)
	meter := &meter{Client: client}
	st := dynamo.New(meter, table)
	ctx := t.Context()
	inAnHour := time.Now().Add(time.Hour)
	s, x := storetest.NewSession(), storetest.NewExchange()
	stale := *x
	data, large := []byte(strings.Repeat("x", 800)), make([]byte, 1<<20)
	event := func(exchange string, seq int64, data []byte) func() error {
		return func() error { return st.AppendEvent(ctx, exchange, store.Event{Seq: seq, Data: data}, inAnHour) }
	}
	events := func(exchange string, after int64, want int) func() error {
		return func() error {
			got, err := st.Events(ctx, exchange, after, 0)
			assert.Len(t, got, want)
			return err
		}
	}
	var topics []string
	for i := range 250 {
		topics = append(topics, fmt.Sprint(i))
	}
	for _, step := range []struct {
		name string
		call func() error
		err  error
		want usage
	}{
		{"create a session", func() error { return st.CreateSession(ctx, s) }, nil, usage{writes: 1, writeUnits: 1}},
		{"create it again", func() error { return st.CreateSession(ctx, s) }, store.ErrExists, usage{writes: 1, refused: 1}},
		{"read a session", func() error { _, err := st.Session(ctx, s.Key); return err }, nil, usage{reads: 1, readUnits: 1}},
		{"update a session", func() error { return st.UpdateSession(ctx, s) }, nil, usage{writes: 1, writeUnits: 1}},
		{"delete a session", func() error { return st.DeleteSession(ctx, s.Key) }, nil, usage{writes: 1, writeUnits: 1}},
		{"delete it again", func() error { return st.DeleteSession(ctx, s.Key) }, store.ErrNotFound,
			usage{writes: 1, refused: 1}},

		{"create an exchange", func() error { return st.CreateExchange(ctx, x) }, nil, usage{writes: 1, writeUnits: 1}},
		{"create it again", func() error { return st.CreateExchange(ctx, x) }, store.ErrExists, usage{writes: 1, refused: 1}},
		{"read an exchange", func() error { _, err := st.Exchange(ctx, x.Key); return err }, nil,
			usage{reads: 1, readUnits: 1}},
		{"find no exchange", func() error { _, err := st.Exchange(ctx, "none"); return err }, store.ErrNotFound,
			usage{reads: 1, readUnits: 1}},
		{"update an exchange", func() error {
			stale.Revision = x.Revision
			return st.UpdateExchange(ctx, x)
		}, nil, usage{writes: 1, writeUnits: 1}},
		{"update a stale one", func() error { return st.UpdateExchange(ctx, &stale) }, store.ErrConflict,
			usage{writes: 1, refused: 1}},

		{"append an event", event("x", 1, data), nil, usage{writes: 1, writeUnits: 1}},
		{"append it again", event("x", 1, data), nil, usage{writes: 1, writeUnits: 1}},
		{"append another", event("x", 2, data), nil, usage{writes: 1, writeUnits: 1}},
		{"append other bytes", event("x", 2, data[1:]), store.ErrConflict, usage{writes: 1, refused: 1}},
		{"poll events", events("x", 0, 2), nil, usage{reads: 1, readUnits: 1}},
		// The emulator bills nothing for a query that finds nothing; the service may bill a unit.
		{"poll and find nothing", events("x", 2, 0), nil, usage{reads: 1}},
		{"append the final event", event("x", store.Final, data), nil, usage{writes: 1, writeUnits: 1}},
		{"poll the final event", events("x", 2, 1), nil, usage{reads: 2, readUnits: 1}},
		{"append a large event", event("large", 1, large), nil,
			usage{reads: 1, readUnits: 1, writes: 4, writeUnits: 1028}},
		{"append it again", event("large", 1, large), nil, usage{reads: 1, readUnits: 1}},
		{"append other bytes", event("large", 1, large[1:]), store.ErrConflict, usage{reads: 1, readUnits: 1}},
		{"read a large event", events("large", 0, 1), nil, usage{reads: 2, readUnits: 259}},

		{"put an answer", func() error { return st.PutAnswer(ctx, "x", "q", data, inAnHour) }, nil,
			usage{writes: 1, writeUnits: 1}},
		{"put another answer", func() error { return st.PutAnswer(ctx, "x", "q", data, inAnHour) }, store.ErrExists,
			usage{writes: 1, refused: 1}},
		{"put a large answer", func() error { return st.PutAnswer(ctx, "large", "q", large, inAnHour) }, nil,
			usage{reads: 1, readUnits: 1, writes: 4, writeUnits: 1028}},
		{"put it again", func() error { return st.PutAnswer(ctx, "large", "q", large, inAnHour) }, store.ErrExists,
			usage{reads: 1, readUnits: 1}},
		{"read an answer", func() error { _, err := st.Answer(ctx, "x", "q"); return err }, nil, usage{reads: 1, readUnits: 1}},
		{"find no answer", func() error { _, err := st.Answer(ctx, "x", "p"); return err }, store.ErrNotFound,
			usage{reads: 1, readUnits: 1}},
		{"look for two", func() error {
			_, _, err := st.Look(ctx, s.Key, []store.Slot{{Exchange: "x", Question: "q"}, {Exchange: "x", Question: "p"}})
			return err
		}, nil, usage{reads: 1, readUnits: 3}},

		{"raise a topic", func() error { return st.RaiseTopic(ctx, "7") }, nil, usage{writes: 1, writeUnits: 1}},
		{"read topics", func() error { _, err := st.TopicVersions(ctx, topics[:3]); return err }, nil,
			usage{reads: 1, readUnits: 3}},
		{"read many topics", func() error { _, err := st.TopicVersions(ctx, topics); return err }, nil,
			usage{reads: 3, readUnits: 250}},
	} {
		meter.reset()
		err := step.call()
		if step.err == nil {
			require.NoError(t, err, step.name)
		} else {
			require.ErrorIs(t, err, step.err, step.name)
		}
		assert.Equal(t, step.want, meter.usage, step.name)
	}
}

func TestFailedCallsDoNotMultiply(t *testing.T) {
	client, table := newTable(t)
	meter := &meter{Client: client}
	st := dynamo.New(meter, table)
	s := storetest.NewSession()
	s.Revision = nil
	require.ErrorIs(t, st.UpdateSession(t.Context(), s), store.ErrConflict)
	x := storetest.NewExchange()
	require.ErrorIs(t, st.UpdateExchange(t.Context(), x), store.ErrConflict)
	x.Data = make([]byte, store.MaxExchangeData+1)
	require.ErrorIs(t, st.CreateExchange(t.Context(), x), store.ErrTooLarge)
	tooLarge := make([]byte, store.MaxEvent+1)
	inAnHour := time.Now().Add(time.Hour)
	require.ErrorIs(t, st.AppendEvent(t.Context(), "x", store.Event{Seq: 1, Data: tooLarge}, inAnHour), store.ErrTooLarge)
	require.ErrorIs(t, st.PutAnswer(t.Context(), "x", "q", tooLarge, inAnHour), store.ErrTooLarge)
	assert.Equal(t, usage{}, meter.usage, "what cannot succeed is not tried")
}

type usage struct {
	reads, writes         int     // operations
	refused               int     // writes whose condition failed: billed too, but the error does not say how much
	readUnits, writeUnits float64 // as the database reports them
}

// A meter asks the database with every operation what it cost.
type meter struct {
	dynamo.Client
	mu sync.Mutex
	usage
}

func (m *meter) reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.usage = usage{}
}

func (m *meter) read(capacity ...types.ConsumedCapacity) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads++
	for _, c := range capacity {
		m.readUnits += *c.CapacityUnits
	}
}

func (m *meter) write(capacity *types.ConsumedCapacity) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writes++
	if capacity == nil {
		m.refused++
	} else {
		m.writeUnits += *capacity.CapacityUnits
	}
}

type option = func(*dynamodb.Options)

func (m *meter) GetItem(ctx context.Context, in *dynamodb.GetItemInput, _ ...option) (
	*dynamodb.GetItemOutput, error,
) {
	in.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
	out, err := m.Client.GetItem(ctx, in)
	if err == nil {
		m.read(*out.ConsumedCapacity)
	}
	return out, err
}

func (m *meter) Query(ctx context.Context, in *dynamodb.QueryInput, _ ...option) (
	*dynamodb.QueryOutput, error,
) {
	in.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
	out, err := m.Client.Query(ctx, in)
	if err == nil {
		m.read(*out.ConsumedCapacity)
	}
	return out, err
}

func (m *meter) BatchGetItem(ctx context.Context, in *dynamodb.BatchGetItemInput, _ ...option) (
	*dynamodb.BatchGetItemOutput, error,
) {
	in.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
	out, err := m.Client.BatchGetItem(ctx, in)
	if err == nil {
		m.read(out.ConsumedCapacity...)
	}
	return out, err
}

func (m *meter) PutItem(ctx context.Context, in *dynamodb.PutItemInput, _ ...option) (
	*dynamodb.PutItemOutput, error,
) {
	in.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
	out, err := m.Client.PutItem(ctx, in)
	if err != nil {
		m.write(nil)
	} else {
		m.write(out.ConsumedCapacity)
	}
	return out, err
}

func (m *meter) UpdateItem(ctx context.Context, in *dynamodb.UpdateItemInput, _ ...option) (
	*dynamodb.UpdateItemOutput, error,
) {
	in.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
	out, err := m.Client.UpdateItem(ctx, in)
	if err != nil {
		m.write(nil)
	} else {
		m.write(out.ConsumedCapacity)
	}
	return out, err
}
