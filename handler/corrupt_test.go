package handler

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/store"
)

// spoilt is a store in which somebody else has written: one kind of what is read from it is no JSON.
type spoilt struct {
	store.Store
	kind  atomic.Value // string
	bytes string
}

// spoil makes a kind of record unreadable.
func (e *endpoint) spoil(kind, bytes string) {
	s := &spoilt{Store: e.store.Store, bytes: bytes}
	s.kind.Store(kind)
	e.store.Store = s
}

func (s *spoilt) read(kind string, raw []byte) []byte {
	if s.kind.Load() == kind {
		return []byte(s.bytes)
	}
	return raw
}

func (s *spoilt) Session(ctx context.Context, key string) (*store.Session, error) {
	session, err := s.Store.Session(ctx, key)
	if err == nil {
		session.InitializeParams = s.read("session", session.InitializeParams)
	}
	return session, err
}

func (s *spoilt) Exchange(ctx context.Context, key string) (*store.Exchange, error) {
	x, err := s.Store.Exchange(ctx, key)
	if err == nil {
		x.Data = s.read("exchange", x.Data)
	}
	return x, err
}

func (s *spoilt) Events(ctx context.Context, exchange string, after int64, limit int) ([]store.Event, error) {
	events, err := s.Store.Events(ctx, exchange, after, limit)
	for i := range events {
		events[i].Data = s.read("event", events[i].Data)
	}
	return events, err
}

func (s *spoilt) Answer(ctx context.Context, exchange, question string) ([]byte, error) {
	raw, err := s.Store.Answer(ctx, exchange, question)
	switch {
	case err != nil || exchange == keySlotExchange:
		return raw, err
	case strings.HasPrefix(question, "round."):
		return s.read("round", raw), nil
	}
	return s.read("answer", raw), nil
}

func (s *spoilt) Look(ctx context.Context, session string, slots []store.Slot) (*store.Session, map[store.Slot][]byte, error) {
	record, answers, err := s.Store.Look(ctx, session, slots)
	for slot, raw := range answers {
		answers[slot] = s.read("answer", raw)
	}
	return record, answers, err
}

func (s *spoilt) Watch(ctx context.Context, w store.Watched, changed func()) error {
	return s.Store.(store.Watcher).Watch(ctx, w, changed)
}

// noJSON are bytes that a walk over JSON could fail at.
var noJSON = []string{`[}`, `{"a"`, `{"result":{"a"`, `[[`, "\x00"}

func TestASessionWithoutJSONCannotBeRead(t *testing.T) {
	for _, bytes := range noJSON {
		e := open(t, setup{}, true)
		s := e.session(version20251125)
		e.spoil("session", bytes)
		for name, r := range map[string]reply{
			"POST": s.post(listTools), "notification": s.post(initialized), "call": s.call("rounds", `{}`),
			"GET": s.send("GET", "", "Accept", "text/event-stream"), "DELETE": s.send("DELETE", ""),
		} {
			assert.Equal(t, 500, r.status, name)
			assert.Equal(t, -32603, r.code(), name)
		}
		assert.Equal(t, "ERROR", e.log.level("record cannot be read", "read a session"))
	}
}

// Whoever comes back to a call of which something cannot be read gets an end: it would be the same the next time.
func TestACallWithoutJSONEnds(t *testing.T) {
	for kind, words := range map[string]string{
		"event": "read an event", "exchange": "read an exchange", "round": "read a round", "answer": "read an answer",
	} {
		for _, bytes := range append(noJSON, "", "[]") {
			for _, runtime := range []Runtime{{}, {Buffered: true}} {
				if bytes == "[]" && kind != "event" {
					continue
				}
				v := &interview{}
				e := open(t, setup{server: v.server, opts: Options{Ask: AskSuspend}, runtime: runtime}, true)
				s := e.initialize(version20251125, allCapabilities)
				call := s.open(http.MethodPost, callBody("7", "three", `{}`))
				frames := call.rest()
				from := frames[len(frames)-1].id
				if kind == "event" {
					from = e.sign(s, 0)
				}
				s.person(same, frames)
				e.spoil(kind, bytes)
				frames = s.resume(from).rest()
				require.NotEmpty(t, frames, kind)
				last := frames[len(frames)-1]
				require.Equal(t, -32603, reply{body: last.data}.code(), "%s %q %v", kind, bytes, frames)
				assert.Equal(t, "7", last.id0())
				assert.Equal(t, "ERROR", e.log.level("record cannot be read", words), kind)
				assert.Empty(t, s.resume(last.id).rest(), "it has everything")
				assert.Equal(t, 1, v.ran("three"))
			}
		}
	}
}

// sign gives the id of a place in the stream of a session's last call, whose request has the id 7.
func (e *endpoint) sign(s *session, seq int64) string {
	e.t.Helper()
	keys, err := New(testServer(), e.store, nil).keys(e.t.Context())
	require.NoError(e.t, err)
	return keys.sign(purposeEvent, eventID{
		Exchange: e.store.lastExchange(), Session: short(sessionKey(defaultName, s.id)), Principal: short(""),
		ID: json.RawMessage(`7`), Until: farAway, Seq: seq,
	})
}

func TestAnAnswerWithoutJSONFailsTheQuestion(t *testing.T) {
	v := &interview{}
	e := open(t, setup{server: v.server}, true)
	s := e.initialize(version20251125, allCapabilities)
	e.spoil("answer", `{"result":{"a"`)
	frames := s.converse(s.open(http.MethodPost, callBody("7", "elicit", `{}`)), same)
	assert.Contains(t, frames[len(frames)-1].data, "the client's answer cannot be read")
	assert.Equal(t, "ERROR", e.log.level("record cannot be read", "read an answer"))
}

func TestAResponseOfSomebodyElseWithoutJSON(t *testing.T) {
	e := open(t, setup{}, false)
	x := &exchange{request: &request{h: New(testServer(), e.store, nil), name: defaultName}, key: "k", session: &store.Session{},
		msg: message{id: json.RawMessage("1"), method: "tools/call"}}
	box, err := x.openOutbox(t.Context())
	require.NoError(t, err)
	final := store.Event{Seq: store.Final, Data: []byte(`[}`)}
	require.NoError(t, e.store.AppendEvent(t.Context(), box.record.Key, final, time.Now().Add(time.Hour)))
	_, _, err = box.finish(t.Context(), json.RawMessage(`{}`))
	assert.ErrorIs(t, err, store.ErrCorrupt)
}
