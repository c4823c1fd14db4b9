package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/store"
)

var topicTests = []test{
	{"IsZeroUntilRaised", testTopicZero},
	{"RisesWithEveryRaise", testTopicRises},
	{"BeginsAtTheTime", testTopicBegins},
	{"ManyAreReadInOneCall", testTopicMany},
	{"NeverGoesBackUnderRacingWriters", testTopicRacing},
}

func version(ctx context.Context, st store.Store, topic string) (int64, error) {
	versions, err := st.TopicVersions(ctx, []string{topic})
	return versions[topic], err
}

func testTopicZero(ctx context.Context, t *testing.T, st store.Store) {
	a, b := unused(), unused()
	got, err := st.TopicVersions(ctx, []string{a, b})
	require.NoError(t, err)
	assert.Equal(t, map[string]int64{a: 0, b: 0}, got)
	got, err = st.TopicVersions(ctx, nil)
	require.NoError(t, err)
	assert.Empty(t, got)
}

func testTopicRises(ctx context.Context, t *testing.T, st store.Store) {
	base := unused()
	for _, topic := range []string{base, base + "/", base + "/../ü?#", base + strings.Repeat("/long", 1000)} {
		var before int64
		for range 3 {
			require.NoError(t, st.RaiseTopic(ctx, topic))
			after, err := version(ctx, st, topic)
			require.NoError(t, err)
			assert.Greater(t, after, before)
			before = after
		}
	}
}

// A store forgets topics, and a reader may still compare with what one was.
func testTopicBegins(ctx context.Context, t *testing.T, st store.Store) {
	topic, before := unused(), time.Now()
	require.NoError(t, st.RaiseTopic(ctx, topic))
	got, err := version(ctx, st, topic)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, got, before.UnixMilli())
	assert.LessOrEqual(t, got, time.Now().UnixMilli()+1)
}

func testTopicMany(ctx context.Context, t *testing.T, st store.Store) {
	base := unused()
	var topics []string
	for i := range 250 {
		topics = append(topics, fmt.Sprintf("%s/%d", base, i))
	}
	raised := map[string]bool{topics[0]: true, topics[99]: true, topics[100]: true, topics[249]: true}
	for topic := range raised {
		require.NoError(t, st.RaiseTopic(ctx, topic))
	}
	got, err := st.TopicVersions(ctx, append(topics, topics[:50]...))
	require.NoError(t, err)
	require.Len(t, got, len(topics))
	for _, topic := range topics {
		v, ok := got[topic]
		assert.True(t, ok, "an entry for each")
		assert.Equal(t, raised[topic], v > 0)
	}
}

func testTopicRacing(ctx context.Context, t *testing.T, st store.Store) {
	topic := unused()
	errs := race(func(int) error {
		var last int64
		for range 5 {
			if err := st.RaiseTopic(ctx, topic); err != nil {
				return err
			}
			v, err := version(ctx, st, topic)
			if err != nil {
				return err
			}
			if v <= last {
				return errors.New("a raise was not seen by the read after it")
			}
			last = v
		}
		return nil
	})
	for _, err := range errs {
		require.NoError(t, err)
	}
}
