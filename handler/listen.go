package handler

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/hydrant-mcp/hydrant/engine"
	"github.com/hydrant-mcp/hydrant/internal/rawjson"
	"github.com/hydrant-mcp/hydrant/store"
)

// standalone serves the GET stream of a session (2025-11-25, basic/transports, listening for messages from the server).
//
// The newest one takes over, so that a connection that is dead without anybody having noticed blocks nobody. The one before
// stays open and silent: were it ended, its client would come back and take over in turn, for ever. When the newest ends by
// itself, the one before goes on. What a stream has announced is kept when it ends: the next one begins there.
func (e legacySessions) standalone(ctx context.Context, a *answer, s *store.Session) *failure {
	caps, f := a.serverCapabilities(ctx)
	if f != nil {
		return f
	}
	if !announces(caps) {
		return errMethod(http.MethodPost, http.MethodDelete) // the stream could never carry anything
	}
	done, f := e.h.busy.stream(s.Key, &e.h.opts)
	if f != nil {
		return f
	}
	defer done()
	l := &listener{answer: a}
	defer l.close()
	room := l.add(sessionTopic(s.Key), nil) // rises with the session's subscriptions
	for _, kind := range []ListKind{ListTools, ListPrompts, ListResources} {
		room = l.add(listTopic(a.name, kind), encodeNotification("notifications/"+string(kind)+"/list_changed", nil)) && room
	}
	if room = l.subscribe(s.Subscriptions) && room; !room {
		return errTopics()
	}
	if err := l.start(ctx); err != nil {
		return errStore(err)
	}
	place, before, err := e.takeOver(ctx, s)
	if err != nil {
		return errStore(err)
	}
	l.goOnFrom(before)
	l.also = store.Watched{Session: s.Key, Exchange: place.Key, After: store.Final}
	a.open()
	a.comment() // some proxies hold the headers back until there is a body
	may := func(ctx context.Context) (v verdict) {
		fresh, f := a.session(ctx)
		if f != nil && f.status == http.StatusNotFound {
			return ended
		}
		if f != nil { // an outage ends nothing
			return uncertain
		}
		// A subscription that is new to this stream starts from nothing: what has risen since it was made is announced.
		if !l.subscribe(fresh.Subscriptions) {
			e.h.log(a.request, errTopics()) // it is tried again
		}
		v, l.told = e.holds(ctx, place)
		return v
	}
	politely := l.serve(ctx, may)
	e.release(ctx, place, l.seen)
	if politely {
		a.writeRetry(pollFast)
	}
	return nil
}

// subscribe makes the listener announce the resources that the session has subscribed to, and no others. It says whether
// there is room for all.
func (l *listener) subscribe(uris []string) (room bool) {
	room = true
	for _, uri := range uris {
		msg := encodeNotification("notifications/resources/updated", resourceParams(uri, nil))
		room = l.add(resourceTopic(l.name, uri), msg) && room
	}
	for topic := range l.message {
		if uri, ok := resourceOf(l.name, topic); ok && !slices.Contains(uris, uri) {
			l.remove(topic)
		}
	}
	return room
}

// goOnFrom begins where another stream has ended.
func (l *listener) goOnFrom(seen map[string]int64) {
	for topic, v := range seen {
		if _, ok := l.seen[topic]; ok {
			l.seen[topic] = v
		}
	}
}

func streamKey(sessionKey string) string { return "stream-" + sessionKey }

// takeOver makes this the stream of the session. It gives the record that says so, and what the stream before, if it has
// ended, had announced.
func (e legacySessions) takeOver(ctx context.Context, s *store.Session) (place *store.Exchange, seen map[string]int64, err error) {
	owner, key, missing := newKey(), streamKey(s.Key), false
	const tries = 10
	for range tries {
		x, err := e.h.store.Exchange(ctx, key)
		if errors.Is(err, store.ErrNotFound) {
			if missing { // it is there, and has expired: the database has not removed it yet, which can take days
				key, missing = key+"+", false
				continue
			}
			x = &store.Exchange{
				Key: key, Session: s.Key, Owner: owner, Lease: time.Now(), Expires: time.Now().Add(streamLife),
			}
			err = e.h.store.CreateExchange(ctx, x)
			if missing = errors.Is(err, store.ErrExists); missing {
				continue
			}
			return x, nil, err
		}
		if err != nil {
			return nil, nil, err
		}
		_ = json.Unmarshal([]byte(x.State), &seen) // empty while a stream is open
		x.Owner, x.State, x.Expires = owner, "", time.Now().Add(streamLife)
		if err = e.h.store.UpdateExchange(ctx, x); !errors.Is(err, store.ErrConflict) {
			return x, seen, err
		}
	}
	return nil, nil, store.Wrap("take over a stream", store.ErrThrottled, nil)
}

