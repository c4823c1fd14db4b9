// Package memory keeps Hydrant's records in the memory of one process: for tests, for local use, and for a server that
// runs as a single instance and may forget its sessions when it restarts.
package memory

import (
	"context"
	"sync"
	"time"

	"github.com/hydrant-mcp/hydrant/store"
)

// sweepEvery is how often a write looks for records that have expired. There is no goroutine for it: a store that
// nobody writes to does not grow either.
const sweepEvery = time.Minute

// A Store is a [store.Store] in memory. Handlers in one process share it by sharing the pointer. What goes in and what
// comes out are copies.
type Store struct {
	mu        sync.Mutex
	sessions  map[string]*session
	exchanges map[string]*exchange
	outboxes  map[string]*outbox
	answers   map[store.Slot]*answer
	topics    map[string]*topic
	watches   map[thing]map[*watch]struct{}
	revision  int64 // the last one given to a session or an exchange
	nextSweep time.Time
}

var (
	_ store.Store   = (*Store)(nil)
	_ store.Watcher = (*Store)(nil)
)

// New returns an empty store.
func New() *Store {
	return &Store{
		sessions:  make(map[string]*session),
		exchanges: make(map[string]*exchange),
		outboxes:  make(map[string]*outbox),
		answers:   make(map[store.Slot]*answer),
		topics:    make(map[string]*topic),
		watches:   make(map[thing]map[*watch]struct{}),
		nextSweep: time.Now().Add(sweepEvery),
	}
}

// sweep forgets what has expired, once in a while. The caller holds the lock.
func (st *Store) sweep() {
	now := time.Now()
	if now.Before(st.nextSweep) {
		return
	}
	st.nextSweep = now.Add(sweepEvery)
	for key, r := range st.sessions {
		if store.Expired(r.Expires, now) {
			delete(st.sessions, key)
		}
	}
	for key, r := range st.exchanges {
		if store.Expired(r.Expires, now) {
			delete(st.exchanges, key)
		}
	}
	for exchange, box := range st.outboxes {
		if store.Expired(box.expires, now) {
			delete(st.outboxes, exchange)
		}
	}
	for key, a := range st.answers {
		if store.Expired(a.expires, now) {
			delete(st.answers, key)
		}
	}
	for name, t := range st.topics {
		if store.Expired(t.expires, now) {
			delete(st.topics, name)
		}
	}
}

type topic struct {
	version int64
	expires time.Time
}

// RaiseTopic implements [store.Store].
func (st *Store) RaiseTopic(ctx context.Context, name string) error {
	if err := store.WrapContext(ctx, "memory: raise topic"); err != nil {
		return err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.sweep()
	now := time.Now()
	t := st.topics[name]
	if t == nil {
		t = &topic{version: now.UnixMilli()}
		st.topics[name] = t
	}
	t.version++
	t.expires = now.Add(store.TopicLife)
	st.signal(watchedTopic, name)
	return nil
}

// TopicVersions implements [store.Store].
func (st *Store) TopicVersions(ctx context.Context, topics []string) (map[string]int64, error) {
	if err := store.WrapContext(ctx, "memory: read topics"); err != nil {
		return nil, err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	versions := make(map[string]int64, len(topics))
	for _, name := range topics {
		versions[name] = 0
		if t := st.topics[name]; t != nil {
			versions[name] = t.version
		}
	}
	return versions, nil
}
