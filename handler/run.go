package handler

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

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
	more       []message // of a batch that are like it, and are handled with it
	op         *operation
	era        era
	session    *store.Session     // legacy, once it is known
	shared     *store.Session     // of the batch that the message is in
	initialize json.RawMessage    // the params as the client sent them
	minted     string             // the id of a new session, for the client
	slots      []string           // of the inbox, one for each question
	hang       chan time.Duration // takes the tool's wish to end the stream

	opened sealed // the requestState that came with it

	suspendable bool // questions of the handler's suspend the call
	round       int  // how many rounds it has had

	key      string          // of the session
	request0 json.RawMessage // the params of the first round
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
func (x *exchange) context() (context.Context, func()) {
	ctx := context.WithValue(x.http.Context(), servedKey{}, served{x.h, x.name})
	if !x.era.outlives() {
		return x.deadline(ctx)
	}
	detached, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	// A call outlives its connection, but not its process: a reason that is neither the client's leaving nor a time-out is
	// that of whoever serves us, who is about to end.
	unhook := context.AfterFunc(ctx, func() {
		if why := context.Cause(ctx); why != context.Canceled && why != context.DeadlineExceeded {
			cancel(errShutdown)
		}
	})
	bounded, stop := x.deadline(detached)
	return bounded, func() {
		stop()
		unhook()
		cancel(nil)
	}
}

func (x *exchange) message(state *engine.State) *engine.Message {
	m := &engine.Message{
		Method:      x.msg.method,
		Params:      x.msg.params,
		State:       state,
		TokenInfo:   x.token,
		Header:      x.http.Header,
		CloseStream: x.closeStream,
	}
	if x.session != nil {
		m.LogID = logID(x.session.Key)
	}
	return m
}

// closeStream is the tool's wish to end the stream and to have the client come back.
func (x *exchange) closeStream(args mcp.CloseSSEStreamArgs) {
	select {
	case x.hang <- args.RetryAfter:
	default: // there is one already, or no stream
	}
}

func (x *exchange) notifyEngine(ctx context.Context, state *engine.State) *failure {
	if err := x.engine.Notify(ctx, x.message(state)); err != nil {
		return errCall(err, x.era.status)
	}
	return nil
}

// take handles a notification or a response. When it returns nil, what the message said is safe.
func (x *exchange) take(ctx context.Context) *failure {
	state, f := x.era.rehydrate(ctx, x)
	if f != nil {
		return f
	}
	x.op.restored(x.session)
	x.op.running()
	if x.msg.kind == aResponse {
		return x.era.answered(ctx, x)
	}
	return x.era.notify(ctx, x, state)
}

// serve handles a request and answers it. When a result goes out, everything that the request changed is safe.
func (a *answer) serve(x *exchange) *failure {
	ctx, stop := x.context()
	defer stop()
	state, f := x.prepare(ctx)
	if f != nil {
		return f
	}
	if x.session != nil {
		done, f := x.h.busy.call(x.session.Key, &x.h.opts)
		if f != nil {
			return f
		}
		defer done()
	}
	x.op.running()
	return x.era.serve(ctx, a, x, state)
}

// prepare rehydrates the session, and sees whether the request may run.
func (x *exchange) prepare(ctx context.Context) (*engine.State, *failure) {
	state, f := x.era.rehydrate(ctx, x)
	if f != nil {
		return nil, f
	}
	x.op.restored(x.session)
	if f := x.checkArguments(); f != nil {
		return nil, f
	}
	return state, x.admitTool(x.msg.method, stringParam(x.msg, "name"))
}

// cause prefers what ended the context over how the engine noticed. A cancelled context of net/http's means that the
// client has gone.
func cause(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	why := context.Cause(ctx)
	if _, ok := errors.AsType[limit](why); ok || errors.Is(why, errCancelled) {
		return why
	}
	if why != context.Canceled { // whoever serves us has ended the request, and has given a reason of its own
		return errShutdown
	}
	return errClientGone
}

// maxName bounds the name of a tool or a prompt, in bytes.
const maxName = 1 << 10

// checkArguments makes one of the three ways to say "no arguments", and refuses what is no object.
func (x *exchange) checkArguments() *failure {
	if x.msg.method != "tools/call" && x.msg.method != "prompts/get" {
		return nil
	}
	if len(stringParam(x.msg, "name")) > maxName { // event ids carry it
		return x.errParams("params.name is longer than %d bytes", maxName)
	}
	arguments, ok := rawjson.Get(x.msg.params, "arguments")
	switch {
	case !ok, rawjson.IsObject(arguments):
		return nil
	case rawjson.IsNull(arguments):
		x.msg.params = rawjson.Delete(x.msg.params, "arguments")
		return nil
	}
	return x.errParams("params.arguments must be an object")
}
