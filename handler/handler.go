package handler

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/rs/cors"

	"github.com/hydrant-mcp/hydrant/engine"
	"github.com/hydrant-mcp/hydrant/internal/ctxmutex"
	"github.com/hydrant-mcp/hydrant/internal/rawjson"
	"github.com/hydrant-mcp/hydrant/internal/tracestore"
	"github.com/hydrant-mcp/hydrant/store"
)

// A Handler serves an MCP server over HTTP. It holds no session: any number of handlers, in any number of processes, over
// one store behave as one. It can be mounted at any path and behind any middleware that leaves the response flushable
// (http.Flusher, or Unwrap); behind other middleware it does not stream.
type Handler struct {
	opts   Options
	store  store.Store
	engine engine.Engine
	stored storedKey
	topics hub
	busy   busy
	cors   *cors.Cors

	telemetry *telemetry
}

// New makes the handler of a server. st keeps the sessions of legacy clients; it may be nil when none are served, or
// without sessions ([LegacyStateless]). nil options are sound defaults.
//
// Add your own middleware to the server before: Hydrant's, which it adds once per server, is to be outside of it.
//
// New panics when the options cannot be meant, with a message that says why.
func New(server *mcp.Server, st store.Store, opts *Options) *Handler {
	if opts == nil {
		opts = &Options{}
	}
	settled, err := opts.settle()
	if err != nil {
		panic(err)
	}
	h := &Handler{opts: settled, telemetry: newTelemetry(settled.TracerProvider, settled.MeterProvider)}
	h.topics.reading, h.stored.reading = ctxmutex.New(), ctxmutex.New()
	if st != nil {
		h.store = tracestore.New(st, settled.TracerProvider, settled.MeterProvider)
	}
	switch {
	case server == nil && settled.Tenant == nil:
		panic("handler: New needs a server, or Options.Tenant")
	case st == nil && settled.Legacy == LegacySessions && len(h.legacyVersions()) > 0:
		panic("handler: New needs a store for the sessions of legacy clients: give one (store/memory for a single " +
			"process), or set Options.Legacy to LegacyStateless, or Options.Versions to 2026-07-28 only")
	}
	h.cors = newCORS(settled.AllowedOrigins)
	if settled.SingleUseState && st == nil {
		panic("handler: Options.SingleUseState needs a store")
	}
	if settled.Tenant == nil {
		h.engine = h.newEngine(server)
	}
	return h
}

func (h *Handler) newEngine(server *mcp.Server) engine.Engine {
	return engine.New(server, &engine.Options{
		Logger:   h.opts.Logger,
		Versions: func(v string) bool { return h.classify(v) != unknown },
	})
}

// ServeHTTP implements [http.Handler]. When it returns, nothing of Hydrant's is left running for the request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := &request{h: h, w: w, http: r, runtime: runtimeOf(r.Context())}
	if r.Method == http.MethodPost {
		q.boundBody()
	}
	done, f := h.admit(q)
	if done {
		return
	}
	a := &answer{request: q}
	if f == nil {
		switch r.Method {
		case http.MethodPost:
			f = h.post(a)
		case http.MethodGet:
			f = h.stream(a, era.get)
		case http.MethodDelete:
			f = h.stream(a, era.end)
		}
	}
	if f != nil {
		a.fail(f, nil)
	}
}

func (h *Handler) stream(a *answer, serve func(era, context.Context, *answer) *failure) *failure {
	e, f := h.eraOfStream(a.request)
	if f != nil {
		return f
	}
	return serve(e, a.http.Context(), a)
}

// post takes a message, or a batch, from its bytes to its answer.
func (h *Handler) post(a *answer) *failure {
	body, f := a.body()
	if f != nil {
		return f
	}
	msgs, batch, f := h.read(body)
	if f != nil {
		if len(msgs) == 1 {
			a.fail(f, &msgs[0])
			return nil
		}
		return f
	}
	if batch {
		return h.postBatch(a, msgs)
	}
	x := &exchange{request: a.request, msg: msgs[0]}
	if f := h.postOne(a, x); f != nil {
		a.fail(f, &x.msg)
	}
	return nil
}

