package handler

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

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
