package main

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/examples/longrun"
	"github.com/hydrant-mcp/hydrant/handler"
	"github.com/hydrant-mcp/hydrant/store"
	"github.com/hydrant-mcp/hydrant/store/memory"
)

// instance starts one that shares the store with others. seen hears of its requests.
func instance(t *testing.T, sessions store.Store, step longrun.Step, seen func(*http.Request)) (url string) {
	t.Helper()
	h := handler.New(longrun.NewServer(step), sessions, nil)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen(r)
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func nothing(*http.Request) {}

func TestTheRestComesFromAnotherInstance(t *testing.T) {
	var taken atomic.Int32
	back := make(chan struct{})
	// The call is in its middle until the client has come back for it.
	step := func(ctx context.Context, n int) error {
		taken.Add(1)
		if n == steps/2 {
			<-back
		}
		return nil
	}
	sessions := memory.New()
	one := instance(t, sessions, step, nothing)
	two := instance(t, sessions, step, func(r *http.Request) {
		if r.Method == http.MethodGet {
			close(back)
		}
	})
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), []string{one, two}, &out))
	before, after, found := strings.Cut(out.String(), "the connection is lost")
	require.True(t, found, out.String())
	assert.NotContains(t, before, two)
	assert.NotContains(t, after, one)
	assert.Contains(t, after, "result: All 10 steps are done.")
	for n := range steps {
		text := "step " + string(rune('1'+n)) + " of"
		if n == 9 {
			text = "step 10 of"
		}
		assert.Equal(t, 1, strings.Count(out.String(), text), "each event comes once: %s", text)
	}
	assert.Equal(t, int32(steps), taken.Load(), "the tool ran once")
}

func TestACallIsCancelledThroughAnotherInstance(t *testing.T) {
	stopped := make(chan error, 1)
	step := func(ctx context.Context, n int) error {
		if n == enough {
			<-ctx.Done()
			stopped <- context.Cause(ctx)
			return context.Cause(ctx)
		}
		return nil
	}
	sessions := memory.New()
	one, two := instance(t, sessions, step, nothing), instance(t, sessions, step, nothing)
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), []string{"-cancel", one, two}, &out))
	assert.Error(t, <-stopped)
	assert.Contains(t, out.String(), "error: the request was cancelled")
	assert.NotContains(t, out.String(), "result:")
}

func TestWhatTheClientCannotDoIsAnError(t *testing.T) {
	assert.Error(t, run(t.Context(), []string{"http://one.example"}, &bytes.Buffer{}))
	assert.Error(t, run(t.Context(), []string{"http://127.0.0.1:1/mcp", "http://127.0.0.1:1/mcp"}, &bytes.Buffer{}))
	gone := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(gone.Close)
	assert.ErrorContains(t, run(t.Context(), []string{gone.URL, gone.URL}, &bytes.Buffer{}), "404")
}