func (h *Handler) postOne(a *answer, x *exchange) (f *failure) {
	x.http, x.op = h.telemetry.begin(x.http, &x.msg)
	defer func() { x.op.end(f) }()
	if x.era, f = h.eraOf(x); f != nil {
		return f
	}
	if x.msg.kind == aRequest {
		if f := a.serve(x); f != nil {
			return f
		}
		a.finish(http.StatusOK)
		return nil
	}
	ctx, stop := x.context()
	defer stop()
	if f := x.take(ctx); f != nil {
		return f
	}
	a.accepted()
	return nil
}

func (h *Handler) eraOf(x *exchange) (era, *failure) {
	version, f := x.one(headerVersion)
	if f != nil {
		return nil, f
	}
	meta, _ := rawjson.Get(x.msg.meta, metaVersion)
	return h.decide(facts{
		header:  version,
		session: x.http.Header.Get(headerSession) != "",
		kind:    x.msg.kind,
		method:  x.msg.method,
		meta:    meta,
	})
}

// postBatch handles the messages of a batch one after the other (2025-03-26, basic: JSON-RPC batching).
func (h *Handler) postBatch(a *answer, msgs []message) *failure {
	a.batch = true
	version, f := a.one(headerVersion)
	if f != nil {
		return f
	}
	e, f := h.decide(facts{header: version, session: a.http.Header.Get(headerSession) != "", batch: true})
	if f != nil {
		return f
	}
	for _, m := range msgs {
		if m.method == "initialize" {
			return errInvalid("initialize cannot be part of a batch")
		}
	}
	shared, f := e.openBatch(a.http.Context(), a.request)
	if f != nil {
		return f
	}
	outer := a.http
	defer func() { a.http = outer }()
	begin := func(m message) *exchange {
		x := &exchange{request: a.request, msg: m, era: e, shared: shared}
		x.http, x.op = h.telemetry.begin(outer, &x.msg)
		return x
	}
	// What is only acknowledged comes first: if it cannot be made safe, the batch fails before anything has run.
	requests := 0
	var first, cancels []message
	for _, m := range msgs {
		if m.kind == aRequest {
			requests++
			continue
		}
		if m.method == "notifications/cancelled" {
			if cancels = append(cancels, m); len(cancels) > 1 {
				continue // goes with the first: the session is written once for all
			}
		}
		first = append(first, m)
	}
	for _, m := range first {
		x := begin(m)
		if m.method == "notifications/cancelled" {
			x.more = cancels[1:]
		}
		ctx, stop := x.context()
		f := x.take(ctx)
		stop()
		x.op.end(f)
		if f != nil {
			return f
		}
	}
	read := time.Now()
	for _, m := range msgs {
		if m.kind != aRequest {
			continue
		}
		if f == nil && time.Since(read) >= cancelAfter { // the client may have ended its session meanwhile
			read = time.Now()
			if shared, f = e.openBatch(outer.Context(), a.request); f != nil {
				h.log(a.request, f)
			}
		}
		x := begin(m)
		if f != nil {
			x.op.end(f)
			a.respond(f.encode(m.id))
			continue
		}
		f := a.serve(x)
		x.op.end(f)
		if f != nil {
			h.log(a.request, f)
			a.respond(f.encode(m.id))
		}
	}
	if requests == 0 {
		a.accepted()
		return nil
	}
	a.finish(http.StatusOK)
	return nil
}

// fail answers with a failure. m is the message that failed, as far as it could be read.
func (a *answer) fail(f *failure, m *message) {
	a.h.log(a.request, f)
	if errors.Is(f.cause, errClientGone) {
		return
	}
	var id json.RawMessage
	if m != nil {
		id = m.id
	}
	body := f.encode(id)
	if a.streaming {
		a.event(body)
		return
	}
	for k, v := range f.header {
		a.w.Header()[k] = v
	}
	a.responses, a.batch = []json.RawMessage{body}, false
	a.finish(f.status)
}

// log writes a failure to the log at its level. It never has a session id, a token, arguments or a result.
func (h *Handler) log(q *request, f *failure) {
	attrs := []slog.Attr{
		slog.String("method", q.http.Method),
		slog.Int("status", f.status),
		slog.Int64("code", f.code),
	}
	if !f.private {
		attrs = append(attrs, slog.String("reason", f.message))
	}
	if f.cause != nil && !f.private {
		attrs = append(attrs, slog.Any("error", f.cause))
	}
	h.opts.Logger.LogAttrs(q.http.Context(), f.level, "request refused", attrs...)
	if f.code == codeSessionNotFound {
		h.telemetry.session(q.http.Context(), sessionMissing)
	}
}
