package memory

import (
	"context"

	"github.com/hydrant-mcp/hydrant/store"
)

type kind int

const (
	watchedSession kind = iota
	watchedExchange
	watchedSlot
	watchedTopic
)

// A thing is what a watch can be told of.
type thing struct {
	kind
	key string
}

func slotKey(s store.Slot) string { return s.Exchange + "\x00" + s.Question }

// A watch has room for one signal: more of them, before it has been looked at, are the same one.
type watch struct{ pending chan struct{} }

// Watch implements [store.Watcher]. Every change is told, and nothing else; no watch is ever lost.
func (st *Store) Watch(ctx context.Context, w store.Watched, changed func()) error {
	if err := store.WrapContext(ctx, "memory: watch"); err != nil {
		return err
	}
	things := make(map[thing]struct{})
	if w.Session != "" {
		things[thing{watchedSession, w.Session}] = struct{}{}
	}
	if w.Exchange != "" {
		things[thing{watchedExchange, w.Exchange}] = struct{}{}
	}
	for _, s := range w.Slots {
		things[thing{watchedSlot, slotKey(s)}] = struct{}{}
	}
	for _, topic := range w.Topics {
		things[thing{watchedTopic, topic}] = struct{}{}
	}
	if len(things) == 0 {
		return nil
	}
	own := &watch{make(chan struct{}, 1)}
	st.mu.Lock()
	for th := range things {
		if st.watches[th] == nil {
			st.watches[th] = make(map[*watch]struct{})
		}
		st.watches[th][own] = struct{}{}
	}
	st.mu.Unlock()
	go func() {
		defer st.forget(own, things)
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

func (st *Store) forget(own *watch, things map[thing]struct{}) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for th := range things {
		delete(st.watches[th], own)
		if len(st.watches[th]) == 0 {
			delete(st.watches, th)
		}
	}
}

// signal tells those who watch a thing that it has changed. The caller holds the lock.
func (st *Store) signal(k kind, key string) {
	for w := range st.watches[thing{k, key}] {
		select {
		case w.pending <- struct{}{}:
		default:
		}
	}
}
