// Package firestore keeps Hydrant's records in Google Cloud Firestore, in native mode.
//
// There are four collections at the root, and two below each exchange, named by a prefix:
//
//	document                                              holds
//	hydrant_sessions/<session key>                        a session, or what is left of a deleted one
//	hydrant_exchanges/<exchange>                          an exchange
//	hydrant_exchanges/<exchange>/hydrant_events/<position>   an event, or the head of one that is split
//	hydrant_exchanges/<exchange>/hydrant_answers/<question>  an answer, or the head of one that is split
//	hydrant_parts/<upload>-<part>                         a part of an event or an answer
//	hydrant_topics/<topic>                                a topic's version
//
// What comes from outside (exchanges, questions, topics) is hashed: that is a valid document id of any text, and spreads
// the load. Every write is one document with a precondition, never a transaction: preconditions do not wait for each
// other. Reads are strongly consistent.
//
// Nothing has to be created before the first use, in an emulator or in a database of the cloud. In the cloud, deploy
// firestore.indexes.json: it turns on the time to live on the field "ttl" and turns off the indexes, which nothing here
// uses, and of which one on a timestamp would hold a collection to 500 writes a second. With another prefix than
// "hydrant", change the names of the collections in it.
//
// The client repeats calls for as long as they fail as unavailable: each is bounded by its context and by ten seconds.
package firestore

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"cloud.google.com/go/firestore"
	"google.golang.org/api/option"

	"github.com/hydrant-mcp/hydrant/store"
)

// DefaultPrefix names the collections where [New] is given no prefix.
const DefaultPrefix = "hydrant"

// callTimeout bounds one call to the database, the client's retries included, where the caller's context does not bound
// it more tightly.
const callTimeout = 10 * time.Second

// A Store is a [store.Store] in a Firestore database.
type Store struct {
	client  *firestore.Client
	timeout time.Duration // of one call

	listening *listening

	sessions, exchanges, parts, topics *firestore.CollectionRef
	events, answers                    string // the names of the collections below an exchange
}

var (
	_ store.Store   = (*Store)(nil)
	_ store.Watcher = (*Store)(nil)
)

// New returns the store in the collections that begin with prefix and an underscore; "" is [DefaultPrefix]. A prefix has
// no slash. New does not call the database: one that is missing or may not be used shows in the first operation, as
// [store.ErrUnavailable] with a text that names the database. The service account needs the role roles/datastore.user.
//
// Watching takes a connection of its own, which is made when it is needed and with opts: give those that the client was
// made with. Without any, it has the application default credentials, or goes to the emulator where the client does.
func New(client *firestore.Client, prefix string, opts ...option.ClientOption) *Store {
	if prefix == "" {
		prefix = DefaultPrefix
	}
	return &Store{
		client:    client,
		timeout:   callTimeout,
		listening: newListening(client, opts),
		sessions:  client.Collection(prefix + "_sessions"),
		exchanges: client.Collection(prefix + "_exchanges"),
		parts:     client.Collection(prefix + "_parts"),
		topics:    client.Collection(prefix + "_topics"),
		events:    prefix + "_events",
		answers:   prefix + "_answers",
	}
}

// Close ends the connection that watching has taken, if any; the client is the caller's. It need not be called at the end
// of a program.
func (st *Store) Close() error { return st.listening.close() }

// get reads one document; nil when there is none. It does not go by the code NotFound, which is also what a database that
// does not exist answers.
func (st *Store) get(ctx context.Context, op string, doc *firestore.DocumentRef) (*firestore.DocumentSnapshot, error) {
	snaps, err := st.getAll(ctx, op, []*firestore.DocumentRef{doc})
	if err != nil {
		return nil, err
	}
	return snaps[0], nil
}

// getAll reads documents in one call. The result is in the order of docs, nil where there is no document.
func (st *Store) getAll(ctx context.Context, op string, docs []*firestore.DocumentRef) (
	[]*firestore.DocumentSnapshot, error,
) {
	bounded, cancel := context.WithTimeout(ctx, st.timeout)
	defer cancel()
	snaps, err := st.client.GetAll(bounded, docs)
	if err != nil {
		return nil, st.failure(ctx, op, err)
	}
	for i, snap := range snaps {
		if !snap.Exists() {
			snaps[i] = nil
		}
	}
	return snaps, nil
}

// digest makes a part of a document's id of any text.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// newMark returns what tells one call's write from all others.
func newMark() []byte {
	mark := make([]byte, 12)
	_, _ = rand.Read(mark) // never fails
	return mark
}
