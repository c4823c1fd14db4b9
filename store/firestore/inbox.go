package firestore

import (
	"context"
	"errors"
	"time"

	"cloud.google.com/go/firestore"

	"github.com/hydrant-mcp/hydrant/store"
)

func (st *Store) answer(exchange, question string) *firestore.DocumentRef {
	return st.exchange(exchange).Collection(st.answers).Doc(digest(question))
}

// PutAnswer implements [store.Store]. It is one write, and one read when the slot is filled; for an answer that is split it
// is one read, and if the slot is empty one write more for each part.
func (st *Store) PutAnswer(ctx context.Context, exchange, question string, answer []byte, expires time.Time) error {
	const op = "firestore: put answer"
	if len(answer) > store.MaxAnswer {
		return store.Wrap(op, store.ErrTooLarge, nil)
	}
	doc := st.answer(exchange, question)
	slot, taken, err := st.payloadFields(ctx, op, doc, answer, expires)
	if err != nil {
		return err
	}
	if taken != nil {
		return store.Wrap(op, store.ErrExists, nil)
	}
	_, err = st.create(ctx, op, doc, slot)
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
	return st.answered(ctx, op, snap)
}

// answered gives the answer in a document.
func (st *Store) answered(ctx context.Context, op string, snap *firestore.DocumentSnapshot) ([]byte, error) {
	r := read(snap)
	if r.expired() && r.err == nil {
		return nil, store.Wrap(op, store.ErrNotFound, nil)
	}
	return st.payload(ctx, op, r)
}

// Look implements [store.Store]. It is one call that reads a document for each thing, and one more for each answer that is
// split.
func (st *Store) Look(ctx context.Context, key string, slots []store.Slot) (
	*store.Session, map[store.Slot][]byte, error,
) {
	const op = "firestore: look"
	var docs []*firestore.DocumentRef
	if key != "" {
		docs = append(docs, st.sessions.Doc(key))
	}
	own := len(docs)
	for _, slot := range slots {
		docs = append(docs, st.answer(slot.Exchange, slot.Question))
	}
	snaps, err := st.getAll(ctx, op, docs)
	if err != nil {
		return nil, nil, err
	}
	var s *store.Session
	if key != "" && snaps[0] != nil {
		s, err = session(op, key, snaps[0])
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, nil, err
		}
	}
	answers := map[store.Slot][]byte{}
	for i, snap := range snaps[own:] {
		if snap == nil {
			continue
		}
		answer, err := st.answered(ctx, op, snap)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		answers[slots[i]] = answer
	}
	return s, answers, nil
}
