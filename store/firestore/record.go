package firestore

import (
	"context"
	"time"

	"cloud.google.com/go/firestore"
	"google.golang.org/grpc/codes"

	"github.com/hydrant-mcp/hydrant/store"
)

// A revision is what a record, a document that is changed by compare-and-swap, was read with: the time that an update must
// find, and when what was read ends. The mark in every write makes sure that the time changes: a write that changes
// nothing would keep it.
type revision struct {
	updated time.Time
	expires int64 // microseconds since the epoch, as the database keeps it
}

func (r revision) expired() bool { return store.Expired(time.UnixMicro(r.expires), time.Now()) }

// createRecord writes a document as a record that ends then. It is one write, and one read when the document exists.
func (st *Store) createRecord(ctx context.Context, op string, doc *firestore.DocumentRef, expires time.Time, f fields) (
	revision, error,
) {
	f[fieldVersion], f[fieldTTL] = store.SchemaVersion, expires
	updated, err := st.create(ctx, op, doc, f)
	return revision{updated, expires.UnixMicro()}, err
}

// create writes a document if there is none. It is one write, and one read when there is one.
func (st *Store) create(ctx context.Context, op string, doc *firestore.DocumentRef, f fields) (time.Time, error) {
	mark := newMark()
	f[fieldMark] = mark
	result, code, err := st.write(ctx, op, func(ctx context.Context) (*firestore.WriteResult, error) {
		return doc.Create(ctx, f)
	}, codes.AlreadyExists)
	if err != nil {
		return time.Time{}, err
	}
	return st.updated(ctx, op, doc, mark, result, code, store.ErrExists)
}

// updateRecord changes fields of a record that has the revision of old and has not expired, and when it ends. It is one
// write, and one read on a conflict. What it does not name stays as it is.
func (st *Store) updateRecord(ctx context.Context, op string, doc *firestore.DocumentRef, old any, expires time.Time,
	changed fields,
) (revision, error) {
	read, ok := old.(revision)
	if !ok || read.expired() {
		return revision{}, store.Wrap(op, store.ErrConflict, nil)
	}
	mark := newMark()
	updates := []firestore.Update{{Path: fieldMark, Value: mark}, {Path: fieldTTL, Value: expires}}
	for name, value := range changed {
		updates = append(updates, firestore.Update{Path: name, Value: value})
	}
	result, code, err := st.write(ctx, op, func(ctx context.Context) (*firestore.WriteResult, error) {
		return doc.Update(ctx, updates, firestore.LastUpdateTime(read.updated))
	}, codes.FailedPrecondition, codes.NotFound)
	if err != nil {
		return revision{}, err
	}
	updated, err := st.updated(ctx, op, doc, mark, result, code, store.ErrConflict)
	return revision{updated, expires.UnixMicro()}, err
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
