package dynamo

import (
	"context"
	"errors"
	"time"

	"github.com/hydrant-mcp/hydrant/store"
)

func answerItem(exchange, question string) item {
	return newItem(exchangeKey(exchange), "a#"+digest(question))
}

// PutAnswer implements [store.Store]. It is one conditional write; for an answer that is split it is one read, and if the
// slot is empty one write more for each part.
func (st *Store) PutAnswer(ctx context.Context, exchange, question string, answer []byte, expires time.Time) error {
	const op = "dynamo: put answer"
	if len(answer) > store.MaxAnswer {
		return store.Wrap(op, store.ErrTooLarge, nil)
	}
	it := answerItem(exchange, question)
	taken, err := st.setPayload(ctx, op, it, answer, expires)
	if err != nil {
		return err
	}
	if taken != nil {
		return store.Wrap(op, store.ErrExists, nil)
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
	return st.answer(ctx, op, r)
}

// answer gives the answer in an item.
func (st *Store) answer(ctx context.Context, op string, r *reader) ([]byte, error) {
	if r.expired() && r.err == nil {
		return nil, store.Wrap(op, store.ErrNotFound, nil)
	}
	return st.payload(ctx, op, r)
}

// Look implements [store.Store]. It is one strongly consistent batch, and one more for each answer that is split; each
// item costs what reading it alone does.
func (st *Store) Look(ctx context.Context, key string, slots []store.Slot) (
	*store.Session, map[store.Slot][]byte, error,
) {
	const op = "dynamo: look"
	var keys []item
	if key != "" {
		keys = append(keys, sessionItem(key))
	}
	own := len(keys)
	for _, slot := range slots {
		keys = append(keys, answerItem(slot.Exchange, slot.Question))
	}
	items, err := st.getBatch(ctx, op, keys)
	if err != nil {
		return nil, nil, err
	}
	var s *store.Session
	if key != "" && items[0] != nil {
		s, err = session(op, key, read(items[0]))
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, nil, err
		}
	}
	answers := map[store.Slot][]byte{}
	for i, it := range items[own:] {
		if it == nil {
			continue
		}
		answer, err := st.answer(ctx, op, read(it))
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