// holds says whether a stream is still the session's, or is again because the one that took over has ended; then it gives
// what that one has announced.
func (e legacySessions) holds(ctx context.Context, place *store.Exchange) (verdict, map[string]int64) {
	x, err := e.h.store.Exchange(ctx, place.Key)
	switch {
	case err != nil:
		return uncertain, nil
	case x.Owner == place.Owner:
		return speaks, nil
	case x.Owner != "":
		return silent, nil
	}
	var seen map[string]int64
	_ = json.Unmarshal([]byte(x.State), &seen) // without it, something may be announced twice
	x.Owner, x.State = place.Owner, ""
	if err := e.h.store.UpdateExchange(ctx, x); err != nil {
		return uncertain, nil // somebody else was faster, or nobody can tell
	}
	return speaks, seen
}

// release notes that a stream has ended, and what it has announced.
func (e legacySessions) release(ctx context.Context, place *store.Exchange, seen map[string]int64) {
	ctx, stop := toStore(ctx)
	defer stop()
	x, err := e.h.store.Exchange(ctx, place.Key)
	if err != nil || x.Owner != place.Owner {
		return
	}
	x.Owner, x.State = "", string(encode(seen))
	if len(x.State) > maxSeen {
		x.State = ""
	}
	if err := e.h.store.UpdateExchange(ctx, x); err != nil {
		e.h.opts.Logger.DebugContext(ctx, "what a stream has announced could not be kept", "error", err)
	}
}

// maxSeen bounds what is kept of a stream that has ended, in bytes.
const maxSeen = 48 << 10

// streamLife is how long it is known who has a session's stream. A stream that is older than that has no rival from before.
const streamLife = 48 * time.Hour

// listen serves subscriptions/listen (2026-07-28, basic/utilities/subscriptions): acknowledged first, with what is honoured,
// each notification tagged with the request's id, ended with a result.
func (e modernEra) listen(ctx context.Context, a *answer, x *exchange) *failure {
	wanted, _ := rawjson.Get(x.msg.params, "notifications")
	if !rawjson.IsObject(wanted) {
		return errParams("params.notifications must be an object")
	}
	meta := concat([]byte(`{`), encode(metaSubscription), []byte(`:`), x.msg.id, []byte(`}`))
	l := &listener{answer: a}
	defer l.close()
	honoured := json.RawMessage(`{}`)
	if a.streams() && e.h.store != nil {
		done, f := e.h.busy.stream("", &e.h.opts)
		if f != nil {
			return f
		}
		defer done()
		caps, f := x.serverCapabilities(ctx)
		if f != nil {
			return f
		}
		var uris []string
		if honoured, uris, f = l.want(wanted, caps, meta); f != nil {
			return f
		}
		unsubscribe, f := x.subscribe(ctx, uris)
		defer unsubscribe()
		if f != nil {
			return f
		}
		if err := l.start(ctx); err != nil {
			return errStore(err)
		}
	}
	ack := encodeNotification("notifications/subscriptions/acknowledged",
		concat([]byte(`{"_meta":`), meta, []byte(`,"notifications":`), honoured, []byte(`}`)))
	result := encodeResult(x.msg.id, concat([]byte(`{"resultType":"complete","_meta":`), meta, []byte(`}`)))
	x.msg.id, x.msg.params, x.msg.meta = bytes.Clone(x.msg.id), nil, nil // the stream is not to keep the whole body
	if a.accept.stream {
		a.event(ack)
	}
	if len(l.topics) > 0 && !l.serve(ctx, func(context.Context) verdict { return speaks }) {
		return nil // the client has gone
	}
	a.respond(result)
	return nil
}

// subscribe has the server subscribe the client to resources, as it would for a legacy one: it may refuse, and it may have to
// know. The result, never nil, takes that back.
func (x *exchange) subscribe(ctx context.Context, uris []string) (unsubscribe func(), f *failure) {
	info := rawjson.Set(nil, "protocolVersion", encode(version20251125))
	for key, from := range map[string]string{"capabilities": metaCapabilities, "clientInfo": metaClientInfo} {
		if v, ok := rawjson.Get(x.msg.meta, from); ok {
			info = rawjson.Set(info, key, v)
		}
	}
	state := &engine.State{ProtocolVersion: version20251125, InitializeParams: info, Initialized: true}
	call := func(ctx context.Context, method, uri string) error {
		m := x.message(state)
		m.Method, m.Params = method, resourceParams(uri, nil)
		_, err := x.engine.Call(ctx, m, newOutgoing(x.mayNotAsk))
		return err
	}
	subscribed := 0
	unsubscribe = func() {
		ctx, stop := toStore(ctx)
		defer stop()
		for _, uri := range uris[:subscribed] {
			if err := call(ctx, "resources/unsubscribe", uri); err != nil {
				x.h.opts.Logger.DebugContext(ctx, "the server did not unsubscribe a client that has gone", "error", err)
			}
		}
	}
	for _, uri := range uris {
		if err := call(ctx, "resources/subscribe", uri); err != nil {
			return unsubscribe, errCall(cause(ctx, err), x.era.status)
		}
		subscribed++
	}
	return unsubscribe, nil
}

