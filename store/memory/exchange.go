package memory

import (
	"bytes"
	"context"
	"time"

	"github.com/hydrant-mcp/hydrant/store"
)

// pageBytes ends a page of events that has no other limit.
const pageBytes = 4 << 20

// An exchange is a record as it is kept.
type exchange struct {
	store.Exchange
	revision int64
}

type outbox struct {
	events  map[int64][]byte
	expires time.Time // of the event that lives longest
}

type answer struct {
	data    []byte
	expires time.Time
}

// CreateExchange implements [store.Exchanges].
func (st *Store) CreateExchange(ctx context.Context, x *store.Exchange) error {
	const op = "memory: create exchange"
	if err := store.WrapContext(ctx, op); err != nil {
		return err
	}
	if len(x.Data) > store.MaxExchangeData {
		return store.Wrap(op, store.ErrTooLarge, nil)
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.sweep()
	if st.exchanges[x.Key] != nil {
		return store.Wrap(op, store.ErrExists, nil)
	}
	st.revision++
	r := &exchange{*x, st.revision}
	r.Data, r.Revision = bytes.Clone(x.Data), nil
	st.exchanges[x.Key] = r
	x.Revision = r.revision
	st.signal(watchedExchange, x.Key)
	return nil
}

// Exchange implements [store.Exchanges].
func (st *Store) Exchange(ctx context.Context, key string) (*store.Exchange, error) {
	const op = "memory: get exchange"
	if err := store.WrapContext(ctx, op); err != nil {
		return nil, err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	r := st.exchanges[key]
	if !r.alive() {
		return nil, store.Wrap(op, store.ErrNotFound, nil)
	}
	x := r.Exchange
	x.Data, x.Revision = bytes.Clone(r.Data), r.revision
	return &x, nil
}

// UpdateExchange implements [store.Exchanges].
func (st *Store) UpdateExchange(ctx context.Context, x *store.Exchange) error {
	const op = "memory: update exchange"
	if err := store.WrapContext(ctx, op); err != nil {
		return err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.sweep()
	r := st.exchanges[x.Key]
	if !r.alive() || x.Revision != r.revision {
		return store.Wrap(op, store.ErrConflict, nil)
	}
	r.State, r.Round, r.Owner, r.Lease, r.Expires = x.State, x.Round, x.Owner, x.Lease, x.Expires
	st.revision++
	r.revision = st.revision
	x.Revision = r.revision
	st.signal(watchedExchange, x.Key)
	return nil
}

func (r *exchange) alive() bool { return r != nil && !store.Expired(r.Expires, time.Now()) }

// AppendEvent implements [store.Store].
func (st *Store) AppendEvent(ctx context.Context, exchange string, e store.Event, expires time.Time) error {
	const op = "memory: append event"
	if err := store.WrapContext(ctx, op); err != nil {
		return err
	}
	if len(e.Data) > store.MaxEvent {
		return store.Wrap(op, store.ErrTooLarge, nil)
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.sweep()
	box := st.outboxes[exchange]
	if box == nil {
		box = &outbox{events: make(map[int64][]byte)}
		st.outboxes[exchange] = box
	}
	if data, taken := box.events[e.Seq]; taken {
		if !bytes.Equal(data, e.Data) {
			return store.Wrap(op, store.ErrConflict, nil)
		}
		return nil
	}
	box.events[e.Seq] = copied(e.Data)
	if expires.After(box.expires) {
		box.expires = expires
	}
	st.signal(watchedExchange, exchange)
	return nil
}

// Events implements [store.Store].
func (st *Store) Events(ctx context.Context, exchange string, after int64, limit int) ([]store.Event, error) {
	if err := store.WrapContext(ctx, "memory: read events"); err != nil {
		return nil, err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	box := st.outboxes[exchange]
	if box == nil || after == store.Final {
		return nil, nil
	}
	var events []store.Event
	size := 0
	full := func() bool { return limit > 0 && len(events) >= limit || len(events) > 0 && size >= pageBytes }
	for seq := after + 1; seq < store.Final && !full(); seq++ {
		data, ok := box.events[seq]
		if !ok {
			break
		}
		events = append(events, store.Event{Seq: seq, Data: copied(data)})
		size += len(data)
	}
	if data, ok := box.events[store.Final]; ok && !full() {
		events = append(events, store.Event{Seq: store.Final, Data: copied(data)})
	}
	return events, nil
}

// PutAnswer implements [store.Store].
func (st *Store) PutAnswer(ctx context.Context, exchange, question string, data []byte, expires time.Time) error {
	const op = "memory: put answer"
	if err := store.WrapContext(ctx, op); err != nil {
		return err
	}
	if len(data) > store.MaxAnswer {
		return store.Wrap(op, store.ErrTooLarge, nil)
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.sweep()
	key := store.Slot{Exchange: exchange, Question: question}
	if st.answers[key] != nil {
		return store.Wrap(op, store.ErrExists, nil)
	}
	st.answers[key] = &answer{copied(data), expires}
	st.signal(watchedSlot, slotKey(key))
	st.signal(watchedExchange, exchange)
	return nil
}

// Answer implements [store.Store].
func (st *Store) Answer(ctx context.Context, exchange, question string) ([]byte, error) {
	const op = "memory: get answer"
	if err := store.WrapContext(ctx, op); err != nil {
		return nil, err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	a := st.answers[store.Slot{Exchange: exchange, Question: question}]
	if !a.alive() {
		return nil, store.Wrap(op, store.ErrNotFound, nil)
	}
	return copied(a.data), nil
}

func (a *answer) alive() bool { return a != nil && !store.Expired(a.expires, time.Now()) }

// Look implements [store.Store].
func (st *Store) Look(ctx context.Context, session string, slots []store.Slot) (
	*store.Session, map[store.Slot][]byte, error,
) {
	if err := store.WrapContext(ctx, "memory: look"); err != nil {
		return nil, nil, err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	answers := map[store.Slot][]byte{}
	for _, slot := range slots {
		if a := st.answers[slot]; a.alive() {
			answers[slot] = copied(a.data)
		}
	}
	return st.session(session), answers, nil
}

// copied never returns nil: what was stored as nothing comes back as nothing, and not as absent.
func copied(data []byte) []byte { return append(make([]byte, 0, len(data)), data...) }
