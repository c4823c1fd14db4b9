package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	gcfirestore "cloud.google.com/go/firestore"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/hydrant-mcp/hydrant/internal/harness"
	"github.com/hydrant-mcp/hydrant/store"
	"github.com/hydrant-mcp/hydrant/store/dynamo"
	"github.com/hydrant-mcp/hydrant/store/firestore"
	"github.com/hydrant-mcp/hydrant/store/memory"
)

// shared opens the store as one more process would: each call gives a client of its own to the same data.
type shared func() (store.Store, func(), error)

// open starts the emulator of a store.
func open(ctx context.Context, kind harness.Store) (shared, func(), error) {
	endpoint, stop, err := harness.Emulator(ctx, kind)
	if err != nil {
		return nil, stop, err
	}
	name := "latency-" + strings.ToLower(rand.Text()[:8])
	switch kind {
	case harness.DynamoDB:
		connect := func() *dynamodb.Client {
			return dynamodb.New(dynamodb.Options{
				BaseEndpoint: aws.String(endpoint),
				Region:       "us-east-1",
				Credentials:  credentials.NewStaticCredentialsProvider("local", "local", ""),
			})
		}
		if err := dynamo.CreateTable(ctx, connect(), name); err != nil {
			return nil, stop, err
		}
		return func() (store.Store, func(), error) { return dynamo.New(connect(), name), func() {}, nil }, stop, nil
	case harness.Firestore:
		if err := os.Setenv("FIRESTORE_EMULATOR_HOST", endpoint); err != nil {
			return nil, stop, err
		}
		return func() (store.Store, func(), error) {
			client, err := gcfirestore.NewClient(ctx, "hydrant-latency")
			if err != nil {
				return nil, func() {}, fmt.Errorf("opening Firestore: %w", err)
			}
			st := firestore.New(client, name)
			return st, func() { _, _ = st.Close(), client.Close() }, nil
		}, stop, nil
	}
	st := memory.New()
	return func() (store.Store, func(), error) { return st, func() {}, nil }, stop, nil
}

// An operation is one call of a store's method.
type operation struct {
	at    time.Time
	kind  kind
	units int // of a read: how many records were asked for
}

type kind int

const (
	read kind = iota
	write
	watching // a watch has begun
	wasTold  // a watcher was told of a change
)

// A tally counts what a store is asked.
type tally struct {
	mu  sync.Mutex
	ops []operation
}

func (t *tally) add(k kind, units int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ops = append(t.ops, operation{time.Now(), k, units})
}

// between counts the operations of a kind in a span of time, and their units.
func (t *tally) between(k kind, from, to time.Time) (operations, units int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, op := range t.ops {
		if op.kind == k && !op.at.Before(from) && op.at.Before(to) {
			operations++
			units += op.units
		}
	}
	return operations, units
}

// counted gives a store whose operations are counted. It is a [store.Watcher] if st is one.
func counted(st store.Store, t *tally) store.Store {
	c := countedStore{st, t}
	if w, ok := st.(store.Watcher); ok {
		return watchedStore{c, w}
	}
	return c
}

type countedStore struct {
	store.Store
	t *tally
}

func (c countedStore) CreateSession(ctx context.Context, s *store.Session) error {
	c.t.add(write, 1)
	return c.Store.CreateSession(ctx, s)
}

func (c countedStore) Session(ctx context.Context, key string) (*store.Session, error) {
	c.t.add(read, 1)
	return c.Store.Session(ctx, key)
}

func (c countedStore) UpdateSession(ctx context.Context, s *store.Session) error {
	c.t.add(write, 1)
	return c.Store.UpdateSession(ctx, s)
}

func (c countedStore) DeleteSession(ctx context.Context, key string) error {
	c.t.add(write, 1)
	return c.Store.DeleteSession(ctx, key)
}

func (c countedStore) CreateExchange(ctx context.Context, x *store.Exchange) error {
	c.t.add(write, 1)
	return c.Store.CreateExchange(ctx, x)
}

func (c countedStore) Exchange(ctx context.Context, key string) (*store.Exchange, error) {
	c.t.add(read, 1)
	return c.Store.Exchange(ctx, key)
}

func (c countedStore) UpdateExchange(ctx context.Context, x *store.Exchange) error {
	c.t.add(write, 1)
	return c.Store.UpdateExchange(ctx, x)
}

func (c countedStore) AppendEvent(ctx context.Context, exchange string, e store.Event, expires time.Time) error {
	c.t.add(write, 1)
	return c.Store.AppendEvent(ctx, exchange, e, expires)
}

func (c countedStore) Events(ctx context.Context, exchange string, after int64, limit int) ([]store.Event, error) {
	c.t.add(read, 1)
	return c.Store.Events(ctx, exchange, after, limit)
}

func (c countedStore) PutAnswer(ctx context.Context, exchange, question string, answer []byte, expires time.Time) error {
	c.t.add(write, 1)
	return c.Store.PutAnswer(ctx, exchange, question, answer, expires)
}

func (c countedStore) Answer(ctx context.Context, exchange, question string) ([]byte, error) {
	c.t.add(read, 1)
	return c.Store.Answer(ctx, exchange, question)
}

func (c countedStore) Look(ctx context.Context, session string, slots []store.Slot) (
	*store.Session, map[store.Slot][]byte, error,
) {
	units := len(slots)
	if session != "" {
		units++
	}
	c.t.add(read, units)
	return c.Store.Look(ctx, session, slots)
}

func (c countedStore) RaiseTopic(ctx context.Context, topic string) error {
	c.t.add(write, 1)
	return c.Store.RaiseTopic(ctx, topic)
}

func (c countedStore) TopicVersions(ctx context.Context, topics []string) (map[string]int64, error) {
	c.t.add(read, len(topics))
	return c.Store.TopicVersions(ctx, topics)
}

type watchedStore struct {
	countedStore
	watcher store.Watcher
}

func (w watchedStore) Watch(ctx context.Context, what store.Watched, changed func()) error {
	w.t.add(watching, 1)
	return w.watcher.Watch(ctx, what, func() {
		w.t.add(wasTold, 1)
		changed()
	})
}
