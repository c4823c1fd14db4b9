package handler

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/hydrant-mcp/hydrant/internal/rawjson"
	"github.com/hydrant-mcp/hydrant/store"
)

// An outbox is the writing end of an exchange's events: what is in it can be fetched from any instance, whatever happens
// to the connection and to this process.
type outbox struct {
	store  store.Store
	keys   keyring
	record *store.Exchange
	id     eventID // of the beginning
	seq    int64
	stored int64 // bytes
	busy   *busy
}

// The states of an exchange's record.
const (
	stateRunning = "running" // Owner runs it, while Lease lasts
	stateAsking  = "asking"  // nobody runs it: round Round waits for its answers
	stateDone    = "done"    // its response is in the outbox
)

const (
	// heartbeat is how often the process that runs an exchange says that it lives, and lease how long that is believed:
	// whoever resumes the exchange of a process that has died is told so in lease and a look (see [leaseLook]), at most.
	heartbeat = 10 * time.Second
	lease     = 21 * time.Second
	// heartbeatAgain is how soon it is said again when the store did not take it.
	heartbeatAgain = time.Second
	// retention is how long a stream can be resumed after it has ended.
	retention = 15 * time.Minute
)

// exchangeData is what the record of an exchange keeps beside its state.
type exchangeData struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	// Token is the progress token of the request.
	Token json.RawMessage `json:"token,omitempty"`
	// Cancels is how many cancellations the session had when the exchange began; nil in records of versions before it.
	Cancels *int64 `json:"cancels,omitempty"`
	// Started is when the exchange began, in Unix seconds.
	Started int64 `json:"started"`
}

// newOutbox makes the outbox of a request's exchange, whose record is not stored yet.
func (x *exchange) newOutbox(ctx context.Context, state string) (*outbox, error) {
	keys, err := x.h.keys(ctx)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	token, _ := rawjson.Get(x.msg.meta, "progressToken")
	record := &store.Exchange{
		Key:     newKey(),
		Session: x.key,
		State:   state,
		Owner:   newKey(),
		Lease:   now.Add(lease),
		Data:    encode(exchangeData{x.msg.id, x.msg.method, token, &x.session.Cancels, now.Unix()}),
		Expires: now.Add(x.h.opts.CallTimeout + retention),
	}
	return &outbox{store: x.h.store, keys: keys, record: record, id: x.eventID(record), busy: &x.h.busy}, nil
}

// openOutbox makes the durable record of a request's exchange that runs.
func (x *exchange) openOutbox(ctx context.Context) (*outbox, error) {
	box, err := x.newOutbox(ctx, stateRunning)
	if err != nil {
		return nil, err
	}
	return box, x.h.store.CreateExchange(ctx, box.record)
}

// eventID is the id of the beginning of an exchange's stream.
func (x *exchange) eventID(record *store.Exchange) eventID {
	id := eventID{
		Exchange: record.Key, Session: short(record.Session), Principal: short(x.principal),
		ID: x.msg.id, Until: record.Expires.Unix(), Call: x.msg.method == "tools/call",
	}
	if x.h.opts.ToolScopes != nil && x.msg.method == "tools/call" {
		id.Tool = stringParam(x.msg, "name")
	}
	return id
}

// sign gives the id that the client sees.
func (o *outbox) sign(id eventID) string { return o.keys.sign(purposeEvent, id) }

// maxLost is how many puts may have happened unnoticed, one after the other.
const maxLost = 16

// put stores messages as one event, and gives the ids to send them with.
func (o *outbox) put(ctx context.Context, msgs []json.RawMessage) ([]string, error) {
	e := store.Event{Seq: o.seq + 1, Data: pack(msgs)}
	o.stored += int64(len(e.Data))
	o.busy.keep(o.record.Session, len(e.Data))
	err := o.store.AppendEvent(ctx, o.record.Key, e, o.record.Expires)
	for range maxLost {
		if !errors.Is(err, store.ErrConflict) {
			break
		}
		// A put that failed, and happened all the same: its messages went out without ids. We number on.
		o.seq = e.Seq
		e.Seq++
		err = o.store.AppendEvent(ctx, o.record.Key, e, o.record.Expires)
	}
	if err != nil {
		return nil, err
	}
	o.seq = e.Seq
	return signAll(o.keys, o.id, e, len(msgs)), nil
}

// finish stores the response, once for the exchange: if somebody has declared this process dead meanwhile, the response is
// what that one has written, and it is given back.
func (o *outbox) finish(ctx context.Context, response json.RawMessage) (json.RawMessage, string, error) {
	final := store.Event{Seq: store.Final, Data: pack([]json.RawMessage{response})}
	o.busy.keep(o.record.Session, len(final.Data))
	err := o.store.AppendEvent(ctx, o.record.Key, final, o.record.Expires)
	if errors.Is(err, store.ErrConflict) {
		events, readErr := o.store.Events(ctx, o.record.Key, store.Final-1, 0)
		if readErr != nil {
			return nil, "", readErr
		}
		if len(events) == 1 {
			var msgs []json.RawMessage
			if msgs, err = unpack(events[0].Data); err == nil {
				response = msgs[0]
			}
		}
	}
	if err != nil {
		return nil, "", err
	}
	id := o.id
	id.Seq = store.Final
	return response, o.sign(id), nil
}

// beat renews the lease.
func (o *outbox) beat(ctx context.Context) error {
	o.record.Lease = time.Now().Add(lease)
	return update(ctx, o.store, o.record)
}

// update stores the record of an exchange that we own. A conflict may come from a write of ours that happened although it
// failed: the exchange is still ours then.
func update(ctx context.Context, st store.Store, x *store.Exchange) error {
	err := st.UpdateExchange(ctx, x)
	if !errors.Is(err, store.ErrConflict) {
		return err
	}
	now, readErr := st.Exchange(ctx, x.Key)
	if readErr != nil {
		return readErr
	}
	if now.Owner != x.Owner {
		return err
	}
	x.Revision = now.Revision
	return st.UpdateExchange(ctx, x)
}

// signAll gives the ids of an event's messages. An id says what the client then has: after the last message, the event.
func signAll(keys keyring, base eventID, e store.Event, messages int) []string {
	ids := make([]string, messages)
	for i := range ids {
		id := base
		if i+1 == messages {
			id.Seq = e.Seq
		} else {
			id.Seq, id.Part = e.Seq-1, i+1
		}
		ids[i] = keys.sign(purposeEvent, id)
	}
	return ids
}

// pack puts messages, at least one, into an event, each as it is.
func pack(msgs []json.RawMessage) []byte {
	out := []byte{'['}
	for i, m := range msgs {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, m...)
	}
	return append(out, ']')
}

// unpack gives the messages of an event, which may have been written by anybody who can write the store.
func unpack(data []byte) ([]json.RawMessage, error) {
	if json.Valid(data) {
		if msgs := slices.Collect(rawjson.Elements(data)); len(msgs) > 0 {
			return msgs, nil
		}
	}
	return nil, store.Wrap("read an event", store.ErrCorrupt, nil)
}
