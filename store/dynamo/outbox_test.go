package dynamo_test

import (
	"context"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/store"
	"github.com/hydrant-mcp/hydrant/store/dynamo"
)

// A query is no snapshot: what is written while it runs may be seen or not, the last of two writes and not the first
// included. The emulator's queries are too fast to show it.
func TestFinalEventDoesNotHideOneThatTheQueryMissed(t *testing.T) {
	client, table := newTable(t)
	direct := dynamo.New(client, table)
	inAnHour := time.Now().Add(time.Hour)
	for _, limit := range []int{0, 2, 3} {
		exchange := time.Now().String()
		write := func(seq int64) {
			require.NoError(t, direct.AppendEvent(t.Context(), exchange, store.Event{Seq: seq}, inAnHour))
		}
		write(1)
		st := dynamo.New(&slowQuery{Client: client, meanwhile: func() { write(2); write(store.Final) }}, table)
		var got []int64
		for after := int64(0); after != store.Final; after = got[len(got)-1] {
			events, err := st.Events(t.Context(), exchange, after, limit)
			require.NoError(t, err)
			require.NotEmpty(t, events)
			for _, e := range events {
				got = append(got, e.Seq)
			}
		}
		assert.Equal(t, []int64{1, 2, store.Final}, got)
	}
}

// A slowQuery sees the first item before something is written, and the last one after it.
type slowQuery struct {
	dynamo.Client
	meanwhile func()
}

func (q *slowQuery) Query(ctx context.Context, in *dynamodb.QueryInput, opts ...option) (*dynamodb.QueryOutput, error) {
	before, err := q.Client.Query(ctx, in, opts...)
	if err != nil || q.meanwhile == nil {
		return before, err
	}
	q.meanwhile()
	q.meanwhile = nil
	in.Limit = nil
	after, err := q.Client.Query(ctx, in, opts...)
	if err == nil {
		after.Items = append(before.Items, after.Items[len(after.Items)-1])
	}
	return after, err
}
