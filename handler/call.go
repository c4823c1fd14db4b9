package handler

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/hydrant-mcp/hydrant/engine"
	"github.com/hydrant-mcp/hydrant/internal/rawjson"
	"github.com/hydrant-mcp/hydrant/store"
)

// A policy is how a request may be answered over a stream.
type policy struct {
	// inline: it is never a stream before its response.
	inline bool
	// durable: the stream can be resumed; its events are in the store before they are sent.
	durable bool
	// prime: the stream begins with an event that is only an id, so that a cut in mid-call can be resumed. Clients before
	// 2025-11-25 take such an event for a message that is no JSON.
	prime bool
	// after is how long the call may be silent before its answer becomes a stream. Zero: for ever.
	after time.Duration
}

// A call is a request that runs: the engine on one side, the client on the other, the store in between. All its methods run
// on the goroutine of the HTTP request.
type call struct {
	*answer
	x      *exchange
	policy policy
	out    *outgoing
	cancel context.CancelCauseFunc
	box    *outbox // nil while the stream cannot be resumed
	failed bool    // the store has refused an event
	late   []item  // what could not be sent before the response

	session string // its key; "" without one
	pending map[string]*question
	asked   time.Time // the last question
	told    watched
	toldOf  int       // of how many questions, from the first on
	cancels int64     // the session's cancellations that are none of ours
	beaten  time.Time // when the lease was renewed
	lives   time.Time // how long the session does, at least, unless the client ends it
}

// outcome is what has become of a call: a result, questions, or a failure.
type outcome struct {
	result json.RawMessage
	asks   *suspension
	f      *failure
}

// storeWait bounds a write that has to happen although the call's own context may have ended.
const storeWait = 5 * time.Second

func toStore(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), storeWait)
}

// persist repeats a write that the store could not take, while ctx lasts. A write that failed may have happened all the
// same: write has to allow for that.
func persist(ctx context.Context, write func() error) error {
	for wait := storeRetry; ; wait = min(2*wait, storeRetryMost) {
		err := write()
		if !errors.Is(err, store.ErrUnavailable) {
			return err
		}
		if pause(ctx, wait); ctx.Err() != nil {
			return err
		}
	}
}

// pause waits, unless ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

var (
	errCancelled = errors.New("the client has cancelled the request")
	errShutdown  = errors.New("the server is shutting down")
)

// conduct runs a request and answers it.
func (a *answer) conduct(ctx context.Context, x *exchange, state *engine.State) *failure {
	c := &call{answer: a, x: x, policy: x.era.policy(x)}
	return c.conduct(ctx, state)
}

// conductFrom goes on with an exchange that has an outbox already.
func (a *answer) conductFrom(ctx context.Context, x *exchange, box *outbox) *failure {
	c := &call{answer: a, x: x, policy: x.era.policy(x), box: box}
	return c.conduct(ctx, nil)
}

func (c *call) conduct(ctx context.Context, state *engine.State) *failure {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	x := c.x
	c.cancel, c.pending, c.beaten = cancel, map[string]*question{}, time.Now()
	c.out = newOutgoing(c.mayAsk)
	if x.session != nil {
		x.key = x.session.Key // what a request changes of its session is nobody else's to read meanwhile
		c.session, c.cancels, c.lives = x.key, x.session.Cancels, x.session.Expires
	}
	x.hang = make(chan time.Duration, 1)
	done := make(chan outcome, 1)
	go func() {
		defer func() { // here nobody else would keep it from ending the process
			if p := recover(); p != nil {
				done <- outcome{f: errPanic(p, debug.Stack())}
			}
		}()
		result, err := x.era.run(ctx, x, state, c.out)
		if asks, ok := errors.AsType[*suspension](err); ok {
			done <- outcome{asks: asks}
			return
		}
		if err != nil {
			done <- outcome{f: errCall(cause(ctx, err), x.era.status)}
			return
		}
		result, f := x.era.settle(ctx, x, result)
		done <- outcome{result: result, f: f}
	}()
	return c.finish(ctx, c.relay(ctx, done))
}

