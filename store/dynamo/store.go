// Package dynamo keeps Hydrant's records in one Amazon DynamoDB table.
//
// The table has a partition key "pk" and a sort key "sk", both strings, no index, and its time to live on the attribute
// "ttl" (see [CreateTable]). There is no transaction and no scan: every write is one conditional operation on one item,
// every read is strongly consistent.
//
//	pk                  sk                item
//	s#<session key>     s                 a session, or what is left of a deleted one
//	x#<exchange>        x                 an exchange
//	x#<exchange>        e#<position>      an event, or the head of one that is split
//	x#<exchange>        a#<question>      an answer, or the head of one that is split
//	p#<upload>#<part>   p                 a part of an event or an answer
//	t#<topic>           t                 a topic's version
//
// What comes from outside (exchanges, questions, topics) is hashed: a key has a maximal length, a resource's URI has none.
//
// The client's own retryer repeats what failed. Each writer marks what it writes, and a condition that fails on its own
// mark succeeds: an operation that was done and whose response was lost is not taken for somebody else's.
package dynamo

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/hydrant-mcp/hydrant/store"
)

// callTimeout bounds one operation, the client's retries included, where the caller's context does not bound it more
// tightly.
const callTimeout = 10 * time.Second

// Client is what a [Store] needs of a *[dynamodb.Client].
type Client interface {
	GetItem(context.Context, *dynamodb.GetItemInput, ...option) (*dynamodb.GetItemOutput, error)
	PutItem(context.Context, *dynamodb.PutItemInput, ...option) (*dynamodb.PutItemOutput, error)
	UpdateItem(context.Context, *dynamodb.UpdateItemInput, ...option) (*dynamodb.UpdateItemOutput, error)
	Query(context.Context, *dynamodb.QueryInput, ...option) (*dynamodb.QueryOutput, error)
	BatchGetItem(context.Context, *dynamodb.BatchGetItemInput, ...option) (*dynamodb.BatchGetItemOutput, error)
}

// An option of one call; a [Store] gives none.
type option = func(*dynamodb.Options)

// A Store is a [store.Store] in a DynamoDB table.
type Store struct {
	client  Client
	table   string
	timeout time.Duration // of one call
}

var _ store.Store = (*Store)(nil)

// New returns the store in a table, which must exist. It does not call the database: a table that is missing or may not
// be used shows in the first operation, as [store.ErrUnavailable] with a text that names the table.
//
// The role needs dynamodb:GetItem, PutItem, UpdateItem, Query and BatchGetItem on the table.
func New(client Client, table string) *Store { return &Store{client, table, callTimeout} }

// call makes one request to the database, in bounded time, and gives its error the operation and the kind.
func call[In, Out any](ctx context.Context, st *Store, op string,
	f func(context.Context, In, ...option) (Out, error), in In,
) (Out, error) {
	bounded, cancel := context.WithTimeout(ctx, st.timeout)
	defer cancel()
	out, err := f(bounded, in)
	if err != nil {
		return out, st.failure(ctx, op, err)
	}
	return out, nil
}

// digest makes a part of a key of a text that may be of any length.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// newMark returns what tells one call's write from all others.
func newMark() []byte {
	mark := make([]byte, 12)
	_, _ = rand.Read(mark) // never fails
	return mark
}
