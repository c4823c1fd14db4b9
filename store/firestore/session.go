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
	fieldDeleted     = "deleted"
)

// A revision is what a session was read with: the time that an update must find, and when what was read ends. The mark
// in every write makes sure that the time changes: a write that changes nothing would keep it.
type revision struct {
	updated time.Time
	expires int64 // microseconds since the epoch, as the database keeps it
}

func (r revision) expired() bool { return store.Expired(time.UnixMicro(r.expires), time.Now()) }

// CreateSession implements [store.Store]. It is one write, and one read when the document exists.
func (st *Store) CreateSession(ctx context.Context, s *store.Session) error {
	const op = "firestore: create session"
	if s.Size() > store.MaxSession {
		return store.Wrap(op, store.ErrTooLarge, nil)
	}
	doc, mark := st.sessions.Doc(s.Key), newMark()
	result, code, err := st.write(ctx, op, func(ctx context.Context) (*firestore.WriteResult, error) {
		return doc.Create(ctx, fields{
			fieldVersion:     store.SchemaVersion,
			fieldMark:        mark,
			fieldPrincipal:   s.Principal,
			fieldProtocol:    s.ProtocolVersion,
			fieldParams:      filled(s.InitializeParams),
			fieldCreated:     s.Created,
			fieldInitialized: s.Initialized,
			fieldLevel:       s.LogLevel,
			fieldSubscribed:  subscribed(s),
			fieldTTL:         s.Expires,
		})
	}, codes.AlreadyExists)
	if err != nil {
		return err
	}
	updated, err := st.updated(ctx, op, doc, mark, result, code, store.ErrExists)
	if err != nil {
		return err
	}
	s.Revision = revision{updated, s.Expires.UnixMicro()}
	return nil
}

// updated returns the update time of a write that succeeded, also if it did so in an attempt whose response was lost, so
// that its repetition failed on its precondition. otherwise is what it means if somebody else's write was in the way.
func (st *Store) updated(ctx context.Context, op string, doc *firestore.DocumentRef, mark []byte,
	result *firestore.WriteResult, code codes.Code, otherwise error,
) (time.Time, error) {
	if code == codes.OK {
		return result.UpdateTime, nil
	}
	snap, err := st.get(ctx, op, doc)
	if err != nil {
		return time.Time{}, err
	}
	if !marked(snap, mark) {
		return time.Time{}, store.Wrap(op, otherwise, nil)
	}
	return snap.UpdateTime, nil
}

// subscribed never returns nil, which the client stores as a null.
func subscribed(s *store.Session) []string { return append([]string{}, s.Subscriptions...) }

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
	old, ok := s.Revision.(revision)
	if !ok || old.expired() {
		return store.Wrap(op, store.ErrConflict, nil)
	}
	doc, mark := st.sessions.Doc(s.Key), newMark()
	result, code, err := st.write(ctx, op, func(ctx context.Context) (*firestore.WriteResult, error) {
		return doc.Update(ctx, []firestore.Update{
			{Path: fieldMark, Value: mark},
			{Path: fieldInitialized, Value: s.Initialized},
			{Path: fieldLevel, Value: s.LogLevel},
			{Path: fieldSubscribed, Value: subscribed(s)},
			{Path: fieldTTL, Value: s.Expires},
		}, firestore.LastUpdateTime(old.updated))
	}, codes.FailedPrecondition, codes.NotFound)
	if err != nil {
		return err
	}
	updated, err := st.updated(ctx, op, doc, mark, result, code, store.ErrConflict)
	if err != nil {
		return err
	}
	s.Revision = revision{updated, s.Expires.UnixMicro()}
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
			fieldLevel, fieldSubscribed} {
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
