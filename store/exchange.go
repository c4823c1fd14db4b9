package store

import (
	"context"
	"encoding/json"
	"time"
)

// An Exchange is the record of a legacy client's request whose answer takes more than one HTTP response: who runs it, and
// how far it is. Its events are in its outbox, the client's answers in its inbox.
type Exchange struct {
	// Key is random: 128 bits or more.
	Key string
	// Session is the key of the session that it belongs to.
	Session string
	// State and Round say how far it is; what they mean is the handler's business.
	State string
	Round int
	// Owner is who runs it, and Lease until when it is taken to be alive unless it renews.
	Owner string
	Lease time.Time
	// Data is whatever else the handler keeps, at most [MaxExchangeData] bytes. It is not changed by UpdateExchange.
	Data json.RawMessage
	// Expires is when the record ends.
	Expires time.Time

	// Revision is the store's own mark of the version of the record that was read; opaque, and not to be changed.
	Revision any
}

// MaxExchangeData bounds [Exchange.Data], in bytes.
const MaxExchangeData = 64 << 10

// MaxCancelled is how many cancellations a [Session] remembers.
const MaxCancelled = 32

// Exchanges are a store's records of exchanges. Their rules are those of sessions.
type Exchanges interface {
	// CreateExchange stores a new exchange and sets x.Revision. [ErrExists] when there is one with that key.
	CreateExchange(ctx context.Context, x *Exchange) error
	// Exchange reads one. [ErrNotFound] when it is missing or has expired.
	Exchange(ctx context.Context, key string) (*Exchange, error)
	// UpdateExchange writes State, Round, Owner, Lease and Expires if the record still has the revision that x was read
	// with, and sets x.Revision to the new one. [ErrConflict] when somebody else changed it.
	UpdateExchange(ctx context.Context, x *Exchange) error
}

// A Watcher is a store that tells when something has changed, so that nobody needs to look again and again. A [Store] may
// be one.
type Watcher interface {
	// Watch calls changed soon after something that it watches has changed, at least once after the last change, until ctx
	// ends. Calls do not overlap, and none begins after ctx has ended. Watch returns when watching has begun: what changes
	// afterwards is noticed. Some calls may come without a change; that a record expires is no change.
	//
	// [ErrUnavailable] when watching cannot begin within a few seconds. When the store cannot tell any more later on, it calls
	// w.Lost, and once it can again, changed. Shorter gaps it makes good by itself, and calls changed after them.
	Watch(ctx context.Context, w Watched, changed func()) error
}

// Watched is what a [Watcher] is to watch; empty fields are not.
type Watched struct {
	// Session is the key of a session: its record.
	Session string
	// Exchange is the key of an exchange: its record, and of its outbox the event that follows the position After and the
	// final one. Who has read further watches anew.
	Exchange string
	After    int64
	// Slots are questions: that they are answered.
	Slots []Slot
	// Topics are topics: their versions.
	Topics []string

	// Lost, if it is not nil, is called when changes are not told for the time being, at most once, and neither together with
	// changed nor after ctx has ended. Whoever watched looks for itself from then on, and may watch anew.
	Lost func()
}

// A Slot is the place of the answer to one question in the inbox of an exchange.
type Slot struct{ Exchange, Question string }