// mayNotAsk refuses questions where nobody could answer them.
func (x *exchange) mayNotAsk(method string, _ json.RawMessage) *jsonrpc.Error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "the client cannot be asked (" + method + ") by " + x.msg.method}
}

// want registers what the client wants and the server announces, and gives it in the form in which it is acknowledged, with
// the resources among it.
func (l *listener) want(wanted, caps, meta json.RawMessage) (honoured json.RawMessage, resources []string, f *failure) {
	honoured = json.RawMessage(`{}`)
	params := concat([]byte(`{"_meta":`), meta, []byte(`}`))
	for _, kind := range []ListKind{ListTools, ListPrompts, ListResources} {
		key := string(kind) + "ListChanged"
		if isTrue(wanted, key) && isTrue(caps, string(kind), "listChanged") {
			honoured = rawjson.Set(honoured, key, json.RawMessage("true"))
			if !l.add(listTopic(l.name, kind), encodeNotification("notifications/"+string(kind)+"/list_changed", params)) {
				return nil, nil, errTopics()
			}
		}
	}
	uris, _ := rawjson.Get(wanted, "resourceSubscriptions")
	elements := upTo(uris, l.h.opts.MaxSubscriptions)
	if len(elements) == 0 || !isTrue(caps, "resources", "subscribe") {
		return honoured, nil, nil
	}
	if len(elements) > l.h.opts.MaxSubscriptions || len(uris) > maxURIs {
		return nil, nil, errSubscriptions(http.StatusBadRequest, l.h.opts.MaxSubscriptions)
	}
	for _, raw := range elements {
		uri, ok := rawjson.String(raw)
		if !ok {
			return nil, nil, errParams("params.notifications.resourceSubscriptions must have strings only")
		}
		if len(uri) > maxURI {
			return nil, nil, errSubscriptions(http.StatusBadRequest, l.h.opts.MaxSubscriptions)
		}
		if !l.add(resourceTopic(l.name, uri), encodeNotification("notifications/resources/updated", resourceParams(uri, meta))) {
			return nil, nil, errTopics()
		}
		resources = append(resources, uri)
	}
	return rawjson.Set(honoured, "resourceSubscriptions", uris), resources, nil
}

func resourceParams(uri string, meta json.RawMessage) json.RawMessage {
	params := concat([]byte(`{"uri":`), encode(uri), []byte(`}`))
	if meta != nil {
		params = rawjson.Set(params, metaKey, meta)
	}
	return params
}

// isTrue says whether the value at a path is true.
func isTrue(v json.RawMessage, path ...string) bool {
	for _, key := range path {
		v, _ = rawjson.Get(v, key)
	}
	return string(v) == "true"
}

// serverCapabilities asks the server what it announces.
func (q *request) serverCapabilities(ctx context.Context) (json.RawMessage, *failure) {
	result, err := q.engine.Discover(ctx)
	if err != nil {
		return nil, errCall(cause(ctx, err), modernEra{}.status)
	}
	caps, _ := rawjson.Get(result, "capabilities")
	return caps, nil
}

// announces says whether a server with these capabilities ever has something to announce.
func announces(caps json.RawMessage) bool {
	for _, kind := range []ListKind{ListTools, ListPrompts, ListResources} {
		if isTrue(caps, string(kind), "listChanged") {
			return true
		}
	}
	return isTrue(caps, "resources", "subscribe")
}

// unannounced takes away from a server's capabilities what only a stream can carry.
func unannounced(result json.RawMessage) json.RawMessage {
	caps, ok := rawjson.Get(result, "capabilities")
	if !ok {
		return result
	}
	for _, kind := range []ListKind{ListTools, ListPrompts, ListResources} {
		if one, ok := rawjson.Get(caps, string(kind)); ok && rawjson.IsObject(one) {
			caps = rawjson.Set(caps, string(kind), rawjson.Delete(one, "listChanged", "subscribe"))
		}
	}
	return rawjson.Set(result, "capabilities", caps)
}
