package handler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hydrant-mcp/hydrant/internal/ctxmutex"
	"github.com/hydrant-mcp/hydrant/store"
)

// A ListKind is a list that clients can be told has changed.
type ListKind string

// The lists.
const (
	ListTools     ListKind = "tools"
	ListPrompts   ListKind = "prompts"
	ListResources ListKind = "resources"
)

// ErrOutside says that a context is not that of an MCP handler that a [Handler] runs.
var ErrOutside = errors.New("handler: not in the context of a call: use the method of the Handler")

// NotifyListChanged tells every client that listens, on any instance, that a list has changed. It is for handlers of the
// server (tools and others), whose context says which [Handler] runs them; elsewhere use [Handler.NotifyListChanged].
// [ErrOutside] when ctx is not of that kind.
func NotifyListChanged(ctx context.Context, kind ListKind) error {
	if s, ok := ctx.Value(servedKey{}).(served); ok {
		return s.h.NotifyListChanged(ctx, kind)
	}
	return ErrOutside
}

// NotifyResourceUpdated tells every client that has subscribed to the resource, on any instance, that it has changed. It is
// for handlers of the server, as [NotifyListChanged] is.
func NotifyResourceUpdated(ctx context.Context, uri string) error {
	if s, ok := ctx.Value(servedKey{}).(served); ok {
		return s.h.NotifyResourceUpdated(ctx, uri)
	}
	return ErrOutside
}

// NotifyListChanged tells every client that listens, on any instance, that a list has changed. It returns when that is
// safe: an error means that it may not have been.
//
// What the SDK's server announces by itself when tools, prompts or resources are added or removed is not passed on: what a
// server lists must be the same in all processes, and only this call reaches them all.
func (h *Handler) NotifyListChanged(ctx context.Context, kind ListKind) error {
	switch kind {
	case ListTools, ListPrompts, ListResources:
		return h.raise(ctx, listTopic(h.nameOf(ctx), kind))
	}
	return fmt.Errorf("handler: there is no list of %q", kind)
}

// NotifyResourceUpdated tells every client that has subscribed to the resource, on any instance, that it has changed. It
// returns when that is safe. For several tenants behind one handler ctx must be one of a call's.
func (h *Handler) NotifyResourceUpdated(ctx context.Context, uri string) error {
	return h.raise(ctx, resourceTopic(h.nameOf(ctx), uri))
}

func (h *Handler) raise(ctx context.Context, topic string) error {
	if h.store == nil {
		return fmt.Errorf("handler: changes cannot be announced without a store")
	}
	return h.store.RaiseTopic(ctx, topic)
}

// Topics are named with the server's name first: tenants do not hear each other's changes.
func listTopic(server string, kind ListKind) string { return server + "\x00list\x00" + string(kind) }

func resourceTopic(server, uri string) string { return server + "\x00resource\x00" + uri }

// sessionTopic rises when a session's subscriptions change, for its open stream.
func sessionTopic(key string) string { return "session\x00" + key }

// resourceOf gives the URI of a topic of a resource.
func resourceOf(server, topic string) (uri string, ok bool) {
	return strings.CutPrefix(topic, resourceTopic(server, ""))
}

// topicEvery is how often topics are read where the store does not push.
const topicEvery = time.Second

// A hub reads the topics of all of a handler's streams together: one batch per interval, however many streams there are,
// and none while there is no stream. It has no goroutine: the stream whose turn comes first reads for the others.
type hub struct {
	reading ctxmutex.Mutex // held while the store is asked

	mu     sync.Mutex
	topics map[string]*topic
	failed time.Time // when they could not be read last,
	err    error     // and why; nil when they could be since
}

// A topic is what is known of one.
type topic struct {
	streams int // that want it
	version int64
	read    time.Time // when it was asked for; zero: never
	wanted  time.Time // by somebody, to be read no earlier than then
}

// maxTopics bounds what one process watches for all of its streams.
const maxTopics = 50_000

// interval is how often topics are read: the more there are, the less often, so that a process with thousands of streams
// costs about a hundred reads a second and not thousands.
func (t *hub) interval() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return min(topicEvery*time.Duration(1+len(t.topics)/100), topicSeldom)
}

