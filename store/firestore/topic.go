package firestore

import (
	"context"
	"slices"
	"time"

	"cloud.google.com/go/firestore"
	"google.golang.org/grpc/codes"

	"github.com/hydrant-mcp/hydrant/store"
)

const (
	fieldCount = "n" // the version
	batchSize  = 100 // topics that are read in one call
)

func (st *Store) topic(topic string) *firestore.DocumentRef { return st.topics.Doc(digest(topic)) }

// RaiseTopic implements [store.Store]. It is one write, and one more the first time: the database can count up from nothing
// only to one. A retry of the client's may raise the topic twice, which no reader minds. The database takes about one write
// a second to one document for a longer time.
func (st *Store) RaiseTopic(ctx context.Context, topic string) error {
	const op = "firestore: raise topic"
	doc, now := st.topic(topic), time.Now()
	expires := now.Add(store.TopicLife)
	for {
		_, code, err := st.write(ctx, op, func(ctx context.Context) (*firestore.WriteResult, error) {
			return doc.Update(ctx, []firestore.Update{
				{Path: fieldCount, Value: firestore.Increment(1)}, {Path: fieldTTL, Value: expires},
			})
		}, codes.NotFound)
		if err != nil || code == codes.OK {
			return err
		}
		_, code, err = st.write(ctx, op, func(ctx context.Context) (*firestore.WriteResult, error) {
			return doc.Create(ctx, fields{fieldVersion: store.SchemaVersion, fieldCount: now.UnixMilli(), fieldTTL: expires})
		}, codes.AlreadyExists)
		if err != nil || code == codes.OK {
			return err
		}
		// Somebody else was faster.
	}
}

// TopicVersions implements [store.Store]. It is one call for every 100 topics; each topic costs a read.
func (st *Store) TopicVersions(ctx context.Context, topics []string) (map[string]int64, error) {
	const op = "firestore: read topics"
	versions := make(map[string]int64, len(topics))
	var names []string
	for _, topic := range topics {
		if _, known := versions[topic]; !known {
			versions[topic] = 0
			names = append(names, topic)
		}
	}
	for chunk := range slices.Chunk(names, batchSize) {
		docs := make([]*firestore.DocumentRef, len(chunk))
		for i, topic := range chunk {
			docs[i] = st.topic(topic)
		}
		snaps, err := st.getAll(ctx, op, docs)
		if err != nil {
			return nil, err
		}
		for i, snap := range snaps {
			if snap == nil {
				continue
			}
			r := read(snap)
			versions[chunk[i]] = get[int64](r, fieldCount)
			if r.err != nil {
				return nil, corrupt(op, r.err)
			}
		}
	}
	return versions, nil
}
