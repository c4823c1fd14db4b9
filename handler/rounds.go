package handler

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/hydrant-mcp/hydrant/engine"
	"github.com/hydrant-mcp/hydrant/internal/rawjson"
)

// maxRounds is how often a handler may come back with questions in one call.
const maxRounds = 50

// run runs a request of a legacy client's. A handler may ask by returning InputRequests, again and again; the SDK's own
// bridge for legacy clients does one round, the rounds after it are ours.
func (e legacySessions) run(ctx context.Context, x *exchange, state *engine.State, out engine.Client) (json.RawMessage, error) {
	if x.suspendable {
		return e.runSuspendable(ctx, x, out)
	}
	m := x.message(state)
	for range maxRounds {
		result, err := x.engine.Call(ctx, m, out)
		if err != nil {
			return nil, err
		}
		requests, ok := rawjson.Get(result, "inputRequests")
		if !ok {
			return withoutState(x.msg.method, result), nil
		}
		if rawjson.IsEmpty(requests) {
			return nil, errServerBusy
		}
		responses, err := askAll(ctx, requests, out)
		if err != nil {
			return nil, err
		}
		m.Params = nextRound(x.msg.params, result, responses)
	}
	return nil, errTooManyRounds
}

// errServerBusy is what a handler means that asks, and asks nothing.
var errServerBusy = &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the server is busy, retry later"}

var errTooManyRounds = &jsonrpc.Error{
	Code:    jsonrpc.CodeInternalError,
	Message: fmt.Sprintf("the handler asked more than %d times in one call", maxRounds),
}

// nextRound gives the params with which a handler is called again.
func nextRound(params, result, responses json.RawMessage) json.RawMessage {
	params = rawjson.Set(params, "inputResponses", responses)
	if state, ok := rawjson.Get(result, "requestState"); ok {
		return rawjson.Set(params, "requestState", state)
	}
	return rawjson.Delete(params, "requestState")
}

// askAll puts all questions of a round to the client at once, and waits for the answers.
func askAll(ctx context.Context, requests json.RawMessage, out engine.Client) (json.RawMessage, error) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	answers := json.RawMessage("{}")
	var failed error
	for key, request := range rawjson.Members(requests) {
		method, params := questionOf(request)
		wg.Add(1)
		out.Ask(method, params, func(result json.RawMessage, err *jsonrpc.Error) {
			defer wg.Done()
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = err
				return
			}
			answers = rawjson.Set(answers, key, result)
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		wg.Wait()
	}()
	select {
	case <-done:
		mu.Lock()
		defer mu.Unlock()
		return answers, failed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func questionOf(request json.RawMessage) (method string, params json.RawMessage) {
	raw, _ := rawjson.Get(request, "method")
	method, _ = rawjson.String(raw)
	params, _ = rawjson.Get(request, "params")
	return method, params
}
