package faulty

import (
	"context"
	"time"

	"github.com/hydrant-mcp/hydrant/store"
)

// An Around is made around every operation of a store: it makes the call, or does not, and gives the operation's error.
type Around func(ctx context.Context, op Operation, call func(context.Context) error) error

// Wrap gives a store that does what st does, with a around each operation. It is a [store.Watcher] if st is one; of a watch
// it is around the beginning.
func (a Around) Wrap(st store.Store) store.Store {
	s := &wrapped{st: st, do: a}
	if w, ok := st.(store.Watcher); ok {
		return &watcher{wrapped: s, watcher: w}
	}
	return s
}

type wrapped struct {
	st store.Store
	do Around
}

type watcher struct {
	*wrapped
	watcher store.Watcher
}

var (
	_ store.Store   = (*wrapped)(nil)
	_ store.Watcher = (*watcher)(nil)
)

// put calls with a copy of a record: the caller learns the new revision only from a call that succeeds.
func put[T any](ctx context.Context, s *wrapped, op Operation, record *T, call func(context.Context, *T) error) error {
	copied := *record
	err := s.do(ctx, op, func(ctx context.Context) error { return call(ctx, &copied) })
	if err == nil {
		*record = copied
	}
	return err
}

// CreateSession implements [store.Store].
func (s *wrapped) CreateSession(ctx context.Context, session *store.Session) error {
	return put(ctx, s, CreateSession, session, s.st.CreateSession)
}

// Session implements [store.Store].
func (s *wrapped) Session(ctx context.Context, key string) (session *store.Session, err error) {
	err = s.do(ctx, Session, func(ctx context.Context) (err error) {
		session, err = s.st.Session(ctx, key)
		return err
	})
	return session, err
}

// UpdateSession implements [store.Store].
func (s *wrapped) UpdateSession(ctx context.Context, session *store.Session) error {
	return put(ctx, s, UpdateSession, session, s.st.UpdateSession)
}

// DeleteSession implements [store.Store].
func (s *wrapped) DeleteSession(ctx context.Context, key string) error {
	return s.do(ctx, DeleteSession, func(ctx context.Context) error { return s.st.DeleteSession(ctx, key) })
}

// CreateExchange implements [store.Exchanges].
func (s *wrapped) CreateExchange(ctx context.Context, x *store.Exchange) error {
	return put(ctx, s, CreateExchange, x, s.st.CreateExchange)
}

// Exchange implements [store.Exchanges].
func (s *wrapped) Exchange(ctx context.Context, key string) (x *store.Exchange, err error) {
	err = s.do(ctx, Exchange, func(ctx context.Context) (err error) {
		x, err = s.st.Exchange(ctx, key)
		return err
	})
	return x, err
}

// UpdateExchange implements [store.Exchanges].
func (s *wrapped) UpdateExchange(ctx context.Context, x *store.Exchange) error {
	return put(ctx, s, UpdateExchange, x, s.st.UpdateExchange)
}

// AppendEvent implements [store.Store].
func (s *wrapped) AppendEvent(ctx context.Context, exchange string, e store.Event, expires time.Time) error {
	return s.do(ctx, AppendEvent, func(ctx context.Context) error {
		return s.st.AppendEvent(ctx, exchange, e, expires)
	})
}

// Events implements [store.Store].
func (s *wrapped) Events(ctx context.Context, exchange string, after int64, limit int) (es []store.Event, err error) {
	err = s.do(ctx, Events, func(ctx context.Context) (err error) {
		es, err = s.st.Events(ctx, exchange, after, limit)
		return err
	})
	return es, err
}

// PutAnswer implements [store.Store].
func (s *wrapped) PutAnswer(ctx context.Context, exchange, question string, answer []byte, expires time.Time) error {
	return s.do(ctx, PutAnswer, func(ctx context.Context) error {
		return s.st.PutAnswer(ctx, exchange, question, answer, expires)
	})
}

// Answer implements [store.Store].
func (s *wrapped) Answer(ctx context.Context, exchange, question string) (answer []byte, err error) {
	err = s.do(ctx, Answer, func(ctx context.Context) (err error) {
		answer, err = s.st.Answer(ctx, exchange, question)
		return err
	})
	return answer, err
}

// Look implements [store.Store].
func (s *wrapped) Look(ctx context.Context, session string, slots []store.Slot) (
	found *store.Session, answers map[store.Slot][]byte, err error,
) {
	err = s.do(ctx, Look, func(ctx context.Context) (err error) {
		found, answers, err = s.st.Look(ctx, session, slots)
		return err
	})
	return found, answers, err
}

// RaiseTopic implements [store.Store].
func (s *wrapped) RaiseTopic(ctx context.Context, topic string) error {
	return s.do(ctx, RaiseTopic, func(ctx context.Context) error { return s.st.RaiseTopic(ctx, topic) })
}

// TopicVersions implements [store.Store].
func (s *wrapped) TopicVersions(ctx context.Context, topics []string) (versions map[string]int64, err error) {
	err = s.do(ctx, TopicVersions, func(ctx context.Context) (err error) {
		versions, err = s.st.TopicVersions(ctx, topics)
		return err
	})
	return versions, err
}

// Watch implements [store.Watcher].
func (s *watcher) Watch(ctx context.Context, w store.Watched, changed func()) error {
	return s.do(ctx, Watch, func(ctx context.Context) error { return s.watcher.Watch(ctx, w, changed) })
}
