package handler

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/hydrant-mcp/hydrant/store"
)

// A reader is the reading end of an outbox: a GET with Last-Event-ID, on any instance (2025-11-25, basic/transports,
// resumability and redelivery).
type reader struct {
	*answer
	keys   keyring
	at     eventID // what the client has
	record *store.Exchange
	data   exchangeData

	session     *store.Session
	sessionRead time.Time
	ended       bool // the session, by its client

	round   *roundData // that is asking
	roundNo int
	got     json.RawMessage // of its answers

	looked  time.Time // at the record
	waiting time.Time // since when nothing new has come

	watched   watched // what comes next
	watchedAt place
	told      bool // of something that has not been seen
}

// A place is what comes next for a reader: the event after a position, the answers of a round.
type place struct {
	seq   int64
	round int
}

// watch has the store tell of what comes next, if it can. It says whether the watching has only begun: what has come
// meanwhile is told by nobody.
func (r *reader) watch(ctx context.Context) (begun bool) {
	at := place{r.at.Seq, -1}
	w := store.Watched{Exchange: r.at.Exchange, After: r.at.Seq}
	if r.record != nil && r.record.State == stateAsking && r.round != nil {
		at.round = r.roundNo
		for _, slot := range r.round.Slots {
			w.Slots = append(w.Slots, store.Slot{Exchange: r.at.Exchange, Question: slot})
		}
		w.Session = r.session.Key // the client may cancel
	}
	if at == r.watchedAt && (r.watched.tells() || r.watched.refused()) {
		return false
	}
	r.watched.begin(ctx, r.h.store, w)
	r.watchedAt, r.told = at, r.watched.changed != nil
	return r.told
}

// resume sends what follows the event that the client has, and ends with the response.
func (e legacySessions) resume(ctx context.Context, a *answer) *failure {
	token, f := a.one(headerLastEvent)
	if f != nil {
		return f
	}
	s, f := a.session(ctx)
	if f != nil {
		if f.status == http.StatusServiceUnavailable && e.h.pollAgain(a, token) {
			e.h.log(a.request, f)
			return nil
		}
		return f
	}
	keys, err := e.h.keys(ctx)
	if err != nil {
		return errStore(err)
	}
	r := &reader{answer: a, keys: keys, session: s, sessionRead: time.Now(), waiting: time.Now()}
	// One and the same for an id that is malformed, forged, too old or another session's: there is nothing to be learnt.
	if !keys.open(purposeEvent, token, &r.at) || !r.at.belongs(s.Key, a.principal) || r.at.over(time.Now()) {
		return errInvalid("there is no stream with this Last-Event-ID")
	}
	if f := a.admitTool("tools/call", r.at.Tool); r.at.Tool != "" && f != nil {
		return f
	}
	if r.at.final() {
		a.open()
		return nil // it has everything
	}
	a.open()
	done, f := e.h.busy.stream(s.Key, &e.h.opts)
	if f != nil { // some clients would give up the session: this one comes back
		e.h.log(a.request, f)
		r.leave(ctx, pollSlow)
		return nil
	}
	defer done()
	e.h.telemetry.resumed(ctx)
	r.follow(ctx)
	return nil
}

// pollAgain answers the GET of a stream while the store cannot be reached: some clients give up the whole session on an
// error here. The event id itself says that the stream is theirs.
func (h *Handler) pollAgain(a *answer, token string) bool {
	keys := h.knownKeys()
	var id eventID
	key := sessionKey(a.name, a.http.Header.Get(headerSession))
	if keys == nil || !keys.open(purposeEvent, token, &id) || !id.belongs(key, a.principal) || id.over(time.Now()) || id.final() {
		return false
	}
	a.open()
	a.writeEvent(id.renewed(keys), pollSlow, encodeWaiting(nil, 0))
	return true
}

// renewed gives an id that says the same, and is another.
func (e eventID) renewed(keys keyring) string {
	e.Nonce = newKey()[:8]
	return keys.sign(purposeEvent, e)
}

// encodeWaiting gives a message that says nothing, to be sent with an event id: clients ignore an id that comes without
// data. A client that follows the progress of its call gets that, because it may take it for a sign of life.
func encodeWaiting(token json.RawMessage, since time.Duration) json.RawMessage {
	if token != nil {
		params := concat([]byte(`{"progressToken":`), token, []byte(`,"progress":`), encode(since.Seconds()), []byte(`}`))
		return encodeNotification("notifications/progress", params)
	}
	return encodeNotification("notifications/message", json.RawMessage(`{"level":"debug","logger":"hydrant","data":"waiting"}`))
}

const (
	pollFast = time.Second     // while an answer may be near
	pollSlow = 2 * time.Second // after that, and
	pollIdle = 5 * time.Second // after a minute
	// holdFor is how long a GET waits on a runtime that does not stream, where holding is wanted.
	holdFor = 20 * time.Second
)

