// Package store defines what Hydrant keeps between two messages, and where.
//
// A [Store] is three contracts beside the records of sessions and exchanges:
//
//   - the outbox of an exchange: its events for the client, one writer, a gapless sequence, read by cursor;
//   - the inbox of an exchange: the client's answers to its questions, one slot per question, written once;
//   - topics: counters that only rise; a reader sees that one rose, not how often.
//
// None of them needs clocks to agree, but for days: a topic is forgotten after a month. A store that can tell that something
// has changed is a [Watcher] too.
//
// Implementations are in store/memory, store/dynamo and store/firestore; every one passes the suite in store/storetest,
// which is the contract in the form of tests.
package store

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"time"
)

// The errors that callers decide on. Implementations wrap them (see [Wrap]) with the operation and the cause; test with
// [errors.Is].
var (
	// ErrNotFound says that the record does not exist, has expired or was deleted: the store answered, and the answer
	// is no.
	ErrNotFound = errors.New("not found")
	// ErrExists says that a create-if-absent found something there.
	ErrExists = errors.New("exists already")
	// ErrConflict says that a compare-and-swap found another revision than the one it was given.
	ErrConflict = errors.New("changed by someone else")
	// ErrUnavailable says that the store could not be reached or did not answer in time. It says nothing about the
	// record. A write that failed with it may or may not have happened.
	ErrUnavailable = errors.New("store unavailable")
	// ErrThrottled says that the store refused the operation for now. Every error that is ErrThrottled is also
	// ErrUnavailable.
	ErrThrottled = errors.New("store throttled")
	// ErrCorrupt says that a record is there and cannot be read.
	ErrCorrupt = errors.New("record cannot be read")
	// ErrTooLarge says that what was to be stored is over a limit of the store. Nothing was written.
	ErrTooLarge = errors.New("too large to store")
)

// SchemaVersion is the version of the records that this code writes. Records of a later version are read as far as they
// are understood, and their unknown fields survive an update.
const SchemaVersion = 1

// What every store takes, in bytes. A store splits an event or an answer over as many items as it needs.
const (
	// MaxEvent is the largest event.
	MaxEvent = 16 << 20
	// MaxAnswer is the largest answer.
	MaxAnswer = 4 << 20
	// MaxSession is the largest session, by its Size.
	MaxSession = 256 << 10
)

// TopicLife is how long a topic is kept, at least, after it has been raised last.
const TopicLife = 30 * 24 * time.Hour

// Final is the sequence number of an exchange's last event, whatever the number of the event before it. The fixed slot
// makes "the response is written once" a plain create-if-absent, also for a writer that does not know how far another
// one came.
const Final int64 = math.MaxInt64

// A Session is a legacy client's durable record: everything that the client told the server in one message and that a
// later message relies on.
type Session struct {
	// Key is the SHA-256, in hexadecimal, of the server's name and the session id. The id itself is never stored.
	Key string
	// Principal owns the session: issuer and subject, or "" for a client without credentials.
	Principal string
	// ProtocolVersion is the negotiated version.
	ProtocolVersion string
	// InitializeParams are the params of the client's initialize request, as it sent them: client info, capabilities.
	InitializeParams json.RawMessage
	// Initialized says that notifications/initialized has arrived.
	Initialized bool
	// LogLevel is the level of the last logging/setLevel, "" before the first.
	LogLevel string
	// Subscriptions are the URIs of the resources that the client subscribed to, without duplicates.
	Subscriptions []string
	// Cancels counts the cancellations that the client has sent, and Cancelled has the request ids of the last ones, at
	// most [MaxCancelled], the newest last: the last one's number is Cancels.
	Cancels   int64
	Cancelled []string
	// Created is when the session was made. With an absolute limit on a session's life it bounds Expires.
	Created time.Time
	// Expires is when the session ends unless it is used before. Stores keep it to the second or finer. A session past it
	// does not exist, whether or not the database has removed the record.
	Expires time.Time

	// Revision is the store's own mark of the version of the record that was read; opaque, and not to be changed.
	Revision any
}

