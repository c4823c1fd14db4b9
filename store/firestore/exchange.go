package firestore

import (
	"context"
	"encoding/json"
	"time"

	"cloud.google.com/go/firestore"

	"github.com/hydrant-mcp/hydrant/store"
)

// The fields of an exchange. When it ends is fieldTTL, its data is fieldData.
const (
	fieldSession = "session"
	fieldState   = "state"
	fieldRound   = "round"
	fieldOwner   = "owner"
	fieldLease   = "lease"
)

func (st *Store) exchange(key string) *firestore.DocumentRef { return st.exchanges.Doc(digest(key)) }

// CreateExchange implements [store.Exchanges]. It is one write, and one read when the document exists.
func (st *Store) CreateExchange(ctx context.Context, x *store.Exchange) error {
	const op = "firestore: create exchange"
	if len(x.Data) > store.MaxExchangeData {
		return store.Wrap(op, store.ErrTooLarge, nil)
	}
	first, err := st.createRecord(ctx, op, st.exchange(x.Key), x.Expires, fields{
		fieldSession: x.Session,
		fieldState:   x.State,
		fieldRound:   x.Round,
		fieldOwner:   x.Owner,
		fieldLease:   x.Lease,
		fieldData:    filled(x.Data),
	})
	if err != nil {
		return err
	}
	x.Revision = first
	return nil
}

// Exchange implements [store.Exchanges]. It is one read.
func (st *Store) Exchange(ctx context.Context, key string) (*store.Exchange, error) {
	const op = "firestore: get exchange"
	snap, err := st.get(ctx, op, st.exchange(key))
	if err != nil {
		return nil, err
	}
	if snap == nil {
		return nil, store.Wrap(op, store.ErrNotFound, nil)
	}
	r := read(snap)
	x := &store.Exchange{
		Key:     key,
		Session: get[string](r, fieldSession),
		State:   get[string](r, fieldState),
		Round:   int(get[int64](r, fieldRound)),
		Owner:   get[string](r, fieldOwner),
		Lease:   get[time.Time](r, fieldLease),
		Data:    json.RawMessage(get[[]byte](r, fieldData)),
		Expires: get[time.Time](r, fieldTTL),
	}
	if r.err != nil {
		return nil, corrupt(op, r.err)
	}
	now := revision{snap.UpdateTime, x.Expires.UnixMicro()}
	if now.expired() {
		return nil, store.Wrap(op, store.ErrNotFound, nil)
	}
	x.Revision = now
	return x, nil
}

// UpdateExchange implements [store.Exchanges]. It is one write of the fields that may change, and one read on a conflict.
func (st *Store) UpdateExchange(ctx context.Context, x *store.Exchange) error {
	fresh, err := st.updateRecord(ctx, "firestore: update exchange", st.exchange(x.Key), x.Revision, x.Expires, fields{
		fieldState: x.State,
		fieldRound: x.Round,
		fieldOwner: x.Owner,
		fieldLease: x.Lease,
	})
	if err != nil {
		return err
	}
	x.Revision = fresh
	return nil
}
