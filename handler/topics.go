package handler

import (
	"context"
	"errors"
	"fmt"
	"maps"
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

	mu       sync.Mutex
	wanted   map[string]int // by how many streams
	versions map[string]int64
	read     time.Time // when all that was wanted was read, or was tried to be
	err      error     // of that read
}

// maxTopics bounds what one process watches for all of its streams.
const maxTopics = 50_000

// room says whether n more topics can be watched.
func (t *hub) room(n int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.wanted)+n <= maxTopics
}

// interval is how often topics are read: the more there are, the less often, so that a process with thousands of streams
// costs about a hundred reads a second and not thousands.
func (t *hub) interval() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return min(topicEvery*time.Duration(1+len(t.wanted)/100), topicSeldom)
}

// topicSeldom is the longest that an announcement may take to be seen.
const topicSeldom = 30 * time.Second

func (t *hub) join(topics []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.wanted == nil {
		t.wanted, t.versions = map[string]int{}, map[string]int64{}
	}
	for _, topic := range topics {
		t.wanted[topic]++
	}
}

func (t *hub) leave(topics []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, topic := range topics {
		if t.wanted[topic]--; t.wanted[topic] <= 0 {
			delete(t.wanted, topic)
			delete(t.versions, topic)
		}
	}
}

// current gives the versions of topics that the caller has joined, at most age old.
func (t *hub) current(ctx context.Context, st store.Store, topics []string, age time.Duration) (map[string]int64, error) {
	asked := time.Now()
	if err := t.reading.Lock(ctx); err != nil {
		return nil, err
	}
	defer t.reading.Unlock()
	missing, stale, err := t.missing(topics, asked, age)
	if err != nil {
		return nil, err
	}
	if stale {
		missing = t.all()
	}
	if len(missing) > 0 {
		ctx, stop := context.WithTimeout(ctx, topicWait)
		defer stop()
		versions, err := st.TopicVersions(ctx, missing)
		t.note(versions, stale, err)
		if err != nil {
			return nil, err
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make(map[string]int64, len(topics))
	for _, topic := range topics {
		out[topic] = t.versions[topic]
	}
	return out, nil
}

// topicWait bounds one reading of the topics: many streams may wait for it.
const topicWait = 3 * time.Second

// missing gives the topics whose versions are not known, and whether those that are known are too old. What another stream
// has read, or failed to read, since asked is as good as our own.
func (t *hub) missing(topics []string, asked time.Time, age time.Duration) (missing []string, stale bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fresh := t.read.After(asked.Add(-age))
	if fresh && t.err != nil {
		return nil, false, t.err
	}
	for _, topic := range topics {
		if _, ok := t.versions[topic]; !ok {
			missing = append(missing, topic)
		}
	}
	return missing, !fresh, nil
}

func (t *hub) all() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Keys(t.wanted))
}

func (t *hub) note(versions map[string]int64, all bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if all {
		t.read, t.err = time.Now(), err
	}
	for topic, v := range versions {
		if t.wanted[topic] > 0 {
			t.versions[topic] = v
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