// relay passes on what the server sends, until the call is done.
func (c *call) relay(ctx context.Context, done <-chan outcome) outcome {
	alive, beat := time.NewTicker(keepAlive), time.NewTicker(heartbeat)
	defer alive.Stop()
	defer beat.Stop()
	silence := newTimer(c.policy.after)
	defer silence.Stop()
	look := newTimer(0) // for cancellations and answers
	defer look.Stop()
	if c.session != "" {
		look.Reset(cancelAfter)
	}
	if c.policy.durable && c.mayStream() && !c.accept.json {
		c.begin(ctx) // it becomes a stream anyway: then one that can be resumed from its start
	}
	defer func() { c.told.stop() }()
	c.before = func() { // a client that hardly reads does not make this a call whose process is dead
		if time.Since(c.beaten) >= heartbeat/2 {
			c.beat(ctx)
		}
	}
	defer func() { c.before = nil }()
	for {
		select {
		case <-c.out.ready:
			asked := len(c.pending)
			c.forward(ctx)
			silence.Stop()
			if len(c.pending) > asked { // only then: a tool that talks all the time must not keep us from looking
				look.Reset(pace(time.Since(c.asked), c.toldAll()))
			}
		case <-silence.C:
			if c.mayStream() {
				c.begin(ctx)
			}
		case <-alive.C:
			if c.streaming {
				c.comment()
			}
		case <-beat.C:
			beat.Reset(c.beat(ctx))
		case retry := <-c.x.hang:
			c.hangUp(ctx, retry)
		case <-c.told.changed:
			look.Reset(c.lookAround(ctx))
		case <-look.C:
			c.watch(ctx)
			look.Reset(c.lookAround(ctx))
		case o := <-done:
			c.forward(ctx) // what came before the response
			return o
		}
	}
}

// mayStream says whether something can go out before the response.
func (c *call) mayStream() bool { return c.streams() && !c.policy.inline }

// newTimer makes a timer that has not been started when d is zero.
func newTimer(d time.Duration) *time.Timer {
	t := time.NewTimer(max(d, time.Hour))
	t.Stop()
	if d > 0 {
		t.Reset(d)
	}
	return t
}

// begin turns the answer into a stream, resumable where it can be.
func (c *call) begin(ctx context.Context) {
	if c.streaming {
		return
	}
	if c.policy.durable {
		ctx, stop := toStore(ctx)
		defer stop()
		if box, err := c.x.openOutbox(ctx); err != nil {
			c.unresumable(ctx, err)
		} else {
			c.box, c.beaten = box, time.Now()
		}
	}
	c.open()
	if c.box != nil && c.policy.prime {
		c.writeEvent(c.box.sign(c.box.id), 0, nil)
	}
}

func (c *call) unresumable(ctx context.Context, err error) {
	if !c.failed {
		c.failed = true
		c.h.opts.Logger.ErrorContext(ctx, "the store refused an event: this stream cannot be resumed from here on",
			"session", logID(c.session), "error", err)
	}
}

// forward sends what the server has sent. What can be resumed is in the store before its first byte leaves.
func (c *call) forward(ctx context.Context) {
	items, dropped := c.out.take()
	if dropped > 0 {
		c.h.opts.Logger.WarnContext(ctx, "notifications were dropped: the client does not read", "count", dropped)
	}
	if len(items) == 0 {
		return
	}
	if !c.mayStream() { // there is no way to tell the client before the response; questions have been refused already
		if c.h.opts.LateNotifications && c.accept.stream && len(c.late)+len(items) <= maxQueue {
			c.late = append(c.late, items...)
		}
		return
	}
	c.begin(ctx)
	var msgs []json.RawMessage
	for _, it := range items {
		if it.question != nil {
			if c.box == nil {
				it.question.fail("the store cannot be reached, and so the client's answer could not be either")
				continue
			}
			it.msg = c.sign(it.question)
		}
		msgs = append(msgs, it.msg)
	}
	var ids []string
	asks := slices.ContainsFunc(items, func(it item) bool { return it.question != nil })
	full := !asks && c.full() // the client's answer needs its question
	if c.box != nil && len(msgs) > 0 && !full {
		storeCtx, stop := toStore(ctx)
		defer stop()
		put := func() (err error) {
			ids, err = c.box.put(storeCtx, msgs)
			return err
		}
		var err error
		if asks { // without its question in the store, the tool would fail
			err = persist(storeCtx, put)
		} else {
			err = put()
		}
		if err != nil {
			c.unresumable(ctx, err)
			msgs = c.withoutQuestions(items)
		}
	}
	for i, msg := range msgs {
		if ctx.Err() != nil {
			return // the call is over, however much its client has yet to read
		}
		id := ""
		if ids != nil {
			id = ids[i]
		}
		c.writeEvent(id, 0, msg)
	}
}

