package dynamo_test

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/store"
	"github.com/hydrant-mcp/hydrant/store/dynamo"
	"github.com/hydrant-mcp/hydrant/store/internal/drivertest"
	"github.com/hydrant-mcp/hydrant/store/storetest"
)

// tape is a table that keeps the last item that was written, and gives it to whoever reads anything.
type tape struct {
	dynamo.Client
	item attributes
}

func (c *tape) PutItem(_ context.Context, in *dynamodb.PutItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	c.item = in.Item
	return &dynamodb.PutItemOutput{}, nil
}

func (c *tape) GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	return &dynamodb.GetItemOutput{Item: c.item}, nil
}

func (c *tape) Query(context.Context, *dynamodb.QueryInput, ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error) {
	return &dynamodb.QueryOutput{Items: []map[string]types.AttributeValue{c.item}}, nil
}

func (c *tape) BatchGetItem(_ context.Context, in *dynamodb.BatchGetItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.BatchGetItemOutput, error) {
	var found []map[string]types.AttributeValue
	for _, keys := range in.RequestItems {
		for _, key := range keys.Keys {
			it := maps.Clone(c.item)
			maps.Copy(it, key)
			found = append(found, it)
		}
	}
	return &dynamodb.BatchGetItemOutput{Responses: map[string][]map[string]types.AttributeValue{"t": found}}, nil
}

// attributeOf makes an attribute of each kind that the database has.
func attributeOf(kind uint8, value []byte) types.AttributeValue {
	switch kind % 8 {
	case 0:
		return &types.AttributeValueMemberS{Value: string(value)}
	case 1:
		return &types.AttributeValueMemberN{Value: string(value)}
	case 2:
		return &types.AttributeValueMemberB{Value: value}
	case 3:
		return &types.AttributeValueMemberBOOL{Value: len(value) > 0}
	case 4:
		return &types.AttributeValueMemberNULL{Value: true}
	case 5:
		return &types.AttributeValueMemberL{Value: []types.AttributeValue{attributeOf(uint8(len(value)), nil)}}
	case 6:
		return &types.AttributeValueMemberN{Value: strconv.Itoa(len(value))}
	}
	return nil
}

// Whatever is in an item: reading gives a record, or says that it cannot be read or is not there, and never panics.
func FuzzRecord(f *testing.F) {
	inAnHour := time.Now().Add(time.Hour)
	write := []func(context.Context, store.Store) error{
		func(ctx context.Context, st store.Store) error { return st.CreateSession(ctx, storetest.NewSession()) },
		func(ctx context.Context, st store.Store) error {
			return st.CreateExchange(ctx, storetest.NewExchange())
		},
		func(ctx context.Context, st store.Store) error {
			return st.AppendEvent(ctx, "x", store.Event{Seq: 1, Data: []byte("event")}, inAnHour)
		},
		func(ctx context.Context, st store.Store) error {
			return st.AppendEvent(ctx, "x", store.Event{Seq: store.Final, Data: make([]byte, 800<<10)}, inAnHour)
		},
		func(ctx context.Context, st store.Store) error {
			return st.PutAnswer(ctx, "x", "q", []byte("answer"), inAnHour)
		},
	}
	for record := range write {
		for at := range uint8(14) {
			f.Add(uint8(record), at, uint8(1), []byte("7"), at+1, uint8(2), []byte("x"))
			f.Add(uint8(record), at, uint8(7), []byte(nil), at, uint8(7), []byte(nil))
			f.Add(uint8(record), at, uint8(5), []byte("xx"), at, uint8(1), []byte("9223372036854775808"))
		}
	}
	f.Fuzz(func(t *testing.T, record, at, kind uint8, value []byte, alsoAt, alsoKind uint8, alsoValue []byte) {
		c := &tape{}
		st, ctx := dynamo.New(c, "t"), t.Context()
		require.NoError(t, write[int(record)%len(write)](ctx, st))
		names := append(slices.Sorted(maps.Keys(c.item)), "deleted", "upload", "parts", "n")
		for _, change := range []struct {
			at, kind uint8
			value    []byte
		}{{at, kind, value}, {alsoAt, alsoKind, alsoValue}} {
			name := names[int(change.at)%len(names)]
			if name == "pk" || name == "sk" {
				continue // the database does not give what was not asked for
			}
			if v := attributeOf(change.kind, change.value); v != nil {
				c.item[name] = v
			} else {
				delete(c.item, name)
			}
		}
		drivertest.ReadAll(t, st)
	})
}
