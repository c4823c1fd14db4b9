package handler

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/hydrant-mcp/hydrant/engine"
	"github.com/hydrant-mcp/hydrant/internal/rawjson"
	"github.com/hydrant-mcp/hydrant/store"
)

// modernEra is protocol 2026-07-28: every request describes itself, and nothing is read from the store or written to it.
type modernEra struct{ h *Handler }

func (modernEra) rehydrate(ctx context.Context, x *exchange) (*engine.State, *failure) {
	if x.msg.kind != aRequest {
		return nil, nil
	}
	if version, _ := rawjson.Get(x.msg.meta, metaVersion); !rawjson.IsString(version) {
		return nil, errParams("params._meta must have %q", metaVersion)
	}
	if caps, _ := rawjson.Get(x.msg.meta, metaCapabilities); !rawjson.IsObject(caps) {
		return nil, errParams("params._meta must have %q, an object", metaCapabilities)
	}
	var decoded map[string]any
	if json.Unmarshal(x.msg.meta, &decoded) != nil { // the SDK would take it for a message of the legacy era
		return nil, errParams("params._meta has a number that no decoder takes")
	}
	if f := x.checkHeaders(ctx); f != nil {
		return nil, f
	}
	return nil, x.openState(ctx)
}

// notify: no notification of a modern client's means anything to the server. It cancels by closing the stream.
func (modernEra) notify(context.Context, *exchange, *engine.State) *failure { return nil }

// answered: a modern server asks by its result, so there is no question to which this could be the answer.
func (modernEra) answered(context.Context, *exchange) *failure { return nil }

func (modernEra) settle(ctx context.Context, x *exchange, result json.RawMessage) (json.RawMessage, *failure) {
	if x.msg.method == "server/discover" && (x.runtime.Buffered || x.h.store == nil) {
		return unannounced(result), nil
	}
	requests, ok := rawjson.Get(result, "inputRequests")
	if !ok {
		return withoutState(x.msg.method, result), nil
	}
	declared, _ := rawjson.Get(x.msg.meta, metaCapabilities)
	if missing := undeclared(requests, declared); len(missing) > 0 {
		return nil, errCapability(missing)
	}
	if content, ok := rawjson.Get(result, "content"); ok && rawjson.IsNull(content) {
		result = rawjson.Delete(result, "content") // the SDK's: there is none
	}
	return x.sealState(ctx, result)
}

// undeclared gives the capabilities that questions need and the client has not declared, in the form in which it would
// declare them (2026-07-28, basic: a server asks for nothing that the client has not declared).
func undeclared(requests, declared json.RawMessage) map[string]any {
	missing := map[string]any{}
	for _, request := range rawjson.Members(requests) {
		method, _ := rawjson.Get(request, "method")
		params, _ := rawjson.Get(request, "params")
		switch name, _ := rawjson.String(method); name {
		case "elicitation/create":
			have, ok := rawjson.Get(declared, "elicitation")
			_, form := rawjson.Get(have, "form")
			_, url := rawjson.Get(have, "url")
			rawMode, _ := rawjson.Get(params, "mode")
			switch mode, _ := rawjson.String(rawMode); {
			case mode == "url" && !url:
				missing["elicitation"] = map[string]any{"url": struct{}{}}
			case mode != "url" && (!ok || url && !form): // {} means forms
				missing["elicitation"] = map[string]any{"form": struct{}{}}
			}
		case "sampling/createMessage":
			have, ok := rawjson.Get(declared, "sampling")
			_, tools := rawjson.Get(have, "tools")
			_, needsTools := rawjson.Get(params, "tools")
			switch {
			case needsTools && !tools:
				missing["sampling"] = map[string]any{"tools": struct{}{}}
			case !ok:
				missing["sampling"] = struct{}{}
			}
		case "roots/list":
			if _, ok := rawjson.Get(declared, "roots"); !ok {
				missing["roots"] = struct{}{}
			}
		}
	}
	return missing
}

// status implements 2026-07-28, basic/transports: which errors are also errors of HTTP.
func (modernEra) status(code int64) int {
	switch code {
	case jsonrpc.CodeMethodNotFound:
		return http.StatusNotFound
	case jsonrpc.CodeInvalidParams, jsonrpc.CodeInvalidRequest, mcp.CodeHeaderMismatch,
		mcp.CodeMissingRequiredClientCapabilities, mcp.CodeUnsupportedProtocolVersion:
		return http.StatusBadRequest
	}
	return http.StatusOK
}

// outlives: closing the stream is how a modern client cancels.
func (modernEra) outlives() bool { return false }

// policy: nothing can be resumed. A call that is silent for long becomes a stream to be kept alive.
func (e modernEra) policy(*exchange) policy { return policy{after: e.h.opts.AliveAfter} }

func (modernEra) run(ctx context.Context, x *exchange, state *engine.State, out engine.Client) (json.RawMessage, error) {
	return x.engine.Call(ctx, x.message(state), out)
}

func (e modernEra) serve(ctx context.Context, a *answer, x *exchange, state *engine.State) *failure {
	if x.msg.method == "subscriptions/listen" {
		return e.listen(ctx, a, x)
	}
	if f := x.useUp(ctx); f != nil {
		return f
	}
	return a.conduct(ctx, x, state)
}

func (modernEra) openBatch(context.Context, *request) (*store.Session, *failure) {
	return nil, errBatch()
}

func (modernEra) get(context.Context, *answer) *failure { return errMethod(http.MethodPost) }
func (modernEra) end(context.Context, *answer) *failure { return errMethod(http.MethodPost) }
