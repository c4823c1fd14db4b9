package handler

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/hydrant-mcp/hydrant/engine"
	"github.com/hydrant-mcp/hydrant/store"
)

// legacyStateless is the legacy era without sessions, and so without a store.
type legacyStateless struct{ h *Handler }

func (e legacyStateless) rehydrate(_ context.Context, x *exchange) (*engine.State, *failure) {
	if x.msg.kind == aRequest && x.msg.method == "initialize" {
		return nil, e.h.negotiate(x)
	}
	if x.msg.kind == aRequest {
		x.msg.params = stripRounds(x.msg)
	}
	// Without a header the client is one of 2025-03-26, which did not have it (2025-06-18, basic/transports).
	version := x.http.Header.Get(headerVersion)
	if version == "" {
		version = version20250326
	}
	return &engine.State{ProtocolVersion: version, Initialized: true}, nil
}

func (legacyStateless) notify(context.Context, *exchange, *engine.State) *failure { return nil }

func (legacyStateless) answered(context.Context, *exchange) *failure { return nil }

func (legacyStateless) settle(_ context.Context, x *exchange, result json.RawMessage) (json.RawMessage, *failure) {
	if x.msg.method == "initialize" {
		result = unannounced(result) // there is no stream that it could be announced on
	}
	return result, nil
}

func (legacyStateless) status(int64) int { return http.StatusOK }

func (legacyStateless) outlives() bool { return true }

func (e legacyStateless) policy(*exchange) policy { return policy{after: e.h.opts.AliveAfter} }

func (legacyStateless) run(ctx context.Context, x *exchange, state *engine.State, out engine.Client) (json.RawMessage, error) {
	return x.engine.Call(ctx, x.message(state), out)
}

func (legacyStateless) serve(ctx context.Context, a *answer, x *exchange, state *engine.State) *failure {
	if x.msg.method == "subscriptions/listen" {
		return errNoListen()
	}
	return a.conduct(ctx, x, state)
}

func (legacyStateless) openBatch(_ context.Context, q *request) (*store.Session, *failure) {
	if v := q.http.Header.Get(headerVersion); v != "" && v != version20250326 {
		return nil, errBatch()
	}
	return nil, nil
}

func (legacyStateless) get(context.Context, *answer) *failure { return errMethod(http.MethodPost) }
func (legacyStateless) end(context.Context, *answer) *failure { return errMethod(http.MethodPost) }
