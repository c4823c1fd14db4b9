package handler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/hydrant-mcp/hydrant/engine"
	"github.com/hydrant-mcp/hydrant/internal/rawjson"
	"github.com/hydrant-mcp/hydrant/store"
)

// Suspension: a handler of a 2025-11-25 client returns InputRequests, and while the client finds the answers nothing runs.
// The POST's stream carries the questions and ends; the client answers by POST and comes back with Last-Event-ID, to any
// instance. Whoever finds all answers of a round claims the exchange and calls the handler again:
//
//	asking(n) -> running(owner, lease) -> asking(n+1) | done
//
// Each step is a compare-and-swap, so that each round runs once. docs/streams.md has the sequence, and what real clients
// need on the wire.

// AskMode is how a handler's questions (InputRequests) are put to clients of 2025-11-25.
type AskMode int

const (
	// AskAuto holds where the runtime streams, and suspends elsewhere. The default.
	AskAuto AskMode = iota
	// AskHold keeps the call running while the client answers. Only a runtime that streams can do that.
	AskHold
	// AskSuspend ends the response with the questions, and calls the handler again when the answers are there. The handler
	// sees a request of protocol 2026-07-28; asking through its session fails.
	AskSuspend
)

// suspends says whether a request's questions would suspend it.
func (x *exchange) suspends() bool {
	key, ok := nameKey[x.msg.method]
	if !ok || x.session == nil || x.shared != nil || x.session.ProtocolVersion != version20251125 || !x.accept.stream {
		return false
	}
	if !canAnswer(capabilities(x.session)) {
		return false
	}
	mode := x.h.opts.Ask
	if x.h.opts.AskFor != nil {
		mode = x.h.opts.AskFor(x.msg.method, stringParam(x.msg, key))
	}
	return mode == AskSuspend || mode == AskAuto && x.runtime.Buffered
}

// canAnswer says whether a client has declared anything that it can be asked for.
func canAnswer(caps json.RawMessage) bool {
	for _, name := range []string{"elicitation", "sampling", "roots"} {
		if _, ok := rawjson.Get(caps, name); ok {
			return true
		}
	}
	return false
}

// A suspension is the end of a round with questions.
type suspension struct {
	round    int
	requests json.RawMessage // by key
	state    json.RawMessage // the handler's requestState, nil without one
}

func (s *suspension) Error() string { return fmt.Sprintf("round %d asks the client", s.round) }

// roundData is what the inbox keeps of a round.
type roundData struct {
	State   json.RawMessage   `json:"state,omitempty"`
	Slots   map[string]string `json:"slots"`   // of the answers, by key
	Request json.RawMessage   `json:"request"` // the params of the client's request
}

func slotRound(n int) string { return fmt.Sprintf("round.%d", n) }

// runSuspendable runs one round on modern state: there, questions end the round.
func (e legacySessions) runSuspendable(ctx context.Context, x *exchange, out engine.Client) (json.RawMessage, error) {
	if x.request0 == nil {
		x.request0 = x.msg.params
	}
	m := x.message(nil)
	m.Params = modernParams(x.msg.params, x.session)
	result, err := x.engine.Call(ctx, m, out)
	if err != nil {
		return nil, err
	}
	requests, ok := rawjson.Get(result, "inputRequests")
	if !ok {
		return legacyResult(x.msg.method, result), nil
	}
	if rawjson.IsEmpty(requests) {
		return nil, errServerBusy
	}
	if missing := undeclared(requests, capabilities(x.session)); len(missing) > 0 {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest,
			Message: "the client cannot be asked: it has not declared the capability: " + string(encode(missing))}
	}
	if x.round >= maxRounds {
		return nil, errTooManyRounds
	}
	s := &suspension{round: x.round + 1, requests: requests}
	if state, ok := rawjson.Get(result, "requestState"); ok {
		s.state = state
	}
	return nil, s
}

// modernParams makes a request describe itself as a modern one does.
func modernParams(params json.RawMessage, s *store.Session) json.RawMessage {
	meta, _ := rawjson.Get(params, metaKey)
	caps := capabilities(s)
	if !rawjson.IsObject(caps) {
		caps = json.RawMessage("{}")
	}
	meta = rawjson.Set(meta, metaCapabilities, caps)
	meta = rawjson.Set(meta, metaVersion, encode(version20260728))
	if info, ok := rawjson.Get(s.InitializeParams, "clientInfo"); ok && rawjson.IsObject(info) {
		meta = rawjson.Set(meta, metaClientInfo, info)
	}
	if s.LogLevel != "" {
		meta = rawjson.Set(meta, metaLogLevel, encode(s.LogLevel))
	}
	return rawjson.Set(params, metaKey, meta)
}

