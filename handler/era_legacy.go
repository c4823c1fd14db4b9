package handler

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/hydrant-mcp/hydrant/engine"
	"github.com/hydrant-mcp/hydrant/internal/rawjson"
	"github.com/hydrant-mcp/hydrant/store"
)

// legacySessions is the legacy era: protocol 2025-03-26 to 2025-11-25, whose initialize opens a session. The session is
// read from the store for every message.
type legacySessions struct{ h *Handler }

// What a client may have stored, in bytes. A record stays far below the 400 KB of a DynamoDB item.
const (
	maxInitialize = 64 << 10
	maxURI        = 2 << 10
	maxURIs       = 128 << 10 // all of a session's together
)

func (e legacySessions) rehydrate(ctx context.Context, x *exchange) (*engine.State, *failure) {
	if x.msg.kind == aRequest {
		switch x.msg.method {
		case "initialize":
			return nil, e.h.negotiate(x)
		case "ping":
			if x.http.Header.Get(headerSession) == "" {
				return nil, nil // asks for nothing that a session has
			}
		}
	}
	s := x.shared // of the whole batch
	if s == nil {
		var f *failure
		if s, f = x.request.session(ctx); f != nil {
			return nil, f
		}
	}
	x.session = s
	switch x.msg.method {
	case "logging/setLevel":
		if level := stringParam(x.msg, "level"); !slices.Contains(logLevels, level) {
			return nil, x.errParams("params.level must be one of %s", strings.Join(logLevels, ", "))
		}
	case "resources/subscribe":
		if f := e.checkSubscription(s, stringParam(x.msg, "uri")); f != nil {
			return nil, f
		}
	}
	if x.msg.kind == aRequest {
		x.msg.params = stripRounds(x.msg)
	}
	return &engine.State{
		ProtocolVersion:  s.ProtocolVersion,
		InitializeParams: s.InitializeParams,
		Initialized:      s.Initialized,
		LogLevel:         s.LogLevel,
	}, nil
}

// negotiate picks the version of a new session and puts it in place of the proposed one, so that the server has no choice
// (2025-11-25, basic/lifecycle, version negotiation).
func (h *Handler) negotiate(x *exchange) *failure {
	if len(x.msg.params) > maxInitialize {
		return errParams("the params of initialize have %d bytes; at most %d are allowed", len(x.msg.params), maxInitialize)
	}
	raw, _ := rawjson.Get(x.msg.params, "protocolVersion")
	proposed, ok := rawjson.String(raw)
	if !ok {
		return errParams("params.protocolVersion must be a string")
	}
	x.initialize = x.msg.params
	version := h.legacyVersions()[0]
	if slices.Contains(h.legacyVersions(), proposed) {
		version = proposed
	}
	quoted, _ := json.Marshal(version) // a string: cannot fail
	x.msg.params = rawjson.Set(x.msg.params, "protocolVersion", quoted)
	return nil
}

// stripRounds takes away what only a modern client may send: a tool would trust it.
func stripRounds(m message) json.RawMessage {
	if _, ok := nameKey[m.method]; !ok {
		return m.params
	}
	return rawjson.Delete(m.params, "requestState", "inputResponses")
}

// logLevels are the levels of log messages (2025-11-25, server/utilities/logging).
var logLevels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// checkSubscription says whether a session may have one more.
func (e legacySessions) checkSubscription(s *store.Session, uri string) *failure {
	if slices.Contains(s.Subscriptions, uri) {
		return nil
	}
	total := len(uri)
	for _, u := range s.Subscriptions {
		total += len(u)
	}
	if len(uri) > maxURI || total > maxURIs || len(s.Subscriptions) >= e.h.opts.MaxSubscriptions {
		return errSubscriptions(http.StatusOK, e.h.opts.MaxSubscriptions)
	}
	return nil
}

func stringParam(m message, key string) string {
	raw, _ := rawjson.Get(m.params, key)
	s, _ := rawjson.String(raw)
	return s
}

func (e legacySessions) notify(ctx context.Context, x *exchange, state *engine.State) *failure {
	switch x.msg.method {
	case "notifications/cancelled":
		return e.cancelled(ctx, x)
	case "notifications/initialized":
		if x.session.Initialized {
			return nil // once more; the server has heard it
		}
	}
	if f := x.notifyEngine(ctx, state); f != nil {
		return f
	}
	if x.msg.method == "notifications/initialized" {
		return e.change(ctx, x, func(s *store.Session) bool {
			changed := !s.Initialized
			s.Initialized = true
			return changed
		})
	}
	return nil
}

// settle stores what a request has told the server about its client.
func (e legacySessions) settle(ctx context.Context, x *exchange, result json.RawMessage) (json.RawMessage, *failure) {
	switch x.msg.method {
	case "initialize":
		if x.runtime.Buffered {
			result = unannounced(result)
		}
		return result, e.open(ctx, x, result)
	case "logging/setLevel":
		level := stringParam(x.msg, "level")
		return result, e.change(ctx, x, func(s *store.Session) bool {
			changed := s.LogLevel != level
			s.LogLevel = level
			return changed
		})
	case "resources/subscribe":
		uri := stringParam(x.msg, "uri")
		var over *failure // others of the session's may have been faster
		f := e.changeSubscriptions(ctx, x, func(s *store.Session) bool {
			if over = e.checkSubscription(s, uri); over != nil || slices.Contains(s.Subscriptions, uri) {
				return false
			}
			s.Subscriptions = append(s.Subscriptions, uri)
			return true
		})
		return result, cmp.Or(f, over)
	case "resources/unsubscribe":
		uri := stringParam(x.msg, "uri")
		return result, e.changeSubscriptions(ctx, x, func(s *store.Session) bool {
			before := len(s.Subscriptions)
			s.Subscriptions = slices.DeleteFunc(s.Subscriptions, func(u string) bool { return u == uri })
			return len(s.Subscriptions) != before
		})
	}
	return result, nil
}