// Size is how much of a record the session fills, in bytes: what the client sent and how it is known. [MaxSession] is
// the limit.
func (s *Session) Size() int {
	n := len(s.Principal) + len(s.ProtocolVersion) + len(s.InitializeParams) + len(s.LogLevel)
	for _, texts := range [][]string{s.Subscriptions, s.Cancelled} {
		for _, text := range texts {
			n += len(text) + 1
		}
	}
	return n
}

// An Event is one entry of an outbox.
type Event struct {
	// Seq is the position: 1, 2, 3 … without gaps, and [Final] for the last one.
	Seq int64
	// Data is what was appended, byte for byte.
	Data []byte
}

// A Store keeps sessions, exchanges, outboxes, inboxes and topics. All methods may be called at the same time from any
// number of goroutines and processes. Every read is strongly consistent: it sees all writes that had returned when it
// began. When ctx ends, a method returns soon with an error that wraps ctx's; a deadline of ctx's that passes is
// [ErrUnavailable] too.
type Store interface {
	// CreateSession stores a new session and sets s.Revision. [ErrExists] when there is one with that key, and as long as
	// the database still keeps an ended one; [ErrTooLarge] over [MaxSession].
	CreateSession(ctx context.Context, s *Session) error
	// Session reads a session. [ErrNotFound] when it is missing, expired or deleted, [ErrCorrupt] when it cannot be read.
	Session(ctx context.Context, key string) (*Session, error)
	// UpdateSession writes the fields of s that may change (Initialized, LogLevel, Subscriptions, Cancels, Cancelled,
	// Expires) if the record still has the revision that s was read with, and sets s.Revision to the new one. Fields that
	// this version of the code does not know stay as they are. [ErrConflict] when somebody else changed or deleted the
	// session meanwhile or it has expired, [ErrTooLarge] over [MaxSession]. Most callers want [ChangeSession], which reads
	// again and retries.
	UpdateSession(ctx context.Context, s *Session) error
	// DeleteSession ends a session for good: no late update brings it back. [ErrNotFound] when it is not there, where the
	// store can tell at no further cost.
	DeleteSession(ctx context.Context, key string) error

	Exchanges

	// AppendEvent adds an event to the outbox of an exchange. Appending the same bytes at the same position again
	// succeeds and changes nothing; other bytes at a position that is taken are [ErrConflict]. The caller numbers its
	// events from 1 without gaps and uses [Final] for the last. [ErrTooLarge] over [MaxEvent]. The event can be read
	// until expires, at least.
	AppendEvent(ctx context.Context, exchange string, e Event, expires time.Time) error
	// Events reads what follows position after (0: from the start) in order, up to the first position that is missing, and
	// the final event if it is there. At most limit events (0: as many as the store returns in one go; at least one if
	// there is any): call again from the last one for more.
	Events(ctx context.Context, exchange string, after int64, limit int) ([]Event, error)

	// PutAnswer fills the slot of a question, once: [ErrExists] when it is filled already, and then the first answer
	// stays. [ErrTooLarge] over [MaxAnswer].
	PutAnswer(ctx context.Context, exchange, question string, answer []byte, expires time.Time) error
	// Answer reads the slot of a question. [ErrNotFound] while it is empty.
	Answer(ctx context.Context, exchange, question string) ([]byte, error)

	// Look reads what a call waits for, in one operation: a session, nil when it is missing, expired or deleted, or when
	// its key is "", and the answers in slots, all different ones, as far as they are filled. An error of one is that of all.
	Look(ctx context.Context, session string, slots []Slot) (*Session, map[Slot][]byte, error)

	// RaiseTopic makes the topic's version higher than it was for every reader that reads after it returned. A topic begins
	// at the time, in milliseconds since the epoch: when it is raised anew after the store has forgotten it, it is above all
	// that it was before.
	RaiseTopic(ctx context.Context, topic string) error
	// TopicVersions reads the versions of topics; 0 for one that was never raised, or that is forgotten, [TopicLife] or later
	// after it was raised last. The result has an entry for each.
	TopicVersions(ctx context.Context, topics []string) (map[string]int64, error)
}

// Expired says that a record that ends at the time expires does not exist any more at the time now.
func Expired(expires, now time.Time) bool { return !now.Before(expires) }