// legacyResult takes away what modern state adds to a result.
func legacyResult(method string, result json.RawMessage) json.RawMessage {
	result = rawjson.Delete(withoutState(method, result), "resultType")
	if method == "resources/read" {
		result = rawjson.Delete(result, "ttlMs", "cacheScope")
	}
	meta, ok := rawjson.Get(result, metaKey)
	if !ok {
		return result
	}
	if meta = rawjson.Delete(meta, metaServerInfo); rawjson.IsEmpty(meta) {
		return rawjson.Delete(result, metaKey)
	}
	return rawjson.Set(result, metaKey, meta)
}

// suspend stores a round's questions, sends them and ends the response.
func (c *call) suspend(ctx context.Context, s *suspension) *failure {
	ctx, stop := toStore(ctx)
	defer stop()
	if c.box == nil {
		box, err := c.x.newOutbox(ctx, stateAsking)
		if err != nil {
			return errUnasked(err)
		}
		c.box = box
	}
	record, fresh := c.box.record, c.box.record.Revision == nil
	msgs, err := c.storeRound(ctx, s)
	if err != nil {
		return errUnasked(err)
	}
	until := time.Now().Add(c.h.opts.AskTimeout)
	record.Expires = until.Add(c.h.opts.CallTimeout + retention)
	c.box.id.Until = record.Expires.Unix()
	var ids []string
	err = persist(ctx, func() (err error) {
		ids, err = c.box.put(ctx, msgs)
		return err
	})
	if err != nil {
		return errUnasked(err)
	}
	// Only now may somebody find the record asking: everything that it asks with is there, the questions too. A process that
	// died in between would leave a client waiting for one that never comes.
	record.State, record.Round, record.Lease = stateAsking, s.round, until
	err = persist(ctx, func() error {
		if fresh {
			return ours(c.h.store.CreateExchange(ctx, record))
		}
		return update(ctx, c.h.store, record)
	})
	// Only its owner could change the record before: if it is somebody else's now, we have, and the next round is claimed.
	if err != nil && !errors.Is(err, store.ErrConflict) {
		return errUnasked(err)
	}
	c.open()
	for i, msg := range msgs {
		c.writeEvent(ids[i], pollFast, msg)
	}
	return nil
}

// ours takes it that something is there which only we can have stored: the write happened although it failed.
func ours(err error) error {
	if errors.Is(err, store.ErrExists) {
		return nil
	}
	return err
}

// errUnasked ends a call whose questions could not be stored. The handler has run: the client must not repeat it unaware.
func errUnasked(err error) *failure {
	f := errStore(err)
	if !errors.Is(err, store.ErrUnavailable) {
		return f
	}
	return refuse(http.StatusOK, jsonrpc.CodeInternalError, levelFault, "the client could not be asked: the store cannot be "+
		"reached, and so its answer could not be either. The call has run up to its question, and was not run again").because(err)
}

// storeRound stores what the next round needs, and gives the questions as messages.
func (c *call) storeRound(ctx context.Context, s *suspension) ([]json.RawMessage, error) {
	record := c.box.record
	until := time.Now().Add(c.h.opts.AskTimeout + c.h.opts.CallTimeout + retention)
	data := roundData{State: s.state, Slots: map[string]string{}, Request: orNull(c.x.request0)}
	var msgs []json.RawMessage
	for key, request := range rawjson.Members(s.requests) {
		q := &question{slot: fmt.Sprintf("%d.%d", s.round, len(msgs))}
		q.method, q.params = questionOf(request)
		data.Slots[key] = q.slot
		msgs = append(msgs, encodeQuestion(c.box.keys, record, q))
	}
	return msgs, persist(ctx, func() error {
		return ours(c.h.store.PutAnswer(ctx, record.Key, slotRound(s.round), encode(data), until))
	})
}

