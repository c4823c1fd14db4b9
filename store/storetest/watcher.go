package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/store"
)

var watcherTests = []test{
	{"TellsOfEachKindOfChange", ofWatcher(testWatcherEachChange)},
	{"TellsOfEachTopicOfMany", ofWatcher(testWatcherManyTopics)},
	{"TellsOfTheLastOfManyChanges", ofWatcher(testWatcherLastChange)},
	{"CallsDoNotOverlap", ofWatcher(testWatcherNoOverlap)},
	{"TellsEveryWatch", ofWatcher(testWatcherEveryWatch)},
	{"TellsNothingAfterTheContextHasEnded", ofWatcher(testWatcherEnds)},
	{"DoesNotBeginWhenTheContextHasEnded", ofWatcher(testWatcherContext)},
}

// toldWithin is how soon a change must be told. That is generous: it bounds a test, not a store.
const toldWithin = 10 * time.Second

// A watchable is a store that is a [store.Watcher].
type watchable interface {
	store.Store
	store.Watcher
}

func ofWatcher(f func(context.Context, *testing.T, watchable)) func(context.Context, *testing.T, store.Store) {
	return func(ctx context.Context, t *testing.T, st store.Store) {
		w, ok := st.(watchable)
		if !ok {
			t.Skip("this store is looked at now and then")
		}
		f(ctx, t, w)
	}
}

// watch begins to watch and returns what is signalled.
func watch(ctx context.Context, t *testing.T, st watchable, w store.Watched) <-chan struct{} {
	t.Helper()
	told := make(chan struct{}, 1)
	w.Lost = func() { assert.Fail(t, "lost, though the store can be reached") }
	require.NoError(t, st.Watch(ctx, w, func() {
		select {
		case told <- struct{}{}:
		default:
		}
	}))
	return told
}

func requireTold(t *testing.T, told <-chan struct{}, of string) {
	t.Helper()
	select {
	case <-told:
	case <-time.After(toldWithin):
		require.Fail(t, "not told of a change", of)
	}
}

// forgetTold takes what has been signalled. A late signal of an earlier change can still be taken for that of a later
// one, which is why each kind of change is watched anew.
func forgetTold(told <-chan struct{}) {
	select {
	case <-told:
	default:
	}
}

func testWatcherEachChange(ctx context.Context, t *testing.T, st watchable) {
	s := create(ctx, t, st, nil)
	x := createExchange(ctx, t, st, nil)
	young, fresh := NewSession(), NewExchange()
	for seq := int64(1); seq <= 2; seq++ {
		appendEvent(ctx, t, st, x.Key, seq, small(seq))
	}
	topic, raised := unused(), unused()
	require.NoError(t, st.RaiseTopic(ctx, raised))
	from := func(after int64) store.Watched { return store.Watched{Exchange: x.Key, After: after} }
	slot := func(question string) store.Watched {
		return store.Watched{Slots: []store.Slot{{Exchange: x.Key, Question: "another"}, {Exchange: x.Key, Question: question}}}
	}
	event := func(seq int64, size int) func() error {
		return func() error {
			return st.AppendEvent(ctx, x.Key, store.Event{Seq: seq, Data: pattern(size, uint32(seq))}, inAnHour())
		}
	}
	answer := func(question string, size int) func() error {
		return func() error { return st.PutAnswer(ctx, x.Key, question, pattern(size, 1), inAnHour()) }
	}
	for _, tt := range []struct {
		name   string
		w      store.Watched
		change func() error
	}{
		{"a session is created", store.Watched{Session: young.Key}, func() error { return st.CreateSession(ctx, young) }},
		{"a session is updated", store.Watched{Session: s.Key}, func() error {
			s.Cancels++
			s.Cancelled = append(s.Cancelled, "7")
			return st.UpdateSession(ctx, s)
		}},
		{"a session is deleted", store.Watched{Session: s.Key}, func() error { return st.DeleteSession(ctx, s.Key) }},
		{"an exchange is created", store.Watched{Exchange: fresh.Key}, func() error { return st.CreateExchange(ctx, fresh) }},
		{"an exchange is updated", from(0), func() error {
			x.Round++
			return st.UpdateExchange(ctx, x)
		}},
		{"an event is appended", from(2), event(3, 100)},
		{"a large event is appended", from(3), event(4, 1<<20)},
		{"the final event is appended", from(4), event(store.Final, 100)},
		{"an exchange is updated after the final event was read", from(store.Final),
			func() error { return st.UpdateExchange(ctx, x) }},
		{"an answer is put", slot("q"), answer("q", 100)},
		{"a large answer is put", slot("r"), answer("r", 1<<20)},
		{"a topic is raised", store.Watched{Topics: []string{topic}}, func() error { return st.RaiseTopic(ctx, topic) }},
		{"a topic is raised again", store.Watched{Topics: []string{unused(), raised, raised}},
			func() error { return st.RaiseTopic(ctx, raised) }},
		{"one of all", store.Watched{Session: young.Key, Exchange: x.Key, Topics: []string{topic, raised}},
			func() error { return st.UpdateSession(ctx, young) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			watching, stop := context.WithCancel(ctx)
			defer stop()
			told := watch(watching, t, st, tt.w)
			require.NoError(t, tt.change())
			requireTold(t, told, tt.name)
		})
	}
}

