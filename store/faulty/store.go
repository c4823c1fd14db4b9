package faulty

import (
	"context"
	"time"

	"github.com/hydrant-mcp/hydrant/store"
)

type faultyStore struct {
	st     store.Store
	faults *Faults
}

type watcher struct {
	*faultyStore
	watcher store.Watcher
}

var (
	_ store.Store   = (*faultyStore)(nil)
	_ store.Watcher = (*watcher)(nil)
)

func (s *faultyStore) read(ctx context.Context, op Operation, call func(context.Context) error) error {
	return s.faults.do(ctx, op, false, false, call)
}

func (s *faultyStore) write(ctx context.Context, op Operation, call func(context.Context) error) error {
	return s.faults.do(ctx, op, true, false, call)
}

// swap calls with a copy of a record: the caller learns the new revision only from a call that succeeds.
func swap[T any](ctx context.Context, s *faultyStore, op Operation, record *T, call func(context.Context, *T) error) error {
	copied := *record
	err := s.faults.do(ctx, op, true, true, func(ctx context.Context) error { return call(ctx, &copied) })
	if err == nil {
		*record = copied
	}
	return err
}

// create is swap for a record that is not there yet, so that nobody can have been faster.
func create[T any](ctx context.Context, s *faultyStore, op Operation, record *T, call func(context.Context, *T) error) error {
	copied := *record
	err := s.write(ctx, op, func(ctx context.Context) error { return call(ctx, &copied) })
	if err == nil {
		*record = copied
	}
	return err
}

// CreateSession implements [store.Store].
func (s *faultyStore) CreateSession(ctx context.Context, session *store.Session) error {
	return create(ctx, s, CreateSession, session, s.st.CreateSession)
}

// Session implements [store.Store].
func (s *faultyStore) Session(ctx context.Context, key string) (session *store.Session, err error) {
	err = s.read(ctx, Session, func(ctx context.Context) (err error) {
		session, err = s.st.Session(ctx, key)
		return err
	})
	return session, err
}

// UpdateSession implements [store.Store].
func (s *faultyStore) UpdateSession(ctx context.Context, session *store.Session) error {
	return swap(ctx, s, UpdateSession, session, s.st.UpdateSession)
}

// DeleteSession implements [store.Store].
func (s *faultyStore) DeleteSession(ctx context.Context, key string) error {
	return s.write(ctx, DeleteSession, func(ctx context.Context) error { return s.st.DeleteSession(ctx, key) })
}

// CreateExchange implements [store.Exchanges].
func (s *faultyStore) CreateExchange(ctx context.Context, x *store.Exchange) error {
	return create(ctx, s, CreateExchange, x, s.st.CreateExchange)
}

// Exchange implements [store.Exchanges].
func (s *faultyStore) Exchange(ctx context.Context, key string) (x *store.Exchange, err error) {
	err = s.read(ctx, Exchange, func(ctx context.Context) (err error) {
		x, err = s.st.Exchange(ctx, key)
		return err
	})
	return x, err
}

// UpdateExchange implements [store.Exchanges].
func (s *faultyStore) UpdateExchange(ctx context.Context, x *store.Exchange) error {
	return swap(ctx, s, UpdateExchange, x, s.st.UpdateExchange)
}

// AppendEvent implements [store.Store].
func (s *faultyStore) AppendEvent(ctx context.Context, exchange string, e store.Event, expires time.Time) error {
	return s.write(ctx, AppendEvent, func(ctx context.Context) error {
		return s.st.AppendEvent(ctx, exchange, e, expires)
	})
}

// Events implements [store.Store].
func (s *faultyStore) Events(ctx context.Context, exchange string, after int64, limit int) (es []store.Event, err error) {
	err = s.read(ctx, Events, func(ctx context.Context) (err error) {
		es, err = s.st.Events(ctx, exchange, after, limit)
		return err
	})
	return es, err
}

// PutAnswer implements [store.Store].
func (s *faultyStore) PutAnswer(ctx context.Context, exchange, question string, answer []byte, expires time.Time) error {
	return s.write(ctx, PutAnswer, func(ctx context.Context) error {
		return s.st.PutAnswer(ctx, exchange, question, answer, expires)
	})
}

// Answer implements [store.Store].
func (s *faultyStore) Answer(ctx context.Context, exchange, question string) (answer []byte, err error) {
	err = s.read(ctx, Answer, func(ctx context.Context) (err error) {
		answer, err = s.st.Answer(ctx, exchange, question)
		return err
	})
	return answer, err
}

// Look implements [store.Store].
func (s *faultyStore) Look(ctx context.Context, session string, slots []store.Slot) (
	found *store.Session, answers map[store.Slot][]byte, err error,
) {
	err = s.read(ctx, Look, func(ctx context.Context) (err error) {
		found, answers, err = s.st.Look(ctx, session, slots)
		return err
	})
	return found, answers, err
}

// RaiseTopic implements [store.Store].
func (s *faultyStore) RaiseTopic(ctx context.Context, topic string) error {
	return s.write(ctx, RaiseTopic, func(ctx context.Context) error { return s.st.RaiseTopic(ctx, topic) })
}

// TopicVersions implements [store.Store].
func (s *faultyStore) TopicVersions(ctx context.Context, topics []string) (versions map[string]int64, err error) {
	err = s.read(ctx, TopicVersions, func(ctx context.Context) (err error) {
		versions, err = s.st.TopicVersions(ctx, topics)
		return err
	})
	return versions, err
}

// Watch implements [store.Watcher]. What fails is its beginning.
func (s *watcher) Watch(ctx context.Context, w store.Watched, changed func()) error {
	return s.read(ctx, Watch, func(ctx context.Context) error { return s.watcher.Watch(ctx, w, changed) })
}
