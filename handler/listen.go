package handler

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/hydrant-mcp/hydrant/engine"
	"github.com/hydrant-mcp/hydrant/internal/rawjson"
	"github.com/hydrant-mcp/hydrant/store"
)

// A listener is a stream that carries announcements: the standalone stream of a legacy session, or a modern client's
// subscriptions/listen. Topics only count, so that several changes between two looks are one announcement.
type listener struct {
	*answer
	topics  []string
	altered bool                       // the topics, since they are watched
	message map[string]json.RawMessage // by topic
	seen    map[string]int64           // what has been announced
	noticed map[string]int64           // what it has been asked about whether to announce it
	told    map[string]int64           // what another stream has announced in our place
	also    store.Watched              // what decides, besides the topics, what is to be done
}

// add makes the listener announce a topic with a message, from now on. It says whether this process can watch so many.
func (l *listener) add(topic string, msg json.RawMessage) bool {
	if l.message == nil {
		l.message, l.seen = map[string]json.RawMessage{}, map[string]int64{}
	}
	if _, ok := l.message[topic]; ok {
		return true
	}
	if !l.h.topics.join(topic) {
		return false
	}
	l.topics = append(l.topics, topic)
	l.message[topic] = msg
	l.altered = true
	return true
}

func (l *listener) remove(topic string) {
	l.topics = slices.DeleteFunc(l.topics, func(t string) bool { return t == topic })
	delete(l.message, topic)
	delete(l.seen, topic)
	delete(l.noticed, topic)
	l.altered = true
	l.h.topics.leave([]string{topic})
}

func (l *listener) close() { l.h.topics.leave(l.topics) }

// start takes the versions from which on changes are announced.
func (l *listener) start(ctx context.Context) error {
	versions, err := l.h.topics.current(ctx, l.h.store, l.topics, 0)
	if err == nil {
		l.seen = versions
	}
	return err
}

// look reads the versions of the topics, and says whether one has risen since it was noticed.
func (l *listener) look(ctx context.Context, age time.Duration) (versions map[string]int64, risen bool, err error) {
	versions, err = l.h.topics.current(ctx, l.h.store, l.topics, age)
	for _, topic := range l.topics {
		risen = risen || versions[topic] > l.noticed[topic]
	}
	return versions, risen, err
}

// announce announces what has not been, by this stream or another in its place.
func (l *listener) announce(versions map[string]int64) {
	for _, topic := range l.topics {
		v := versions[topic]
		if msg := l.message[topic]; msg != nil && v > max(l.seen[topic], l.told[topic]) {
			l.event(msg)
		}
		if v > l.seen[topic] {
			l.seen[topic] = v
		}
	}
	l.told = nil
}

// A verdict says what a stream is to do.
type verdict int

const (
	speaks    verdict = iota // it is the one that announces
	silent                   // another one does
	uncertain                // nobody can tell at present
	ended                    // its session is gone
)

// serve announces until the stream has to end. may is asked every so often and before an announcement.
func (l *listener) serve(ctx context.Context, may func(context.Context) verdict) (politely bool) {
	ctx, stop := l.deadline(ctx)
	defer stop()
	var told watched
	defer func() { told.stop() }()
	l.noticed = maps.Clone(l.seen)
	alive, look, checks := time.NewTicker(keepAlive), time.NewTicker(topicEvery), time.NewTicker(checkEvery)
	defer alive.Stop()
	defer look.Stop()
	defer checks.Stop()
	owed := false // a look: what has risen before the watching began is told by nobody
	now := make(chan struct{}, 1)
	for looks, checked := 0, 0; ; {
		if altered := l.altered; altered || !told.tells() && !told.refused() {
			what := l.also
			what.Topics = slices.Clone(l.topics)
			told.begin(ctx, l.h.store, what)
			l.altered = false
			if altered || told.changed != nil {
				owed = true
				select {
				case now <- struct{}{}:
				default:
				}
			}
		}
		age, due := l.h.topics.interval(), false
		if told.changed != nil {
			age = safeguard * topicEvery
		}
		age = age * 9 / 10 // what another stream has read a moment before is good
		select {
		case <-now:
		case <-told.changed:
			owed = true
		case <-alive.C:
			l.comment()
			continue
		case <-checks.C:
			if checked++; told.changed != nil && checked%safeguardChecks != 0 {
				continue // the store tells
			}
			due = true
		case <-look.C:
			if looks++; told.changed != nil && looks%safeguard != 0 && !owed {
				continue // the store tells
			}
		case <-l.runtime.Draining:
			return true
		case <-ctx.Done():
			_, bounded := errors.AsType[limit](context.Cause(ctx))
			return bounded
		}
		if l.broken {
			return false
		}
		if owed {
			age, due = 0, due || told.changed != nil
		}
		versions, risen, err := l.look(ctx, age)
		if err != nil {
			continue // an outage announces nothing; the next look finds what has risen meanwhile
		}
		if !risen && !due {
			owed = false
			continue
		}
		verdict := may(ctx)
		if verdict == ended {
			return false
		}
		if owed = verdict == uncertain; owed {
			continue
		}
		if verdict == speaks {
			l.announce(versions)
		}
		for _, topic := range l.topics {
			if v, ok := versions[topic]; ok {
				l.noticed[topic] = v
			}
		}
	}
}

// safeguard is how seldom topics are read where the store tells, in intervals of topicEvery.
const safeguard = 60

// safeguardChecks is how seldom a stream looks after its session where the store tells, in intervals of checkEvery.
const safeguardChecks = 6

// checkEvery is how often a standalone stream looks whether its session still lives and what it has subscribed to.
const checkEvery = 10 * time.Second

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
	m := x.message(&engine.State{ProtocolVersion: version20251125, InitializeParams: info, Initialized: true})
	unsubscribe = func() {}
	for i, uri := range uris {
		m.Method, m.Params = "resources/subscribe", resourceParams(uri, nil)
		if _, err := x.engine.Call(ctx, m, newOutgoing(x.mayNotAsk)); err != nil {
			return unsubscribe, errCall(cause(ctx, err), x.era.status)
		}
		unsubscribe = func() {
			ctx, stop := toStore(ctx)
			defer stop()
			m.Method = "resources/unsubscribe"
			for _, uri := range uris[:i+1] {
				m.Params = resourceParams(uri, nil)
				if _, err := x.engine.Call(ctx, m, newOutgoing(x.mayNotAsk)); err != nil {
					x.h.opts.Logger.DebugContext(ctx, "the server did not unsubscribe a client that has gone", "error", err)
				}
			}
		}
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
