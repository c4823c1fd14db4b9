package firestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"cloud.google.com/go/firestore"
	"google.golang.org/api/iterator"
	"google.golang.org/grpc/codes"

	"github.com/hydrant-mcp/hydrant/store"
)

const (
	pageBytes  = 4 << 20 // ends a page of events that has no other limit
	pageEvents = 300     // the most that is asked for in one go
)

// event's ids sort as the positions do.
func (st *Store) event(exchange string, seq int64) *firestore.DocumentRef {
	return st.exchange(exchange).Collection(st.events).Doc(fmt.Sprintf("%019d", seq))
}

// AppendEvent implements [store.Store]. It is one write, and one read when the position is taken; for an event that is split
// it is one read, and if the position is free one write more for each part.
func (st *Store) AppendEvent(ctx context.Context, exchange string, e store.Event, expires time.Time) error {
	const op = "firestore: append event"
	if len(e.Data) > store.MaxEvent {
		return store.Wrap(op, store.ErrTooLarge, nil)
	}
	doc := st.event(exchange, e.Seq)
	event, taken, err := st.payloadFields(ctx, op, doc, e.Data, expires)
	if err != nil {
		return err
	}
	if taken == nil {
		_, code, err := st.write(ctx, op, func(ctx context.Context) (*firestore.WriteResult, error) {
			return doc.Create(ctx, event)
		}, codes.AlreadyExists)
		if err != nil || code == codes.OK {
			return err
		}
		if taken, err = st.get(ctx, op, doc); err != nil {
			return err
		}
	}
	if taken != nil {
		if sum, _ := taken.Data()[fieldDigest].([]byte); bytes.Equal(sum, event[fieldDigest].([]byte)) {
			return nil
		}
	}
	return store.Wrap(op, store.ErrConflict, nil)
}

// Events implements [store.Store]. It is one query, and a read for each event that is split.
func (st *Store) Events(ctx context.Context, exchange string, after int64, limit int) ([]store.Event, error) {
	const op = "firestore: read events"
	if after == store.Final {
		return nil, nil
	}
	if limit <= 0 || limit > pageEvents {
		limit = pageEvents
	}
	for {
		events, gap, err := st.query(ctx, op, exchange, after, limit)
		if err != nil || !gap {
			return events, err
		}
		// The final event may be behind what comes after the gap. What is in the gap is read with it: one that was
		// written since the query is to come first.
		next := after + 1
		if len(events) > 0 {
			next = events[len(events)-1].Seq + 1
		}
		snaps, err := st.getAll(ctx, op, []*firestore.DocumentRef{st.event(exchange, next), st.event(exchange, store.Final)})
		if err != nil {
			return nil, err
		}
		switch {
		case alive(snaps[0]) && len(events) > 0:
			return events, nil
		case alive(snaps[0]):
			continue
		case !alive(snaps[1]):
			return events, nil
		}
		final, err := st.payload(ctx, op, read(snaps[1]))
		if err != nil {
			return nil, err
		}
		return append(events, store.Event{Seq: store.Final, Data: final}), nil
	}
}

func alive(snap *firestore.DocumentSnapshot) bool {
	if snap == nil {
		return false
	}
	r := read(snap)
	return !r.expired() || r.err != nil // what is corrupt is not missing
}

// query reads the events that follow a position without a gap, and the final one if it is the next that there is. It
// says whether another one is. The database's answer is a snapshot: that it has the final event and not one before means
// that the one before was never written.
func (st *Store) query(ctx context.Context, op, exchange string, after int64, limit int) ([]store.Event, bool, error) {
	bounded, cancel := context.WithTimeout(ctx, st.timeout)
	defer cancel()
	next := st.event(exchange, after+1)
	docs := next.Parent.OrderBy(firestore.DocumentID, firestore.Asc).StartAt(next.ID).Limit(limit).Documents(bounded)
	defer docs.Stop()
	var events []store.Event
	size := 0
	for size < pageBytes {
		snap, err := docs.Next()
		if errors.Is(err, iterator.Done) {
			break
		}
		if err != nil {
			return nil, false, st.failure(ctx, op, err)
		}
		seq, err := strconv.ParseInt(snap.Ref.ID, 10, 64)
		if err != nil {
			return nil, false, corrupt(op, errors.New("a document's id has no position"))
		}
		r := read(snap)
		expired := r.expired()
		if r.err != nil {
			return nil, false, corrupt(op, r.err)
		}
		if expired || seq != after+1 && seq != store.Final {
			return events, seq != store.Final, nil
		}
		data, err := st.payload(ctx, op, r)
		if err != nil {
			return nil, false, err
		}
		events = append(events, store.Event{Seq: seq, Data: data})
		after = seq
		size += len(data)
	}
	return events, false, nil
}
