package streams

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/internal/harness"

	raw "github.com/hydrant-mcp/hydrant/internal/cmd/soak/client"
)

const watched = "test://watched-resource"

// Streams of announcements end every now and then: a deadline, a deploy, a network. What is announced until the client has
// come back, a second later, is announced then.
func TestAnUpdateBetweenTwoStreamsIsNotLost(t *testing.T) {
	cluster := harness.StartForTest(t, harness.Config{})
	c := rawClient(t, cluster.URL())
	s := subscribed(t, c)
	heard := make(chan string, 16)
	first, end := context.WithCancel(t.Context())
	listen(first, t, s, heard)
	touch(t, c)
	awaitUpdate(t, heard)
	end()
	touch(t, c)
	second, stop := context.WithCancel(t.Context())
	defer stop()
	listen(second, t, s, heard)
	awaitUpdate(t, heard)
}

// A subscription holds from the moment at which it is acknowledged, for a stream that is open already too.
func TestASubscriptionReachesAnOpenStreamSoon(t *testing.T) {
	const soon = 2 * time.Second
	cluster := harness.StartForTest(t, harness.Config{})
	c := rawClient(t, cluster.URL())
	s, o := c.Initialize(t.Context(), legacy)
	require.NotNil(t, s, "%v", o.Trace)
	heard := make(chan string, 16)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	listen(ctx, t, s, heard)
	subscribeRaw(t, s)
	began := time.Now()
	touch(t, c)
	awaitUpdate(t, heard)
	t.Logf("heard of the update after %v", time.Since(began).Round(10*time.Millisecond))
	assert.Less(t, time.Since(began), soon)
}

func subscribed(t *testing.T, c *raw.Client) *raw.Session {
	t.Helper()
	s, o := c.Initialize(t.Context(), legacy)
	require.NotNil(t, s, "%v", o.Trace)
	subscribeRaw(t, s)
	return s
}

func subscribeRaw(t *testing.T, s *raw.Session) {
	t.Helper()
	o := s.Call(t.Context(), raw.Request{Method: "resources/subscribe", Params: fmt.Sprintf(`{"uri":%q}`, watched)})
	require.Equal(t, raw.Answered, o.Fate, "%v", o.Trace)
	require.NotEmpty(t, o.Result)
}

// touch announces an update, from another era.
func touch(t *testing.T, c *raw.Client) {
	t.Helper()
	o := c.Modern(t.Context(), raw.Tool("touch", fmt.Sprintf(`{"uri":%q}`, watched)))
	require.Equal(t, raw.Answered, o.Fate, "%v", o.Trace)
}

// listen opens the session's stream of announcements, and returns when it is open.
func listen(ctx context.Context, t *testing.T, s *raw.Session, heard chan<- string) {
	t.Helper()
	opened := make(chan struct{})
	go func() {
		_, _ = s.Listen(ctx, func() { close(opened) }, func(method string, params json.RawMessage) {
			if method == "notifications/resources/updated" {
				heard <- string(params)
			}
		})
	}()
	select {
	case <-opened:
	case <-time.After(clientLimit):
		require.Fail(t, "the stream did not open")
	}
}

func awaitUpdate(t *testing.T, heard <-chan string) {
	t.Helper()
	const limit = 12 * time.Second
	select {
	case params := <-heard:
		assert.Contains(t, params, watched)
	case <-time.After(limit):
		require.Fail(t, "the update was not announced", "within %v", limit)
	}
}