func testWatcherManyTopics(ctx context.Context, t *testing.T, st watchable) {
	base := unused()
	var topics []string
	for i := range 65 {
		topics = append(topics, fmt.Sprintf("%s/%d", base, i))
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	told := watch(watching, t, st, store.Watched{Topics: topics})
	for _, i := range []int{0, 29, 30, 64} {
		forgetTold(told)
		require.NoError(t, st.RaiseTopic(ctx, topics[i]))
		requireTold(t, told, topics[i])
	}
}

// What a reader does: it watches what comes next, and looks before it waits. After the last change it has seen everything.
func testWatcherLastChange(ctx context.Context, t *testing.T, st watchable) {
	exchange := unused()
	const events = 30
	done := make(chan error, 1)
	go func() {
		for seq := int64(1); seq <= events; seq++ {
			if err := st.AppendEvent(ctx, exchange, store.Event{Seq: seq, Data: small(seq)}, inAnHour()); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for after := int64(0); after < events; {
		watching, stop := context.WithCancel(ctx)
		told := watch(watching, t, st, store.Watched{Exchange: exchange, After: after})
		page, err := st.Events(ctx, exchange, after, 0)
		require.NoError(t, err)
		if len(page) == 0 {
			requireTold(t, told, fmt.Sprintf("after event %d", after))
		} else {
			after = page[len(page)-1].Seq
		}
		stop()
	}
	require.NoError(t, <-done)
}

func testWatcherNoOverlap(ctx context.Context, t *testing.T, st watchable) {
	topic := unused()
	watching, stop := context.WithCancel(ctx)
	defer stop()
	inside := make(chan struct{}, 1)
	entered, proceed := make(chan bool), make(chan struct{})
	require.NoError(t, st.Watch(watching, store.Watched{Topics: []string{topic}}, func() {
		alone := true
		select {
		case inside <- struct{}{}:
			defer func() { <-inside }()
		default:
			alone = false
		}
		select {
		case entered <- alone:
		case <-watching.Done():
			return
		}
		select {
		case <-proceed:
		case <-watching.Done():
		}
	}))
	require.NoError(t, st.RaiseTopic(ctx, topic))
	enter := func() {
		t.Helper()
		select {
		case alone := <-entered:
			require.True(t, alone, "a call while another one ran")
		case <-time.After(toldWithin):
			require.Fail(t, "not told of a change")
		}
	}
	enter()
	for range 5 {
		require.NoError(t, st.RaiseTopic(ctx, topic)) // while the call runs
	}
	select {
	case <-entered:
		require.Fail(t, "a call while another one ran")
	default:
	}
	proceed <- struct{}{}
	enter()
}

func testWatcherEveryWatch(ctx context.Context, t *testing.T, st watchable) {
	s := create(ctx, t, st, nil)
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var all []<-chan struct{}
	for range 3 {
		all = append(all, watch(watching, t, st, store.Watched{Session: s.Key}))
	}
	ended, end := context.WithCancel(ctx)
	watch(ended, t, st, store.Watched{Session: s.Key})
	end()
	require.NoError(t, st.UpdateSession(ctx, s))
	for i, told := range all {
		requireTold(t, told, fmt.Sprintf("to watch %d", i))
	}
}

func testWatcherEnds(ctx context.Context, t *testing.T, st watchable) {
	x := createExchange(ctx, t, st, nil)
	ended, end := context.WithCancel(ctx)
	told := watch(ended, t, st, store.Watched{Session: x.Session, Exchange: x.Key, Topics: []string{x.Key}})
	end()
	watching, stop := context.WithCancel(ctx)
	defer stop()
	later := watch(watching, t, st, store.Watched{Exchange: x.Key, Topics: []string{x.Key}})
	forgetTold(told) // a call that had begun
	require.NoError(t, st.UpdateExchange(ctx, x))
	requireTold(t, later, "the exchange")
	forgetTold(later)
	require.NoError(t, st.RaiseTopic(ctx, x.Key))
	requireTold(t, later, "the topic")
	select {
	case <-told:
		require.Fail(t, "told after the context had ended")
	default:
	}
}

func testWatcherContext(ctx context.Context, t *testing.T, st watchable) {
	never := func() { assert.Fail(t, "called") }
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	err := st.Watch(cancelled, store.Watched{Session: unused()}, never)
	require.ErrorIs(t, err, context.Canceled)
	assert.NotErrorIs(t, err, store.ErrUnavailable)
	late, cancel := context.WithDeadline(ctx, time.Now().Add(-time.Second))
	defer cancel()
	err = st.Watch(late, store.Watched{Session: unused()}, never)
	require.ErrorIs(t, err, store.ErrUnavailable)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	watching, stop := context.WithCancel(ctx)
	defer stop()
	require.NoError(t, st.Watch(watching, store.Watched{}, never), "nothing to watch is nothing to do")
}