// open stores a new session and tells the client its id.
func (e legacySessions) open(ctx context.Context, x *exchange, result json.RawMessage) *failure {
	raw, _ := rawjson.Get(result, "protocolVersion")
	version, _ := rawjson.String(raw)
	if !slices.Contains(e.h.legacyVersions(), version) {
		return refuse(http.StatusInternalServerError, jsonrpc.CodeInternalError, levelFault,
			"the server negotiated a version that is not served here").
			because(errors.New("handler: ServerOptions.SupportedProtocolVersions and Options.Versions have no version in common"))
	}
	id, now := newSessionID(), time.Now()
	s := &store.Session{
		Key:              sessionKey(x.name, id),
		Principal:        x.principal,
		ProtocolVersion:  version,
		InitializeParams: x.initialize,
		Created:          now,
		Expires:          e.h.expiry(now, now),
	}
	if err := e.h.store.CreateSession(ctx, s); err != nil {
		return errStore(err)
	}
	x.session, x.minted = s, id
	x.op.created(s)
	return nil
}

// change changes the session in the store. The exchange keeps what it has read: others read that at the same time. The
// messages of a batch come one after the other, and see what those before them changed.
func (e legacySessions) change(ctx context.Context, x *exchange, change func(*store.Session) bool) *failure {
	s := *x.session
	s.Subscriptions, s.Cancelled = slices.Clone(s.Subscriptions), slices.Clone(s.Cancelled)
	if err := store.ChangeSession(ctx, e.h.store, &s, change); err != nil {
		return errStore(err)
	}
	if x.shared != nil {
		*x.shared = s
	}
	return nil
}

// changeSubscriptions changes the session, and tells its open stream, if there is one.
func (e legacySessions) changeSubscriptions(ctx context.Context, x *exchange, change func(*store.Session) bool) *failure {
	changed := false
	f := e.change(ctx, x, func(s *store.Session) bool {
		changed = change(s)
		return changed
	})
	if f != nil || !changed {
		return f
	}
	if err := e.h.store.RaiseTopic(ctx, sessionTopic(x.session.Key)); err != nil {
		// The stream looks for itself, every checkEvery.
		e.h.opts.Logger.DebugContext(ctx, "a stream could not be told of its subscriptions", "error", err)
	}
	return nil
}

// status: a legacy error is an ordinary response (2025-11-25, basic/transports).
func (legacySessions) status(int64) int { return http.StatusOK }

// outlives: a legacy client that loses its connection has not cancelled anything.
func (legacySessions) outlives() bool { return true }

// policy: whatever a session's client has asked for can be resumed, but for what opens the session, and for batches,
// whose stream is that of several requests. From 2025-11-25 on, a call that takes its time becomes a stream, so that the
// client holds an id.
func (e legacySessions) policy(x *exchange) policy {
	if x.msg.method == "initialize" {
		return policy{inline: true} // its answer has a header that is not known before
	}
	if x.session == nil || x.shared != nil {
		return policy{after: e.h.opts.AliveAfter}
	}
	p := policy{durable: true, after: e.h.opts.AliveAfter}
	if x.session.ProtocolVersion == version20251125 {
		p.prime, p.after = true, e.h.opts.StreamAfter
	}
	return p
}

func (e legacySessions) serve(ctx context.Context, a *answer, x *exchange, state *engine.State) *failure {
	if x.msg.method == "subscriptions/listen" {
		return errNoListen()
	}
	x.suspendable = x.suspends()
	return a.conduct(ctx, x, state)
}

// openBatch: only the first of the legacy versions has batches.
func (legacySessions) openBatch(ctx context.Context, q *request) (*store.Session, *failure) {
	s, f := q.session(ctx)
	if f != nil {
		return nil, f
	}
	if s.ProtocolVersion != version20250326 {
		return nil, errBatch()
	}
	return s, nil
}

func (e legacySessions) get(ctx context.Context, a *answer) *failure {
	if !a.accept.stream {
		return errAcceptStream()
	}
	if a.http.Header.Get(headerLastEvent) != "" {
		return e.resume(ctx, a)
	}
	s, f := a.session(ctx)
	if f != nil {
		return f
	}
	if a.runtime.Buffered {
		return errMethod(http.MethodPost, http.MethodDelete) // no invocation is pinned to a silent stream
	}
	return e.standalone(ctx, a, s)
}

func (e legacySessions) end(ctx context.Context, a *answer) *failure {
	s, f := a.session(ctx)
	if f != nil {
		return f
	}
	if err := e.h.store.DeleteSession(ctx, s.Key); err != nil {
		return errStore(err)
	}
	e.h.telemetry.session(ctx, sessionDeleted)
	a.w.WriteHeader(http.StatusNoContent)
	return nil
}