// topicSeldom is the longest that an announcement may take to be seen.
const topicSeldom = 30 * time.Second

// join makes a topic one that is watched, if there is room for it.
func (t *hub) join(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.topics == nil {
		t.topics = map[string]*topic{}
	}
	if t.topics[name] == nil {
		if len(t.topics) >= maxTopics {
			return false
		}
		t.topics[name] = &topic{}
	}
	t.topics[name].streams++
	return true
}

func (t *hub) leave(names []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, name := range names {
		if t.topics[name].streams--; t.topics[name].streams == 0 {
			delete(t.topics, name)
		}
	}
}

// current gives the versions of topics that the caller has joined, at most age old. What it reads for that it reads of
// everybody's topics; at an age of zero, which is for one who knows that some of its own have risen, of those that somebody
// waits for. Its own come first, and those of the others only as far as there is time: nobody's many topics keep anybody from
// hearing of its own.
func (t *hub) current(ctx context.Context, st store.Store, names []string, age time.Duration) (map[string]int64, error) {
	asked := time.Now()
	oldest := asked.Add(-age) // also what others read while we wait for them is good
	t.want(names, oldest)
	if err := t.reading.Lock(ctx); err != nil {
		return nil, err
	}
	defer t.reading.Unlock()
	due, err := t.due(names, asked, age > 0)
	if err != nil {
		return nil, err
	}
	for part := range slices.Chunk(due, topicsAtOnce) {
		own := slices.Contains(names, part[0]) // they come first
		if !own && time.Since(asked) > topicWait {
			break
		}
		if err := t.read(ctx, st, part, own); err != nil {
			if own {
				return nil, err
			}
			break
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make(map[string]int64, len(names))
	for _, name := range names {
		out[name] = t.topics[name].version
	}
	return out, nil
}

const (
	// topicsAtOnce is how many topics are read in one reading, and topicWait bounds it: many streams may wait for it.
	topicsAtOnce = 1000
	topicWait    = 3 * time.Second
	// topicFailed is for how long one failure stands for all.
	topicFailed = topicEvery * 9 / 10
)

// read reads the versions of topics. That the store fails stands for all, if it is for somebody's own topics.
func (t *hub) read(ctx context.Context, st store.Store, names []string, own bool) error {
	// For others as well: it does not end with our client.
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), topicWait)
	defer stop()
	began := time.Now()
	versions, err := st.TopicVersions(ctx, names)
	if err == nil || own {
		t.note(began, versions, err)
	}
	return err
}

// want notes that topics have to be read, unless they have been since a time.
func (t *hub) want(names []string, since time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, name := range names {
		if known := t.topics[name]; since.After(known.wanted) {
			known.wanted = since
		}
	}
}

// due gives the topics to be read for a stream, none if its own need not be: those that somebody waits for, or everybody's. A
// failure of another stream's is as good as our own.
func (t *hub) due(names []string, asked time.Time, everybodys bool) ([]string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil && (t.failed.After(asked) || time.Since(t.failed) < topicFailed) {
		return nil, t.err
	}
	old := func(name string) bool { return !t.topics[name].read.After(t.topics[name].wanted) }
	if !slices.ContainsFunc(names, old) {
		return nil, nil
	}
	mine := make(map[string]bool, len(names))
	for _, name := range names {
		mine[name] = true
	}
	var due, others []string
	for name := range t.topics {
		switch {
		case !everybodys && !old(name): // else whatever their age: what is read together stays together
		case mine[name]:
			due = append(due, name)
		default:
			others = append(others, name)
		}
	}
	return append(due, others...), nil
}

func (t *hub) note(asked time.Time, versions map[string]int64, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err = err; err != nil {
		t.failed = time.Now()
		return
	}
	for name, version := range versions {
		if known := t.topics[name]; known != nil { // somebody still wants it
			known.version, known.read = version, asked
		}
	}
}

type servedKey struct{}

// served says, in the context of a call, who serves it and under which name.
type served struct {
	h    *Handler
	name string
}

// nameOf is the name of the server whose call ctx belongs to, for several tenants; else the handler's own.
func (h *Handler) nameOf(ctx context.Context) string {
	if s, ok := ctx.Value(servedKey{}).(served); ok {
		return s.name
	}
	return h.opts.Name
}
