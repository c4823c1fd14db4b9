package firestore

import (
	"context"
	"encoding/json"
	"time"

	"cloud.google.com/go/firestore"
	"google.golang.org/grpc/codes"

	"github.com/hydrant-mcp/hydrant/store"
)

// The fields of a session. When it ends is fieldTTL.
const (
	fieldPrincipal   = "principal"
	fieldProtocol    = "protocol"
	fieldParams      = "params"
	fieldCreated     = "created"
	fieldInitialized = "initialized"
	fieldLevel       = "level"
	fieldSubscribed  = "subscribed"
	fieldCancels     = "cancels"
	fieldCancelled   = "cancelled"
	fieldDeleted     = "deleted"
)

// CreateSession implements [store.Store]. It is one write, and one read when the document exists.
func (st *Store) CreateSession(ctx context.Context, s *store.Session) error {
	const op = "firestore: create session"
	if s.Size() > store.MaxSession {
		return store.Wrap(op, store.ErrTooLarge, nil)
	}
	first, err := st.createRecord(ctx, op, st.sessions.Doc(s.Key), s.Expires, fields{
		fieldPrincipal:   s.Principal,
		fieldProtocol:    s.ProtocolVersion,
		fieldParams:      filled(s.InitializeParams),
		fieldCreated:     s.Created,
		fieldInitialized: s.Initialized,
		fieldLevel:       s.LogLevel,
		fieldSubscribed:  list(s.Subscriptions),
		fieldCancels:     s.Cancels,
		fieldCancelled:   list(s.Cancelled),
	})
	if err != nil {
		return err
	}
	s.Revision = first
	return nil
}

// Session implements [store.Store]. It is one read.
func (st *Store) Session(ctx context.Context, key string) (*store.Session, error) {
	const op = "firestore: get session"
	snap, err := st.get(ctx, op, st.sessions.Doc(key))
	if err != nil {
		return nil, err
	}
	if snap == nil {
		return nil, store.Wrap(op, store.ErrNotFound, nil)
	}
	return session(op, key, snap)
}

// session decodes a session.
func session(op, key string, snap *firestore.DocumentSnapshot) (*store.Session, error) {
	r := read(snap)
	if r.has(fieldDeleted) && get[bool](r, fieldDeleted) && r.err == nil {
		return nil, store.Wrap(op, store.ErrNotFound, nil)
	}
	s := &store.Session{
		Key:              key,
		Principal:        get[string](r, fieldPrincipal),
		ProtocolVersion:  get[string](r, fieldProtocol),
		InitializeParams: json.RawMessage(get[[]byte](r, fieldParams)),
		Initialized:      get[bool](r, fieldInitialized),
		LogLevel:         get[string](r, fieldLevel),
		Subscriptions:    r.texts(fieldSubscribed),
		Cancels:          get[int64](r, fieldCancels),
		Cancelled:        r.texts(fieldCancelled),
		Created:          get[time.Time](r, fieldCreated),
		Expires:          get[time.Time](r, fieldTTL),
	}
	if r.err != nil {
		return nil, corrupt(op, r.err)
	}
	now := revision{snap.UpdateTime, s.Expires.UnixMicro()}
	if now.expired() {
		return nil, store.Wrap(op, store.ErrNotFound, nil)
	}
	s.Revision = now
	return s, nil
}

// UpdateSession implements [store.Store]. It is one write of the fields that may change, and one read on a conflict.
func (st *Store) UpdateSession(ctx context.Context, s *store.Session) error {
	const op = "firestore: update session"
	if s.Size() > store.MaxSession {
		return store.Wrap(op, store.ErrTooLarge, nil)
	}
	fresh, err := st.updateRecord(ctx, op, st.sessions.Doc(s.Key), s.Revision, s.Expires, fields{
		fieldInitialized: s.Initialized,
		fieldLevel:       s.LogLevel,
		fieldSubscribed:  list(s.Subscriptions),
		fieldCancels:     s.Cancels,
		fieldCancelled:   list(s.Cancelled),
	})
	if err != nil {
		return err
	}
	s.Revision = fresh
	return nil
}

// DeleteSession implements [store.Store]. It is one write, and one read when there is no document: what the client told
// us goes at once, the rest stays as a tombstone until its time to live passes.
func (st *Store) DeleteSession(ctx context.Context, key string) error {
	const op = "firestore: delete session"
	doc := st.sessions.Doc(key)
	_, code, err := st.write(ctx, op, func(ctx context.Context) (*firestore.WriteResult, error) {
		updates := []firestore.Update{{Path: fieldDeleted, Value: true}, {Path: fieldMark, Value: newMark()}}
		for _, field := range []string{fieldPrincipal, fieldProtocol, fieldParams, fieldCreated, fieldInitialized,
			fieldLevel, fieldSubscribed, fieldCancels, fieldCancelled} {
			updates = append(updates, firestore.Update{Path: field, Value: firestore.Delete})
		}
		return doc.Update(ctx, updates)
	}, codes.NotFound)
	if err != nil || code == codes.OK {
		return err
	}
	// No such document, or no such database.
	if _, err := st.get(ctx, op, doc); err != nil {
		return err
	}
	return store.Wrap(op, store.ErrNotFound, nil)
}
