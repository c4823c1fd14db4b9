package dynamo

import (
	"context"
	"time"

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
	return st.create(ctx, op, it)
}

// Answer implements [store.Store]. It is one strongly consistent read, and a batch for an answer that is split.
func (st *Store) Answer(ctx context.Context, exchange, question string) ([]byte, error) {
	const op = "dynamo: get answer"
	r, err := st.get(ctx, op, answerItem(exchange, question))
	if err != nil {
		return nil, err
	}
	if r.expired() && r.err == nil {
		return nil, store.Wrap(op, store.ErrNotFound, nil)
	}
	return st.payload(ctx, op, r)
}