// full says whether no more of the call's stream is to be kept.
func (c *call) full() bool {
	return c.box != nil && (c.box.stored >= c.h.opts.MaxStored || !c.h.busy.mayKeep(c.box.record.Session, &c.h.opts))
}

// withoutQuestions fails the questions that could not be stored: an answer to them would find nobody.
func (c *call) withoutQuestions(items []item) (msgs []json.RawMessage) {
	for _, it := range items {
		if it.question == nil {
			msgs = append(msgs, it.msg)
			continue
		}
		delete(c.pending, it.question.slot)
		it.question.fail("the store refused the question")
	}
	return msgs
}

// beat says that the call lives, and gives how soon to say so again.
func (c *call) beat(ctx context.Context) time.Duration {
	c.beaten = time.Now()
	if c.box == nil {
		return heartbeat
	}
	ctx, stop := toStore(ctx)
	defer stop()
	if err := c.box.beat(ctx); err != nil {
		c.h.opts.Logger.WarnContext(ctx, "the lease of a stream could not be renewed",
			"session", logID(c.session), "error", err)
		return heartbeatAgain
	}
	return heartbeat
}

// finish answers with what has become of the call.
func (c *call) finish(ctx context.Context, o outcome) *failure {
	for _, q := range c.pending {
		q.fail("the call is over")
	}
	if c.x.minted != "" {
		c.w.Header().Set(headerSession, c.x.minted)
	}
	cancelled := errors.Is(context.Cause(ctx), errCancelled)
	if o.asks != nil && !cancelled {
		if o.f = c.suspend(ctx, o.asks); o.f == nil {
			return nil
		}
	}
	if o.f != nil && !c.streaming && !cancelled {
		return o.f
	}
	var response json.RawMessage
	switch {
	case cancelled:
		c.x.op.failed(errCancelledCall())
		response = errCancelledCall().encode(c.x.msg.id)
	case o.f != nil:
		c.h.log(c.request, o.f)
		c.x.op.failed(o.f)
		response = o.f.encode(c.x.msg.id)
	default:
		c.x.op.responded(o.result)
		response = c.bounded(encodeResult(c.x.msg.id, o.result), c.x.msg.id)
	}
	c.sendLate(response)
	if !c.streaming {
		c.respond(response)
		return nil
	}
	id := ""
	if c.box != nil {
		outer := context.WithoutCancel(ctx)
		if deadline, ok := ctx.Deadline(); ok {
			var end context.CancelFunc
			outer, end = context.WithDeadline(outer, deadline)
			defer end()
		}
		ctx, stop := toStore(ctx)
		defer stop()
		stored, signed, err := c.box.finish(ctx, response)
		if errors.Is(err, store.ErrTooLarge) {
			// Whoever is attached gets it all the same; whoever comes back is told why there is nothing.
			_, _, err = c.box.finish(ctx, errResponseSize(int64(len(response)), store.MaxEvent).encode(c.x.msg.id))
			stored = response
		}
		switch {
		case err == nil:
			response, id = stored, signed
		case errors.Is(err, store.ErrUnavailable):
			c.writeEvent("", 0, response) // whoever is attached does not wait for the store
			if err := c.storeLate(outer, response); err != nil {
				c.unresumable(ctx, err)
			}
			return nil
		default:
			c.unresumable(ctx, err)
		}
	}
	// Also of a cancelled call: an error, and no result. Without one, clients that hold an event id would poll for ever.
	c.writeEvent(id, 0, response)
	return nil
}

