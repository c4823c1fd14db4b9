package dynamo

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/hydrant-mcp/hydrant/store"
)

// The attributes of a session.
const (
	attrPrincipal   = "principal"
	attrProtocol    = "protocol"
	attrParams      = "params"
	attrCreated     = "created" // milliseconds since the epoch
	attrInitialized = "initialized"
	attrLevel       = "level"
	attrSubscribed  = "subscribed"
	attrCancels     = "cancels"
	attrCancelled   = "cancelled"
	attrDeleted     = "deleted"
)

// deletedRevision is a tombstone's: no session that was read has it, so that no update fits.
const deletedRevision = -1

func sessionItem(key string) item { return newItem("s#"+key, "s") }

// CreateSession implements [store.Store]. It is one conditional write.
func (st *Store) CreateSession(ctx context.Context, s *store.Session) error {
	const op = "dynamo: create session"
	if s.Size() > store.MaxSession {
		return store.Wrap(op, store.ErrTooLarge, nil)
	}
	it := sessionItem(s.Key)
	it[attrPrincipal] = str(s.Principal)
	it[attrProtocol] = str(s.ProtocolVersion)
	it[attrParams] = binary(s.InitializeParams)
	it[attrCreated] = number(s.Created.UnixMilli())
	it[attrInitialized] = boolean(s.Initialized)
	it[attrLevel] = str(s.LogLevel)
	it[attrSubscribed] = list(s.Subscriptions)
	it[attrCancels] = number(s.Cancels)
	it[attrCancelled] = list(s.Cancelled)
	first, err := st.createRecord(ctx, op, it, s.Expires)
	if err != nil {
		return err
	}
	s.Revision = first
	return nil
}

// Session implements [store.Store]. It is one strongly consistent read.
func (st *Store) Session(ctx context.Context, key string) (*store.Session, error) {
	const op = "dynamo: get session"
	r, err := st.get(ctx, op, sessionItem(key))
	if err != nil {
		return nil, err
	}
	return session(op, key, r)
}

// session decodes a session.
func session(op, key string, r *reader) (*store.Session, error) {
	if r.has(attrDeleted) && r.boolean(attrDeleted) && r.err == nil {
		return nil, store.Wrap(op, store.ErrNotFound, nil)
	}
	s := &store.Session{
		Key:              key,
		Principal:        r.str(attrPrincipal),
		ProtocolVersion:  r.str(attrProtocol),
		InitializeParams: json.RawMessage(r.binary(attrParams)),
		Initialized:      r.boolean(attrInitialized),
		LogLevel:         r.str(attrLevel),
		Subscriptions:    r.list(attrSubscribed),
		Cancels:          r.number(attrCancels),
		Cancelled:        r.list(attrCancelled),
		Created:          r.time(attrCreated),
		Expires:          r.time(attrExpires),
	}
	s.Revision = r.revision()
	if r.err != nil {
		return nil, corrupt(op, r.err)
	}
	if store.Expired(s.Expires, time.Now()) {
		return nil, store.Wrap(op, store.ErrNotFound, nil)
	}
	return s, nil
}

// UpdateSession implements [store.Store]. It is one conditional write of the attributes that may change.
func (st *Store) UpdateSession(ctx context.Context, s *store.Session) error {
	const op = "dynamo: update session"
	if s.Size() > store.MaxSession {
		return store.Wrap(op, store.ErrTooLarge, nil)
	}
	fresh, err := st.updateRecord(ctx, op, sessionItem(s.Key), s.Revision, s.Expires, item{
		attrInitialized: boolean(s.Initialized),
		attrLevel:       str(s.LogLevel),
		attrSubscribed:  list(s.Subscriptions),
		attrCancels:     number(s.Cancels),
		attrCancelled:   list(s.Cancelled),
	})
	if err != nil {
		return err
	}
	s.Revision = fresh
	return nil
}

// DeleteSession implements [store.Store]. It is one conditional write: what the client told us goes at once, the rest of
// the item stays as a tombstone until its time to live passes.
func (st *Store) DeleteSession(ctx context.Context, key string) error {
	const op = "dynamo: delete session"
	_, err := call(ctx, st, op, st.client.UpdateItem, &dynamodb.UpdateItemInput{
		TableName: &st.table,
		Key:       sessionItem(key),
		UpdateExpression: aws.String("SET #deleted = :deleted, #rev = :rev, #mark = :mark " +
			"REMOVE #principal, #protocol, #params, #initialized, #level, #subscribed, #cancels, #cancelled, " +
			"#created, #expires"),
		ConditionExpression: aws.String("attribute_exists(#pk) AND (attribute_not_exists(#deleted) OR #mark = :mark)"),
		ExpressionAttributeNames: map[string]string{
			"#pk": attrPK, "#deleted": attrDeleted, "#rev": attrRevision, "#mark": attrMark,
			"#principal": attrPrincipal, "#protocol": attrProtocol, "#params": attrParams,
			"#initialized": attrInitialized, "#level": attrLevel, "#subscribed": attrSubscribed,
			"#cancels": attrCancels, "#cancelled": attrCancelled,
			"#created": attrCreated, "#expires": attrExpires,
		},
		ExpressionAttributeValues: item{
			":deleted": boolean(true), ":rev": number(deletedRevision), ":mark": binary(newMark()),
		},
	})
	if errors.Is(err, errCondition) {
		return store.Wrap(op, store.ErrNotFound, nil)
	}
	return err
}
