package handler

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/hydrant-mcp/hydrant/internal/rawjson"
	"github.com/hydrant-mcp/hydrant/store"
)

// A question is a request of the server's to the client, in the middle of a call. Its id names the exchange and the slot of
// the inbox that the answer goes into, so that the answer may arrive at any instance.
type question struct {
	method string
	params json.RawMessage
	slot   string
	answer func(json.RawMessage, *jsonrpc.Error)
}

func (q *question) fail(why string) {
	q.answer(nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "asking the client failed (" + q.method + "): " + why})
}

// sign numbers a question and gives the message to send.
func (c *call) sign(q *question) json.RawMessage {
	q.slot = strconv.Itoa(len(c.x.slots))
	c.x.slots = append(c.x.slots, q.slot)
	c.pending[q.slot] = q
	c.asked = time.Now()
	return encodeQuestion(c.box.keys, c.box.record, q)
}

func encodeQuestion(keys keyring, record *store.Exchange, q *question) json.RawMessage {
	id := keys.sign(purposeQuestion, questionID{Exchange: record.Key, Session: short(record.Session), Slot: q.slot})
	return encodeRequest(encode(id), q.method, q.params)
}

// answered takes the client's answer to a question. 202 follows only when the inbox has it. An answer to nothing, or once
// more, is none of an error: clients cannot know better.
func (e legacySessions) answered(ctx context.Context, x *exchange) *failure {
	token, ok := rawjson.String(x.msg.id)
	if !ok {
		return nil
	}
	keys, err := e.h.keys(ctx)
	if err != nil {
		return errStore(err)
	}
	var q questionID
	if !keys.open(purposeQuestion, token, &q) || q.Session != short(x.session.Key) {
		return nil
	}
	answer := struct {
		Result json.RawMessage `json:"result,omitempty"`
		Error  json.RawMessage `json:"error,omitempty"`
	}{x.msg.result, x.msg.err}
	err = e.h.store.PutAnswer(ctx, q.Exchange, q.Slot, encode(answer), time.Now().Add(e.h.opts.AskTimeout+e.h.opts.CallTimeout+retention))
	if err != nil && !errors.Is(err, store.ErrExists) {
		return errStore(err)
	}
	return nil
}

// readAnswer gives what a slot of the inbox holds; ok is false while it is empty.
func readAnswer(ctx context.Context, st store.Store, exchange, slot string) (result json.RawMessage, failed *jsonrpc.Error, ok bool, err error) {
	raw, err := st.Answer(ctx, exchange, slot)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil, false, nil
	}
	if err != nil {
		return nil, nil, false, err
	}
	result, failed, err = decodeAnswer(raw)
	return result, failed, err == nil, err
}

// decodeAnswer gives the result or the error of an answer.
func decodeAnswer(raw []byte) (result json.RawMessage, failed *jsonrpc.Error, err error) {
	if !json.Valid(raw) {
		return nil, nil, store.Wrap("read an answer", store.ErrCorrupt, nil)
	}
	if result, ok := rawjson.Get(raw, "result"); ok {
		return result, nil, nil
	}
	failed = &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the client's answer cannot be read"}
	if e, ok := rawjson.Get(raw, "error"); ok {
		_ = json.Unmarshal(e, failed) // what can be read of it
	}
	return nil, failed, nil
}

// An item is something that the server sends before its response.
type item struct {
	msg      json.RawMessage
	question *question
}

// maxQueue and maxQueued bound what a server may send ahead of a client that does not read, in messages and in bytes. Only
// notifications are dropped beyond them.
const (
	maxQueue  = 10_000
	maxQueued = 16 << 20
)

// outgoing takes what the server sends while a call runs. It is the engine's client, and never blocks it.
type outgoing struct {
	ready  chan struct{} // has an element while the queue may be non-empty
	mayAsk func(method string, params json.RawMessage) *jsonrpc.Error

	mu      sync.Mutex
	queue   []item
	queued  int // bytes
	dropped int
}

func newOutgoing(mayAsk func(string, json.RawMessage) *jsonrpc.Error) *outgoing {
	return &outgoing{ready: make(chan struct{}, 1), mayAsk: mayAsk}
}

// Notify implements [engine.Client]. The SDK tells every session that a list or a resource has changed; that has nothing to
// do with this call.
func (o *outgoing) Notify(method string, params json.RawMessage) {
	switch method {
	case "notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/resources/list_changed",
		"notifications/resources/updated":
		return
	}
	o.push(item{msg: encodeNotification(method, params)})
}

// Ask implements [engine.Client].
func (o *outgoing) Ask(method string, params json.RawMessage, answer func(json.RawMessage, *jsonrpc.Error)) {
	if why := o.mayAsk(method, params); why != nil {
		answer(nil, why)
		return
	}
	o.push(item{question: &question{method: method, params: params, answer: answer}})
}

func (o *outgoing) push(it item) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if (len(o.queue) >= maxQueue || o.queued >= maxQueued) && it.question == nil {
		o.dropped++
		return
	}
	o.queued += len(it.msg)
	o.queue = append(o.queue, it)
	select {
	case o.ready <- struct{}{}:
	default:
	}
}

func (o *outgoing) take() (items []item, dropped int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	items, dropped = o.queue, o.dropped
	o.queue, o.queued, o.dropped = nil, 0, 0
	return items, dropped
}
