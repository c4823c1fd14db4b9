package firestore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cloud.google.com/go/firestore"
	"cloud.google.com/go/firestore/apiv1/firestorepb"
	"google.golang.org/protobuf/proto"

	"github.com/hydrant-mcp/hydrant/store"
)

const beginTimeout = 5 * time.Second // of all of a watch's listeners

// Watch implements [store.Watcher]. All watches of a store share a few streams on a connection of their own. The database
// bills a read for each document that is there when listening to it begins, and one for each change, however many watch
// the same.
//
// A store listens to 8,000 documents and ranges of documents at the most. A watch that would need more is
// [store.ErrThrottled]: look now and then instead.
func (st *Store) Watch(ctx context.Context, w store.Watched, changed func()) error {
	const op = "firestore: watch"
	if err := store.WrapContext(ctx, op); err != nil {
		return err
	}
	targets, err := st.targets(w)
	if err != nil {
		return st.failure(ctx, op, err)
	}
	if len(targets) == 0 {
		return nil
	}
	own := &watch{began: make(chan error, len(targets)), pending: make(chan struct{}, 1)}
	if err := st.listening.join(own, targets); errors.Is(err, errTooManyTargets) {
		return store.Wrap(op, store.ErrThrottled, err)
	} else if err != nil {
		return st.failure(ctx, op, err)
	}
	if err := st.begin(ctx, op, own.began, len(targets)); err != nil {
		st.listening.leave(own)
		return err
	}
	go func() {
		defer st.listening.leave(own)
		for {
			select {
			case <-ctx.Done():
				return
			case <-own.pending:
			}
			if ctx.Err() != nil {
				return
			}
			changed()
		}
	}()
	return nil
}

// begin waits until every listener has begun, or the first has failed.
func (st *Store) begin(ctx context.Context, op string, began <-chan error, listeners int) error {
	bounded, cancel := context.WithTimeout(ctx, min(beginTimeout, st.timeout))
	defer cancel()
	for range listeners {
		select {
		case err := <-began:
			if err != nil {
				return st.failure(ctx, op, err)
			}
		case <-bounded.Done():
			return st.failure(ctx, op, bounded.Err())
		}
	}
	return nil
}

// targets gives what the database is to listen to, by a name for each.
func (st *Store) targets(w store.Watched) (map[string]*firestorepb.Target, error) {
	targets := map[string]*firestorepb.Target{}
	document := func(doc *firestore.DocumentRef) {
		targets[doc.Path] = &firestorepb.Target{TargetType: &firestorepb.Target_Documents{
			Documents: &firestorepb.Target_DocumentsTarget{Documents: []string{doc.Path}},
		}}
	}
	between := func(first, last string) error {
		query := st.exchanges.OrderBy(firestore.DocumentID, firestore.Asc).StartAt(first).EndAt(last)
		serialized, err := query.Serialize()
		if err != nil {
			return err
		}
		var run firestorepb.RunQueryRequest
		if err := proto.Unmarshal(serialized, &run); err != nil {
			return err
		}
		targets[first] = &firestorepb.Target{TargetType: &firestorepb.Target_Query{Query: &firestorepb.Target_QueryTarget{
			Parent:    run.GetParent(),
			QueryType: &firestorepb.Target_QueryTarget_StructuredQuery{StructuredQuery: run.GetStructuredQuery()},
		}}}
		return nil
	}
	if w.Session != "" {
		document(st.sessions.Doc(w.Session))
	}
	for _, slot := range w.Slots {
		document(st.answer(slot.Exchange, slot.Question))
	}
	for _, topic := range w.Topics {
		document(st.topic(topic))
	}
	if w.Exchange != "" {
		// The final event comes again to one who has read it: no position is behind it.
		first := st.event(w.Exchange, min(w.After, store.Final-1)+1)
		if err := between(first.ID, st.exchange(w.Exchange).ID); err != nil {
			return nil, fmt.Errorf("listening to an exchange: %w", err)
		}
	}
	return targets, nil
}
