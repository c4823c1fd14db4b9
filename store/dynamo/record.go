package dynamo

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/hydrant-mcp/hydrant/store"
)

// The attributes of a record: an item that is changed by compare-and-swap.
const (
	attrRevision = "rev"
	attrExpires  = "expires" // milliseconds since the epoch; the time to live is too coarse
)

// A revision is what a record was read with: the number that an update must find, and when what was read ends.
type revision struct{ number, expires int64 }

// revision decodes the revision of a record.
func (r *reader) revision() revision { return revision{r.number(attrRevision), r.number(attrExpires)} }

// createRecord writes an item as a record that ends then. It is one conditional write.
func (st *Store) createRecord(ctx context.Context, op string, it item, expires time.Time) (revision, error) {
	first := revision{1, expires.UnixMilli()}
	it[attrVersion] = number(store.SchemaVersion)
	it[attrRevision] = number(first.number)
	it[attrExpires] = number(first.expires)
	it[attrTTL] = number(seconds(expires))
	return first, st.create(ctx, op, it)
}

// updateRecord changes attributes of a record that has the revision of old and has not expired, and when it ends. It is
// one conditional write. What it does not name stays as it is.
func (st *Store) updateRecord(ctx context.Context, op string, key item, old any, expires time.Time, changed item) (
	revision, error,
) {
	read, ok := old.(revision)
	if !ok || store.Expired(time.UnixMilli(read.expires), time.Now()) {
		return revision{}, store.Wrap(op, store.ErrConflict, nil)
	}
	fresh := revision{read.number + 1, expires.UnixMilli()}
	changed = maps.Clone(changed)
	changed[attrRevision] = number(fresh.number)
	changed[attrExpires] = number(fresh.expires)
	changed[attrTTL] = number(seconds(expires))
	changed[attrMark] = binary(newMark())
	names, values, sets := make(map[string]string), item{":old": number(read.number)}, []string(nil)
	for _, name := range slices.Sorted(maps.Keys(changed)) {
		names["#"+name], values[":"+name] = name, changed[name]
		sets = append(sets, "#"+name+" = :"+name)
	}
	_, err := call(ctx, st, op, st.client.UpdateItem, &dynamodb.UpdateItemInput{
		TableName:                 &st.table,
		Key:                       key,
		UpdateExpression:          aws.String("SET " + strings.Join(sets, ", ")),
		ConditionExpression:       aws.String("#rev = :old OR #mark = :mark"),
		ExpressionAttributeNames:  names,
		ExpressionAttributeValues: values,
	})
	if errors.Is(err, errCondition) {
		return revision{}, store.Wrap(op, store.ErrConflict, nil)
	}
	return fresh, err
}

// create writes an item if there is none with its key. It is one conditional write.
func (st *Store) create(ctx context.Context, op string, it item) error {
	mark := binary(newMark())
	it[attrMark] = mark
	_, err := call(ctx, st, op, st.client.PutItem, &dynamodb.PutItemInput{
		TableName:                 &st.table,
		Item:                      it,
		ConditionExpression:       aws.String("attribute_not_exists(#pk) OR #mark = :mark"),
		ExpressionAttributeNames:  map[string]string{"#pk": attrPK, "#mark": attrMark},
		ExpressionAttributeValues: item{":mark": mark},
	})
	if errors.Is(err, errCondition) {
		return store.Wrap(op, store.ErrExists, nil)
	}
	return err
}

// get reads an item, strongly consistent. [store.ErrNotFound] when there is none.
func (st *Store) get(ctx context.Context, op string, key item) (*reader, error) {
	out, err := call(ctx, st, op, st.client.GetItem, &dynamodb.GetItemInput{
		TableName:      &st.table,
		Key:            key,
		ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		return nil, err
	}
	if len(out.Item) == 0 {
		return nil, store.Wrap(op, store.ErrNotFound, nil)
	}
	return read(out.Item), nil
}