// sendLate sends what could not go out before the response, as far as it fits beside it.
func (c *call) sendLate(response json.RawMessage) {
	room := int64(math.MaxInt64)
	if most := c.runtime.MaxResponse; most > 0 {
		room = most - int64(len(response)) - frameOverhead
	}
	for _, it := range c.late {
		if room -= int64(len(it.msg)) + frameOverhead; room < 0 {
			return
		}
		c.event(it.msg)
	}
}

// frameOverhead is more than an event's own lines take.
const frameOverhead = 64

// storeLate stores the response when the store is back. Without a client it is the only one that there will ever be, and is
// worth waiting for as long as the call may last; with one, it may be that the client has gone and nobody has noticed.
func (c *call) storeLate(ctx context.Context, response json.RawMessage) error {
	began := time.Now()
	for wait := storeRetry; ; wait = min(2*wait, storeRetryMost) {
		pause(ctx, wait)
		storeCtx, stop := toStore(ctx)
		_, _, err := c.box.finish(storeCtx, response)
		stop()
		gone := c.broken || c.http.Context().Err() != nil
		if !errors.Is(err, store.ErrUnavailable) || ctx.Err() != nil || !gone && time.Since(began) > storeWait {
			return err
		}
		c.beat(ctx)
	}
}

const (
	storeRetry     = 100 * time.Millisecond
	storeRetryMost = 5 * time.Second
)

func errCancelledCall() *failure {
	const codeCancelled = -32800 // as in LSP; MCP has none
	return refuse(http.StatusOK, codeCancelled, slog.LevelDebug, "the request was cancelled")
}

// hangUp ends the stream on purpose, before the response, and tells the client when to come back (2025-11-25,
// basic/transports: a server may close the connection to let the client poll). The call goes on, and this HTTP request
// with it, until the response is stored.
func (c *call) hangUp(ctx context.Context, retry time.Duration) {
	if !c.policy.prime || !c.mayStream() || c.runtime.HoldResponses {
		return // the client would not come back, or nothing would go on meanwhile
	}
	c.begin(ctx)
	if c.box == nil {
		return // there would be nothing to come back to
	}
	id := c.box.id
	if c.box.seq > 0 {
		id.Seq = c.box.seq
	}
	id.Nonce = newKey()[:8]
	c.writeEvent(c.box.sign(id), max(retry, minRetry), nil)
	c.end()
}

const minRetry = 100 * time.Millisecond // a client that is told 0 comes back hundreds of times a second

// mayAsk says why a question cannot be put to the client, or nil.
func (c *call) mayAsk(method string, params json.RawMessage) *jsonrpc.Error {
	why := ""
	switch {
	case c.x.session == nil || !c.policy.durable:
		why = "there is no session, and so nothing that the client's answer could belong to"
	case c.runtime.Buffered:
		why = "this runtime sends a response only when it is complete. Return InputRequests from the handler instead of " +
			"asking through the session: that works here"
	case !c.accept.stream:
		why = "the client does not accept an event stream"
	default:
		one := concat([]byte(`{"q":{"method":`), encode(method), []byte(`,"params":`), orNull(params), []byte(`}}`))
		if missing := undeclared(one, capabilities(c.x.session)); len(missing) > 0 {
			why = "the client has not declared the capability: " + string(encode(missing))
		}
	}
	if why == "" {
		return nil
	}
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "the client cannot be asked (" + method + "): " + why}
}

func orNull(v json.RawMessage) json.RawMessage {
	if len(v) == 0 {
		return json.RawMessage("null")
	}
	return v
}

func capabilities(s *store.Session) json.RawMessage {
	caps, _ := rawjson.Get(s.InitializeParams, "capabilities")
	return caps
}

// canonicalID makes ids comparable that are written differently: "\u0061" is "a", and is not a.
func canonicalID(id json.RawMessage) string {
	if s, ok := rawjson.String(id); ok {
		return string(encode(s))
	}
	return strings.TrimSpace(string(id))
}
