package firestore

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"cloud.google.com/go/firestore"

	"github.com/hydrant-mcp/hydrant/store"
)

const (
	// maxListeners is how many listeners a store has at the same time. Each is a stream on the client's connection, of
	// which there is one unless the client was given more; the database takes 100 streams on a connection, and every
	// other call waits for as long as they are taken.
	maxListeners = 80
	// topicsPerListener is the most values that the database takes in one "in".
	topicsPerListener = 30

	beginTimeout = 5 * time.Second // of all of a watch's listeners

	listenBackoff = time.Second // after a listener's failure; doubles up to listenMaxWait
	listenMaxWait = 30 * time.Second
)

var errTooManyListeners = errors.New("too many listeners at the same time")

// Watch implements [store.Watcher]. It is one listener for the session, one for all of the exchange's documents, and one
// for every 30 topics. The database bills a read for each document that is there when a listener begins, and one for each
// change.
//
// A store has 80 listeners at the most, because they share a connection with everything else. What would be more is
// [store.ErrThrottled]: look now and then instead.
func (st *Store) Watch(ctx context.Context, w store.Watched, changed func()) error {
	const op = "firestore: watch"
	if err := store.WrapContext(ctx, op); err != nil {
		return err
	}
	listeners := st.listeners(w)
	if len(listeners) == 0 {
		return nil
	}
	if n := int64(len(listeners)); st.listening.Add(n) > maxListeners {
		st.listening.Add(-n)
		return store.Wrap(op, store.ErrThrottled, errTooManyListeners)
	}
	// The goroutines are bound to this context, and it ends with ctx or when the watch does not begin.
	watching, stop := context.WithCancel(ctx)
	began := make(chan error, len(listeners))
	pending := make(chan struct{}, 1) // more signals, before the first has been told, are the same one
	for _, listen := range listeners {
		go func() {
			defer st.listening.Add(-1)
			keepListening(watching, listen, began, pending)
		}()
	}
	if err := st.begin(ctx, op, began, len(listeners)); err != nil {
		stop()
		return err
	}
	go func() {
		defer stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-pending:
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

// A listener opens a stream of snapshots, which ends with its context. What it returns waits for the next snapshot: the
// first comes at once.
type listener func(context.Context) (next func() error)

func (st *Store) listeners(w store.Watched) []listener {
	var listeners []listener
	if w.Session != "" {
		doc := st.sessions.Doc(w.Session)
		listeners = append(listeners, func(ctx context.Context) func() error {
			snapshots := doc.Snapshots(ctx)
			return func() error { _, err := snapshots.Next(); return err }
		})
	}
	if w.Exchange != "" {
		// The final event comes again to one who has read it: no position is behind it.
		first := st.event(w.Exchange, min(w.After, store.Final-1)+1)
		listeners = append(listeners, queryListener(st.exchanges.OrderBy(firestore.DocumentID, firestore.Asc).
			StartAt(first.ID).EndAt(st.exchange(w.Exchange).ID)))
	}
	if w.Inbox != "" {
		prefix := answerPrefix(w.Inbox)
		listeners = append(listeners, queryListener(st.exchanges.OrderBy(firestore.DocumentID, firestore.Asc).
			StartAt(prefix).EndAt(prefix+"~"))) // behind every digest
	}
	topics := slices.Clone(w.Topics)
	slices.Sort(topics)
	for chunk := range slices.Chunk(slices.Compact(topics), topicsPerListener) {
		docs := make([]*firestore.DocumentRef, len(chunk))
		for i, topic := range chunk {
			docs[i] = st.topic(topic)
		}
		listeners = append(listeners, queryListener(st.topics.Where(firestore.DocumentID, "in", docs)))
	}
	return listeners
}

func queryListener(query firestore.Query) listener {
	return func(ctx context.Context) func() error {
		snapshots := query.Snapshots(ctx)
		return func() error { _, err := snapshots.Next(); return err }
	}
}

// keepListening signals every snapshot but the first, until ctx ends. The client itself resumes a stream that breaks; one
// that fails for good is opened anew. It gives up only where the very first one fails.
func keepListening(ctx context.Context, listen listener, began chan<- error, pending chan<- struct{}) {
	first, backoff := true, listenBackoff
	for {
		err := follow(ctx, listen, func() {
			backoff = listenBackoff
			if first {
				first = false
				began <- nil
				return
			}
			select {
			case pending <- struct{}{}:
			default:
			}
		})
		if first {
			began <- err
			return
		}
		timer := time.NewTimer(backoff/2 + rand.N(backoff/2))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		backoff = min(2*backoff, listenMaxWait)
	}
}

// follow opens a stream and calls snapshot for each of its snapshots until it fails.
func follow(ctx context.Context, listen listener, snapshot func()) error {
	ctx, cancel := context.WithCancel(ctx) // the client leaves a stream that has failed as it is
	defer cancel()
	next := listen(ctx)
	for {
		if err := next(); err != nil {
			return err
		}
		snapshot()
	}
}
