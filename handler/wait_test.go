package handler

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/store"
	"github.com/hydrant-mcp/hydrant/store/memory"
)

// A losing store lets watches begin, tells nothing, and at last says so.
type losing struct {
	store.Store
	begun chan struct{} // gets one for each watch
	lose  chan struct{}
}

func newLosing(st store.Store) *losing {
	return &losing{st, make(chan struct{}, 100), make(chan struct{})}
}

func (l *losing) Watch(ctx context.Context, w store.Watched, _ func()) error {
	go func() {
		select {
		case <-l.lose:
			w.Lost()
		case <-ctx.Done():
		}
	}()
	l.begun <- struct{}{}
	return nil
}

func TestWhoeverIsNotToldAnyMoreLooks(t *testing.T) {
	if !storeTells {
		t.Skip("this store tells nothing anyway")
	}
	t.Run("a call that has asked", func(t *testing.T) {
		v := &interview{}
		e := open(t, setup{server: v.server}, true)
		s := e.initialize(version20251125, allCapabilities)
		st := newLosing(e.store.Store)
		e.store.Store = st
		c := s.open(http.MethodPost, callBody("1", "elicit", `{}`))
		q := c.question()
		<-st.begun
		require.Equal(t, 202, s.post(s.answerTo(q, same)).status)
		close(st.lose)
		assert.NotEmpty(t, responses(c.rest()))
	})
	t.Run("a stream that listens", func(t *testing.T) {
		e := open(t, setup{}, true)
		s := e.session(version20251125)
		st := newLosing(e.store.Store)
		e.store.Store = st
		get := s.open(http.MethodGet, "")
		<-get.frames
		<-st.begun
		for _, meanwhile := range []func(){func() { close(st.lose) }, func() {}} {
			require.NoError(t, e.announcer().NotifyListChanged(t.Context(), ListTools))
			meanwhile()
			f, _ := get.next()
			assert.Equal(t, "notifications/tools/list_changed", f.method())
		}
	})
}

func TestALostWatchIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newLosing(memory.New())
		var w watched
		w.begin(t.Context(), st, store.Watched{Session: "s"})
		defer func() { w.stop() }()
		assert.True(t, w.tells())
		close(st.lose)
		<-w.changed // a look is due
		assert.False(t, w.tells())
		assert.True(t, w.refused(), "not at once")
		time.Sleep(watchAgain)
		assert.False(t, w.refused())
	})
}
