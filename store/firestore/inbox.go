package firestore

import (
	"context"
	"time"

	"cloud.google.com/go/firestore"

	"github.com/hydrant-mcp/hydrant/store"
)

func (st *Store) answer(exchange, question string) *firestore.DocumentRef {
	return st.exchanges.Doc(answerPrefix(exchange) + digest(question))
}

func answerPrefix(exchange string) string { return digest(exchange) + "-answer-" }

// PutAnswer implements [store.Store]. It is one write, one write for each part of an answer that is split, and one read
// when the slot is filled.
func (st *Store) PutAnswer(ctx context.Context, exchange, question string, answer []byte, expires time.Time) error {
	const op = "firestore: put answer"
	if len(answer) > store.MaxAnswer {
		return store.Wrap(op, store.ErrTooLarge, nil)
	}
	slot, err := st.payloadFields(ctx, op, answer, expires)
	if err != nil {
		return err
	}
	_, err = st.create(ctx, op, st.answer(exchange, question), slot)
	return err
}

// Answer implements [store.Store]. It is one read, and one more for an answer that is split.
func (st *Store) Answer(ctx context.Context, exchange, question string) ([]byte, error) {
	const op = "firestore: get answer"
	snap, err := st.get(ctx, op, st.answer(exchange, question))
	if err != nil {
		return nil, err
	}
	if snap == nil {
		return nil, store.Wrap(op, store.ErrNotFound, nil)
	}
	r := read(snap)
	if r.expired() && r.err == nil {
		return nil, store.Wrap(op, store.ErrNotFound, nil)
	}
	return st.payload(ctx, op, r)
}
