package dynamo

import (
	"context"
	"errors"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/hydrant-mcp/hydrant/store"
)

func answerItem(exchange, question string) item {
	return newItem(exchangeKey(exchange), "a#"+digest(question))
}

// PutAnswer implements [store.Store]. It is one conditional write, and one write for each part of an answer that is
// split.
func (st *Store) PutAnswer(ctx context.Context, exchange, question string, answer []byte, expires time.Time) error {
	const op = "dynamo: put answer"
	if len(answer) > store.MaxAnswer {
		return store.Wrap(op, store.ErrTooLarge, nil)
	}
	it := answerItem(exchange, question)
	if err := st.setPayload(ctx, op, it, answer, expires); err != nil {
		return err
	}
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

// Answer implements [store.Store]. It is one strongly consistent read, and a batch for an answer that is split.
func (st *Store) Answer(ctx context.Context, exchange, question string) ([]byte, error) {
	const op = "dynamo: get answer"
	out, err := call(ctx, st, op, st.client.GetItem, &dynamodb.GetItemInput{
		TableName:      &st.table,
		Key:            answerItem(exchange, question),
		ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		return nil, err
	}
	if len(out.Item) == 0 {
		return nil, store.Wrap(op, store.ErrNotFound, nil)
	}
	r := read(out.Item)
	if r.expired() && r.err == nil {
		return nil, store.Wrap(op, store.ErrNotFound, nil)
	}
	return st.payload(ctx, op, r)
}