// follow sends events until the response, or until the stream has to end.
func (r *reader) follow(ctx context.Context) {
	ctx, stop := r.deadline(ctx)
	defer stop()
	began := time.Now()
	defer func() { r.watched.stop() }()
	alive := time.NewTicker(keepAlive)
	defer alive.Stop()
	look := newTimer(0)
	defer look.Stop()
	for {
		done, err := r.step(ctx)
		if done {
			return
		}
		if errors.Is(err, store.ErrCorrupt) { // whoever came back would find the same
			f := errStore(err)
			r.h.log(r.request, f)
			r.end(f.encode(r.at.ID))
			return
		}
		if r.runtime.Buffered && (!r.h.opts.HoldPolls || time.Since(began) > holdFor) {
			r.leave(ctx, r.pollDelay())
			return
		}
		if err != nil && ctx.Err() == nil { // the client comes back to us, or to another instance
			r.h.log(r.request, errStore(err))
			r.leave(ctx, pollSlow)
			return
		}
		if r.watch(ctx) {
			continue
		}
		look.Reset(pace(time.Since(r.waiting), false))
		if r.watched.changed != nil {
			look.Reset(leaseLook)
		}
	wait:
		for {
			select {
			case <-alive.C:
				r.comment()
			case <-r.watched.changed:
				r.told = true
				break wait
			case <-look.C:
				break wait
			case <-r.runtime.Draining:
				r.leave(ctx, pollFast)
				return
			case <-ctx.Done():
				if _, ok := errors.AsType[limit](context.Cause(ctx)); ok {
					r.leave(ctx, pollFast)
				}
				return
			}
		}
	}
}

// leave ends the stream before its response: with a place to come back to, and when.
func (r *reader) leave(ctx context.Context, retry time.Duration) {
	r.writeEvent(r.at.renewed(r.keys), retry, encodeWaiting(r.data.Token, r.elapsed()))
}

// pollDelay is when a client is to come back that we do not hold.
func (r *reader) pollDelay() time.Duration {
	switch waited := r.elapsed(); {
	case waited < 10*time.Second:
		return pollFast
	case waited < time.Minute:
		return pollSlow
	}
	return pollIdle
}

func (r *reader) elapsed() time.Duration {
	if r.data.Started == 0 {
		return 0
	}
	return time.Since(time.Unix(r.data.Started, 0))
}

// step sends what there is. done says that the stream is over.
func (r *reader) step(ctx context.Context) (done bool, err error) {
	for {
		events, err := r.h.store.Events(ctx, r.at.Exchange, r.at.Seq, 0)
		if err != nil {
			return false, err
		}
		for _, e := range events {
			r.told = false
			if err := r.send(e); err != nil {
				return false, err
			}
			if e.Seq == store.Final || r.broken {
				return true, nil
			}
		}
		if len(events) == 0 {
			break
		}
	}
	if r.record == nil || r.told || time.Since(r.looked) >= leaseLook { // told, and it was no event
		if done, err := r.look(ctx); done || err != nil {
			return done, err
		}
	}
	if r.record != nil && r.record.State == stateAsking {
		return r.continueRound(ctx)
	}
	return false, nil
}

// send sends an event's messages, but those that the client has already.
func (r *reader) send(e store.Event) error {
	msgs, err := unpack(e.Data)
	if err != nil {
		return err
	}
	ids := signAll(r.keys, r.at.base(), e, len(msgs))
	for i := range msgs {
		if i >= r.at.Part {
			r.writeEvent(ids[i], 0, msgs[i])
		}
	}
	r.at.Seq, r.at.Part = e.Seq, 0
	r.waiting = time.Now()
	return nil
}

func (e eventID) base() eventID {
	e.Seq, e.Part, e.Nonce = 0, 0, ""
	return e
}

// look sees whether whoever runs the exchange still lives.
func (r *reader) look(ctx context.Context) (done bool, err error) {
	record, err := r.h.store.Exchange(ctx, r.at.Exchange)
	if errors.Is(err, store.ErrNotFound) {
		r.end(unfinished(r.at.Call, r.at.ID,
			"The call is not known any more: what was kept of it has expired. It may have run, fully or in part."))
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if record.Session != r.session.Key {
		return true, nil
	}
	r.looked, r.record, r.told = time.Now(), record, false
	r.at.Until = max(r.at.Until, record.Expires.Unix()) // each round of questions keeps it longer
	if r.data.Method == "" {
		if err := json.Unmarshal(record.Data, &r.data); err != nil {
			return false, store.Wrap("read an exchange", store.ErrCorrupt, err)
		}
	}
	if record.State != stateRunning || time.Now().Before(record.Lease) {
		return false, nil
	}
	r.record = nil
	// The process that ran it has died, or was cut off from the store for as long. Nobody knows how far the call has come,
	// so it is not run again; and if its response turns up after all, it does in this very slot, or not at all.
	err = interrupt(ctx, r.h.store, record, r.data)
	if err != nil && !errors.Is(err, store.ErrConflict) {
		return false, err
	}
	return false, nil // the next step finds the final event
}

// end ends the stream with a response that is not in the store.
func (r *reader) end(response json.RawMessage) {
	id := r.at
	id.Seq, id.Part = store.Final, 0
	r.writeEvent(id.renewed(r.keys), 0, response)
}

// unfinished is the response of a request that has no other: a tool's result where it called one.
func unfinished(call bool, id json.RawMessage, why string) json.RawMessage {
	if call {
		return encodeResult(id, toolError(why))
	}
	return refuse(http.StatusOK, jsonrpc.CodeInternalError, levelFault, "%s", why).encode(id)
}

const interruptedText = "The call was interrupted: the process that ran it has ended before it was done. It may have run, fully " +
	"or in part. It was not run again."

// interrupt writes the response of a call whose process has died.
func interrupt(ctx context.Context, st store.Store, record *store.Exchange, data exchangeData) error {
	response := unfinished(data.Method == "tools/call", data.ID, interruptedText)
	return st.AppendEvent(ctx, record.Key, store.Event{Seq: store.Final, Data: pack([]json.RawMessage{response})}, record.Expires)
}

// toolError is the result of a tool that failed.
func toolError(text string) json.RawMessage {
	return concat([]byte(`{"content":[{"type":"text","text":`), encode(text), []byte(`}],"isError":true}`))
}
