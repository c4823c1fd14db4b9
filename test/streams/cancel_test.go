package streams

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/hydrant-mcp/hydrant/internal/harness"
)

// What a client does with the stream of a call that it has cancelled: most come back for it once, because it ended without
// a response. None may come back for ever, nor open one stream of announcements after the other, each taking over from the one
// before.
func TestACancelledCallLeavesNothingBehind(t *testing.T) {
	const (
		stay      = 8 * time.Second
		comesBack = 2
		// One stream, and one more from clients that forget, after an error, which stream they came back for.
		listens = 2
	)
	cluster := harness.StartForTest(t, harness.Config{})
	t.Run("all", func(t *testing.T) {
		for _, c := range slices.Concat(goClients(), scriptClients()) {
			t.Run(c.name+" speaking "+c.protocol, func(t *testing.T) {
				t.Parallel()
				watched := startCutter(t, cluster.URL())
				got := c.play(t, place{
					URL: watched.url(), Think: int(stay.Milliseconds()), Key: c.name, Features: []feature{linger},
				})
				assert.Empty(t, got[linger])
				announcements, rest := watched.cameBack()
				t.Logf("in %v: %d GETs for announcements, %d for the rest of the call", stay, announcements, rest)
				assert.LessOrEqual(t, announcements, listens)
				assert.LessOrEqual(t, rest, comesBack)
			})
		}
	})
}
