package streams

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/hydrant-mcp/hydrant/internal/harness"
)

// What a client does with the stream of a call that it has cancelled: most come back for it once, because it ended without
// a response. None may come back for ever, and none may open a second stream of announcements, which would take over from
// the first, whose client would come back and take over in its turn, and so on.
func TestACancelledCallLeavesNothingBehind(t *testing.T) {
	pending(t, "the stream of a cancelled call ends in a way that tells every client that it is over")
	const (
		stay      = 8 * time.Second
		comesBack = 2
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
				assert.LessOrEqual(t, announcements, 1)
				assert.LessOrEqual(t, rest, comesBack)
			})
		}
	})
}

// pending skips a test of what the handler cannot do yet; PENDING=run runs it.
func pending(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("PENDING") != "run" {
		t.Skip("not yet: " + what)
	}
}
