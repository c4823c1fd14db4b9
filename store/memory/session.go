package memory

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/hydrant-mcp/hydrant/store"
)

// A session is a record as it is kept. A deleted one stays, emptied, until it expires, so that its key is not taken
// again.
type session struct {
	store.Session
	revision int64
	deleted  bool
}

// CreateSession implements [store.Store].
func (st *Store) CreateSession(ctx context.Context, s *store.Session) error {
	const op = "memory: create session"
	if err := store.WrapContext(ctx, op); err != nil {
		return err
	}
	if s.Size() > store.MaxSession {
		return store.Wrap(op, store.ErrTooLarge, nil)
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.sweep()
	if st.sessions[s.Key] != nil {
		return store.Wrap(op, store.ErrExists, nil)
	}
	st.revision++
	st.sessions[s.Key] = &session{Session: clone(s), revision: st.revision}
	s.Revision = st.revision
	st.signal(watchedSession, s.Key)
	return nil
}

// Session implements [store.Store].
func (st *Store) Session(ctx context.Context, key string) (*store.Session, error) {
	const op = "memory: get session"
	if err := store.WrapContext(ctx, op); err != nil {
		return nil, err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	s := st.session(key)
	if s == nil {
		return nil, store.Wrap(op, store.ErrNotFound, nil)
	}
	return s, nil
}

// session gives a copy of a session, nil when there is none. The caller holds the lock.
func (st *Store) session(key string) *store.Session {
	r := st.sessions[key]
	if !r.alive() {
		return nil
	}
	s := clone(&r.Session)
	s.Revision = r.revision
	return &s
}

// UpdateSession implements [store.Store].
func (st *Store) UpdateSession(ctx context.Context, s *store.Session) error {
	const op = "memory: update session"
	if err := store.WrapContext(ctx, op); err != nil {
		return err
	}
	if s.Size() > store.MaxSession {
		return store.Wrap(op, store.ErrTooLarge, nil)
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.sweep()
	r := st.sessions[s.Key]
	if !r.alive() || s.Revision != r.revision {
		return store.Wrap(op, store.ErrConflict, nil)
	}
	r.Initialized = s.Initialized
	r.LogLevel = s.LogLevel
	r.Subscriptions = slices.Clone(s.Subscriptions)
	r.Cancels = s.Cancels
	r.Cancelled = slices.Clone(s.Cancelled)
	r.Expires = s.Expires
	st.revision++
	r.revision = st.revision
	s.Revision = r.revision
	st.signal(watchedSession, s.Key)
	return nil
}

// DeleteSession implements [store.Store].
func (st *Store) DeleteSession(ctx context.Context, key string) error {
	const op = "memory: delete session"
	if err := store.WrapContext(ctx, op); err != nil {
		return err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.sweep()
	r := st.sessions[key]
	if !r.alive() {
		return store.Wrap(op, store.ErrNotFound, nil)
	}
	st.sessions[key] = &session{Session: store.Session{Expires: r.Expires}, deleted: true}
	st.signal(watchedSession, key)
	return nil
}

func (r *session) alive() bool {
	return r != nil && !r.deleted && !store.Expired(r.Expires, time.Now())
}

func clone(s *store.Session) store.Session {
	c := *s
	c.InitializeParams = bytes.Clone(s.InitializeParams)
	c.Subscriptions = slices.Clone(s.Subscriptions)
	c.Cancelled = slices.Clone(s.Cancelled)
	c.Revision = nil
	return c
}
