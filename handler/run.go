package handler

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/hydrant-mcp/hydrant/engine"
	"github.com/hydrant-mcp/hydrant/internal/rawjson"
	"github.com/hydrant-mcp/hydrant/store"
)

const (
	levelLimit = slog.LevelInfo  // something is over a limit of ours
	levelFault = slog.LevelError // something is wrong on our side
)

// An exchange is the handling of one message, from its arrival until it is answered.
type exchange struct {
	*request
	msg        message
	era        era
	session    *store.Session  // legacy, once it is known
	shared     *store.Session  // of the batch that the message is in
	initialize json.RawMessage // the params as the client sent them
	minted     string          // the id of a new session, for the client
}

// margin is kept between the end of a call and that of the runtime, so that there is time for an answer.
const margin = 500 * time.Millisecond

// deadline bounds a call by the earliest of the limits, and names it.
func (q *request) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	now := time.Now()
	which := limit{"the server's limit for a call", q.h.opts.CallTimeout}
	at := now.Add(which.at)
	if end := q.runtime.Deadline; !end.IsZero() && end.Add(-margin).Before(at) {
		at = end.Add(-margin)
		which = limit{"the runtime's limit", end.Sub(now)}
	}
	return context.WithDeadlineCause(ctx, at, which)
}

// context gives the context in which a message is handled: it ends with the era's idea of the client's presence, and at
// the deadline. stop must be called.
func (x *exchange) context() (ctx context.Context, stop func()) {
	ctx = x.http.Context()
	if x.era.outlives() {
		ctx = context.WithoutCancel(ctx)
	}
	return x.deadline(ctx)
}

func (x *exchange) message(state *engine.State) *engine.Message {
	m := &engine.Message{
		Method:    x.msg.method,
		Params:    x.msg.params,
		State:     state,
		TokenInfo: x.token,
		Header:    x.http.Header,
	}
	if x.session != nil {
		m.LogID = logID(x.session.Key)
	}
	return m
}

func (x *exchange) notifyEngine(ctx context.Context, state *engine.State) *failure {
	if err := x.engine.Notify(ctx, x.message(state)); err != nil {
		return errCall(err, x.era.status)
	}
	return nil
}

// accept handles a notification or a response. When it returns nil, what the message said is safe.
func (x *exchange) accept(ctx context.Context) *failure {
	state, f := x.era.rehydrate(ctx, x)
	if f != nil {
		return f
	}
	if x.msg.kind == aResponse {
		return x.era.answered(ctx, x)
	}
	return x.era.notify(ctx, x, state)
}

// call runs a request, and gives what the server sends before the response to out. When it returns a result, everything
// that the request changed is safe.
func (x *exchange) call(ctx context.Context, out *outgoing) (json.RawMessage, *failure) {
	state, f := x.era.rehydrate(ctx, x)
	if f != nil {
		return nil, f
	}
	if f := x.checkArguments(); f != nil {
		return nil, f
	}
	out.refuse = x.era.ask
	result, err := x.engine.Call(ctx, x.message(state), out)
	if err != nil {
		return nil, errCall(cause(ctx, err), x.era.status)
	}
	return x.era.settle(ctx, x, result)
}

// cause prefers what ended the context over how the engine noticed. A cancelled context of net/http's means that the
// client has gone.
func cause(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	if _, ok := errors.AsType[limit](context.Cause(ctx)); ok {
		return context.Cause(ctx)
	}
	return errClientGone
}

// checkArguments makes one of the three ways to say "no arguments", and refuses what is no object.
func (x *exchange) checkArguments() *failure {
	if x.msg.method != "tools/call" && x.msg.method != "prompts/get" {
		return nil
	}
	arguments, ok := rawjson.Get(x.msg.params, "arguments")
	switch {
	case !ok, rawjson.IsObject(arguments):
		return nil
	case rawjson.IsNull(arguments):
		x.msg.params = rawjson.Delete(x.msg.params, "arguments")
		return nil
	}
	return refuse(x.era.status(jsonrpc.CodeInvalidParams), jsonrpc.CodeInvalidParams, slog.LevelDebug,
		"params.arguments must be an object")
}

// maxQueue bounds what a server may send ahead of a client that does not read, in messages. Only notifications are
// dropped beyond it.
const maxQueue = 10_000

// outgoing takes what the server sends while a call runs. It is the engine's client, and never blocks it.
type outgoing struct {
	ready  chan struct{} // has an element while the queue may be non-empty
	refuse func(method string) error

	mu      sync.Mutex
	queue   []json.RawMessage
	dropped int
}

func newOutgoing() *outgoing { return &outgoing{ready: make(chan struct{}, 1)} }

// Notify implements [engine.Client]. The SDK tells every session that a list or a resource has changed; that has nothing to
// do with this call.
func (o *outgoing) Notify(method string, params json.RawMessage) {
	switch method {
	case "notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/resources/list_changed",
		"notifications/resources/updated":
		return
	}
	msg := encodeNotification(method, params)
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.queue) >= maxQueue {
		o.dropped++
		return
	}
	o.queue = append(o.queue, msg)
	select {
	case o.ready <- struct{}{}:
	default:
	}
}

// Ask implements [engine.Client].
func (o *outgoing) Ask(method string, _ json.RawMessage, answer func(json.RawMessage, *jsonrpc.Error)) {
	err := o.refuse(method)
	wire, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok {
		wire = &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: err.Error()}
	}
	answer(nil, wire)
}

func (o *outgoing) take() (msgs []json.RawMessage, dropped int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	msgs, dropped = o.queue, o.dropped
	o.queue, o.dropped = nil, 0
	return msgs, dropped
}
