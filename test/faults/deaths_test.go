package faults

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/hydrant-mcp/hydrant/handler"
	"github.com/hydrant-mcp/hydrant/internal/cmd/soak/client"
	"github.com/hydrant-mcp/hydrant/store"
	"github.com/hydrant-mcp/hydrant/store/faulty"
)

// A process dies after any one of a suspended call's writes: the client that holds an event id gets its answer, or is told
// within a lease that the call was interrupted. It never waits for a question that nobody has stored.
func TestASuspendedCallSurvivesADeathAfterAnyWrite(t *testing.T) {
	const enough = 25 // writes of a call of three rounds
	for last := int64(1); last <= enough; last++ {
		t.Run(fmt.Sprintf("write %d", last), func(t *testing.T) {
			var writes atomic.Int64 // of all instances, but for the one of the session
			// After the last one, whoever has made it dies.
			mortal := func(i *instance, st store.Store) store.Store {
				return faulty.Around(func(ctx context.Context, op faulty.Operation, call func(context.Context) error) error {
					err := call(ctx)
					if err == nil && op.Writes() && op != faulty.CreateSession && writes.Add(1) == last {
						i.kill()
					}
					return err
				}).Wrap(st)
			}
			inWorld(t, setup{opts: handler.Options{Ask: handler.AskSuspend}, wrap: mortal}, func(w *world) {
				writes.Store(0)
				s := w.session(w.client, latest)
				q := client.Tool("rounds", `{"key":"k"}`)
				q.Answer = echo
				o := s.Call(w.t.Context(), q)
				switch {
				case o.Fate == client.CutInline && !o.HeldID:
				case o.Interrupted():
				default:
					assert.Equal(w.t, "k.1;k.2;k.3;", o.Text(), "%s %s\n%s", o.Fate, o.Error, strings.Join(o.Trace, "\n"))
				}
				assert.Less(w.t, o.Ended.Sub(o.Began), time.Minute)
				assert.Empty(w.t, w.runs.twice())
			})
		})
	}
}