// continueRound calls the handler again when the answers of a round are there, if nobody else does. done says that it has,
// and that this response is over.
func (r *reader) continueRound(ctx context.Context) (done bool, err error) {
	record := r.record
	if err := r.refresh(ctx); err != nil {
		return false, err
	}
	responses, complete, err := r.collect(ctx, record)
	if err != nil {
		return false, err
	}
	var ended json.RawMessage
	switch {
	case r.cancelled():
		ended = errCancelledCall().encode(r.data.ID)
	case !complete && time.Now().Before(record.Lease):
		return false, nil
	case !complete:
		ended = encodeResult(r.data.ID, toolError(
			"The question was not answered in time. The call has ended; nothing of it is left running."))
	}
	raw := r.round.Request
	x := &exchange{
		request: r.request, era: legacySessions{r.h}, session: r.session, key: r.session.Key, round: record.Round, suspendable: true,
		msg: message{kind: aRequest, id: r.data.ID, method: r.data.Method, params: raw}, request0: raw,
	}
	x.msg.meta, _ = rawjson.Get(raw, metaKey)
	// From here on it is ours, whether the client stays or not.
	call, stop := x.context()
	defer stop()
	if claimed, err := claim(call, r.h.store, record); err != nil || !claimed {
		r.record = nil // somebody else does it, or may do it; we see what comes of it
		return false, err
	}
	box := &outbox{store: r.h.store, keys: r.keys, record: record, id: r.at.base(), seq: r.at.Seq, busy: &r.h.busy}
	if ended != nil {
		_, _, err := box.finish(call, ended)
		return false, err // the next step delivers it
	}
	x.msg.params = nextRound(raw, responses.result, responses.answers)
	if f := r.conductFrom(call, x, box); f != nil { // it has been claimed: whoever asks again must find an end
		r.h.log(r.request, f)
		if f.cause == nil || !errors.Is(f.cause, store.ErrUnavailable) {
			_, _, err := box.finish(call, f.encode(r.data.ID))
			return false, err
		}
		return false, f.cause
	}
	return true, nil
}

// refresh reads the session again, if this reader has waited since it did. One that has ended meanwhile has cancelled the call.
func (r *reader) refresh(ctx context.Context) error {
	if time.Since(r.sessionRead) < pollFast {
		return nil
	}
	now := time.Now()
	s, err := r.h.store.Session(ctx, r.session.Key)
	if errors.Is(err, store.ErrNotFound) {
		s, err = nil, nil
	}
	if err == nil {
		r.ended, r.sessionRead = s == nil && now.Before(r.session.Expires), now
		if s != nil {
			r.session = s
		}
	}
	return err
}

// cancelled says whether the client has cancelled the call.
func (r *reader) cancelled() bool {
	return r.ended || r.data.Cancels != nil && cancelledSince(r.session, *r.data.Cancels, r.data.ID)
}

// claim makes an exchange ours that waits for its next round. A claim that fails may have happened all the same: then it is
// ours, and nobody else will go on with it.
func claim(ctx context.Context, st store.Store, record *store.Exchange) (bool, error) {
	record.State, record.Owner, record.Lease = stateRunning, newKey(), time.Now().Add(lease)
	err := st.UpdateExchange(ctx, record)
	if err == nil {
		return true, nil
	}
	for range claimReads {
		now, readErr := st.Exchange(ctx, record.Key)
		if readErr == nil {
			record.Revision = now.Revision
			return now.Owner == record.Owner, nil
		}
	}
	if errors.Is(err, store.ErrConflict) {
		return false, nil
	}
	return false, err
}

const claimReads = 5

// collected are the answers of a round, and the state that the handler gets back with them.
type collected struct{ answers, result json.RawMessage }

// collect reads the answers of the round that is asking; complete says that all are there.
func (r *reader) collect(ctx context.Context, record *store.Exchange) (c collected, complete bool, err error) {
	if r.round == nil || r.roundNo != record.Round {
		raw, err := r.h.store.Answer(ctx, record.Key, slotRound(record.Round))
		if err != nil {
			return c, false, err
		}
		r.round, r.roundNo = &roundData{}, record.Round
		if err := json.Unmarshal(raw, r.round); err != nil {
			return c, false, store.Wrap("read a round", store.ErrCorrupt, err)
		}
		r.got = json.RawMessage(`{}`)
	}
	for key, slot := range r.round.Slots {
		if _, ok := rawjson.Get(r.got, key); ok {
			continue
		}
		result, failed, ok, err := readAnswer(ctx, r.h.store, record.Key, slot)
		if err != nil {
			return c, false, err
		}
		if !ok {
			return c, false, nil
		}
		if failed != nil {
			// A client that cannot answer says so with an error; a modern one would cancel.
			result = json.RawMessage(`{"action":"cancel"}`)
		}
		r.got = rawjson.Set(r.got, key, result)
	}
	c = collected{answers: r.got, result: json.RawMessage(`{}`)}
	if r.round.State != nil {
		c.result = rawjson.Set(c.result, "requestState", r.round.State)
	}
	return c, true, nil
}
