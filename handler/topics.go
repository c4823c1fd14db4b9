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

// resourceOf gives the URI of a topic of a resource.
func resourceOf(server, topic string) (uri string, ok bool) {
	return strings.CutPrefix(topic, resourceTopic(server, ""))
}

// topicEvery is how often topics are read where the store does not push.
const topicEvery = time.Second

// A hub reads the topics of all of a handler's streams together: one batch per interval, however many streams there are,
// and none while there is no stream. It has no goroutine: the stream whose turn comes first reads for the others.
type hub struct {
	mu       sync.Mutex
	wanted   map[string]int // by how many streams
	versions map[string]int64
	read     time.Time
}

func (t *hub) join(topics []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.wanted == nil {
		t.wanted = map[string]int{}
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
	t.mu.Lock()
	defer t.mu.Unlock()
	known := time.Since(t.read) < age
	for _, topic := range topics {
		if _, ok := t.versions[topic]; !ok {
			known = false
		}
	}
	if !known {
		versions, err := st.TopicVersions(ctx, slices.Collect(maps.Keys(t.wanted)))
		if err != nil {
			return nil, err
		}
		t.versions, t.read = versions, time.Now()
	}
	out := make(map[string]int64, len(topics))
	for _, topic := range topics {
		out[topic] = t.versions[topic]
	}
	return out, nil
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
