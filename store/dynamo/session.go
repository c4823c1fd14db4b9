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
	attrCreated     = "created" // milliseconds since the epoch, as is attrExpires
	attrInitialized = "initialized"
	attrLevel       = "level"
	attrSubscribed  = "subscribed"
	attrExpires     = "expires"
	attrRevision    = "rev"
	attrMark        = "mark" // of the call that wrote last
	attrDeleted     = "deleted"
)

// deletedRevision is a tombstone's: no session that was read has it, so that no update fits.
const deletedRevision = -1

// A revision is what a session was read with: the number that an update must find, and when what was read ends.
type revision struct{ number, expires int64 }

func sessionItem(key string) item { return newItem("s#"+key, "s") }

// CreateSession implements [store.Store]. It is one conditional write.
func (st *Store) CreateSession(ctx context.Context, s *store.Session) error {
	const op = "dynamo: create session"
	if s.Size() > store.MaxSession {
		return store.Wrap(op, store.ErrTooLarge, nil)
	}
	it := sessionItem(s.Key)
	it[attrVersion] = number(store.SchemaVersion)
	it[attrPrincipal] = str(s.Principal)
	it[attrProtocol] = str(s.ProtocolVersion)
	it[attrParams] = binary(s.InitializeParams)
	it[attrCreated] = number(s.Created.UnixMilli())
	it[attrInitialized] = boolean(s.Initialized)
	it[attrLevel] = str(s.LogLevel)
	it[attrSubscribed] = list(s.Subscriptions)
	it[attrExpires] = number(s.Expires.UnixMilli())
	it[attrTTL] = number(seconds(s.Expires))
	it[attrRevision] = number(1)
	mark := binary(newMark())
	it[attrMark] = mark
	_, err := call(ctx, st, op, st.client.PutItem, &dynamodb.PutItemInput{
		TableName:                 &st.table,
		Item:                      it,
		ConditionExpression:       aws.String("attribute_not_exists(#pk) OR #mark = :mark"),
		ExpressionAttributeNames:  map[string]string{"#pk": attrPK, "#mark": attrMark},
		ExpressionAttributeValues: item{":mark": mark},
	})
	if errors.Is(err, errCondition) {
		return store.Wrap(op, store.ErrExists, nil)
	}
	if err != nil {
		return err
	}
	s.Revision = revision{1, s.Expires.UnixMilli()}
	return nil
}

// Session implements [store.Store]. It is one strongly consistent read.
func (st *Store) Session(ctx context.Context, key string) (*store.Session, error) {
	const op = "dynamo: get session"
	out, err := call(ctx, st, op, st.client.GetItem, &dynamodb.GetItemInput{
		TableName:      &st.table,
		Key:            sessionItem(key),
		ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		return nil, err
	}
	if len(out.Item) == 0 {
		return nil, store.Wrap(op, store.ErrNotFound, nil)
	}
	r := read(out.Item)
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
		Created:          time.UnixMilli(r.number(attrCreated)),
		Expires:          time.UnixMilli(r.number(attrExpires)),
	}
	s.Revision = revision{r.number(attrRevision), s.Expires.UnixMilli()}
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
	old, ok := s.Revision.(revision)
	if !ok || store.Expired(time.UnixMilli(old.expires), time.Now()) {
		return store.Wrap(op, store.ErrConflict, nil)
	}
	fresh := revision{old.number + 1, s.Expires.UnixMilli()}
	_, err := call(ctx, st, op, st.client.UpdateItem, &dynamodb.UpdateItemInput{
		TableName: &st.table,
		Key:       sessionItem(s.Key),
		UpdateExpression: aws.String("SET #initialized = :initialized, #level = :level, #subscribed = :subscribed, " +
			"#expires = :expires, #ttl = :ttl, #rev = :rev, #mark = :mark"),
		ConditionExpression: aws.String("#rev = :old OR #mark = :mark"),
		ExpressionAttributeNames: map[string]string{
			"#initialized": attrInitialized, "#level": attrLevel, "#subscribed": attrSubscribed,
			"#expires": attrExpires, "#ttl": attrTTL, "#rev": attrRevision, "#mark": attrMark,
		},
		ExpressionAttributeValues: item{
			":initialized": boolean(s.Initialized), ":level": str(s.LogLevel), ":subscribed": list(s.Subscriptions),
			":expires": number(fresh.expires), ":ttl": number(seconds(s.Expires)), ":rev": number(fresh.number),
			":mark": binary(newMark()), ":old": number(old.number),
		},
	})
	if errors.Is(err, errCondition) {
		return store.Wrap(op, store.ErrConflict, nil)
	}
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
			"REMOVE #principal, #protocol, #params, #initialized, #level, #subscribed, #created, #expires"),
		ConditionExpression: aws.String("attribute_exists(#pk) AND (attribute_not_exists(#deleted) OR #mark = :mark)"),
		ExpressionAttributeNames: map[string]string{
			"#pk": attrPK, "#deleted": attrDeleted, "#rev": attrRevision, "#mark": attrMark,
			"#principal": attrPrincipal, "#protocol": attrProtocol, "#params": attrParams,
			"#initialized": attrInitialized, "#level": attrLevel, "#subscribed": attrSubscribed,
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
