package firestore

import (
	"context"
	"errors"
	"time"

	"cloud.google.com/go/firestore"
	"cloud.google.com/go/firestore/apiv1/firestorepb"

	"github.com/hydrant-mcp/hydrant/store"
)

const (
	beginTimeout = 2 * time.Second // of a watch
	// slowFor is how long no watch is tried after one of which nothing had begun in time: whoever wants one waits for it.
	slowFor = 10 * time.Second
)

// Watch implements [store.Watcher]. All watches of a store share a few streams on a connection of their own. The database
// bills a read for each document that is there when listening to it begins, and one for each change, however many watch
// the same.
//
// A store listens to 8,000 documents at the most. A watch that would need more is
// [store.ErrThrottled]: look now and then instead.
func (st *Store) Watch(ctx context.Context, w store.Watched, changed func()) error {
	const op = "firestore: watch"
	if err := store.WrapContext(ctx, op); err != nil {
		return err
	}
	targets := st.targets(w)
	if len(targets) == 0 {
		return nil
	}
	since := time.Now()
	own := newWatch(len(targets))
	if err := st.listening.join(own, targets); errors.Is(err, errTooManyTargets) {
		return store.Wrap(op, store.ErrThrottled, err)
	} else if err != nil {
		return st.failure(ctx, op, err)
	}
	if err := st.begin(ctx, op, own.began, len(targets), since); err != nil {
		st.listening.leave(own)
		return err
	}
	go func() {
		defer st.listening.leave(own)
		lost := own.lost
		if w.Lost == nil {
			lost = nil
		}
		for {
			tell := changed
			select {
			case <-ctx.Done():
				return
			case <-own.pending:
			case <-lost:
				tell, lost = w.Lost, nil
			}
			if ctx.Err() != nil {
				return
			}
			tell()
		}
	}()
	return nil
}

// begin waits until every listener of a watch that has joined then has begun, or the first has failed.
func (st *Store) begin(ctx context.Context, op string, began <-chan error, listeners int, since time.Time) error {
	bounded, cancel := context.WithTimeout(ctx, min(beginTimeout, st.timeout))
	defer cancel()
	for range listeners {
		select {
		case err := <-began:
			if err != nil {
				return st.failure(ctx, op, err)
			}
		case <-bounded.Done():
			if ctx.Err() == nil {
				st.listening.slow(since)
			}
			return st.failure(ctx, op, bounded.Err())
		}
	}
	return nil
}

// targets gives the documents that the database is to listen to, by their names. None of them has to exist.
func (st *Store) targets(w store.Watched) map[string]*firestorepb.Target {
	var docs []*firestore.DocumentRef
	if w.Session != "" {
		docs = append(docs, st.sessions.Doc(w.Session))
	}
	if w.Exchange != "" {
		docs = append(docs, st.exchange(w.Exchange))
		if w.After < store.Final {
			docs = append(docs, st.event(w.Exchange, w.After+1), st.event(w.Exchange, store.Final))
		}
	}
	for _, slot := range w.Slots {
		docs = append(docs, st.answer(slot.Exchange, slot.Question))
	}
	for _, topic := range w.Topics {
		docs = append(docs, st.topic(topic))
	}
	targets := make(map[string]*firestorepb.Target, len(docs))
	for _, doc := range docs {
		targets[doc.Path] = &firestorepb.Target{TargetType: &firestorepb.Target_Documents{
			Documents: &firestorepb.Target_DocumentsTarget{Documents: []string{doc.Path}},
		}}
	}
	return targets
}
