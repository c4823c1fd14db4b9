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
)

// mortal is an instance's store that is the end of the instance: after one write, counted over all instances, it dies.
type mortal struct {
	store.Store
	instance *instance
	writes   *atomic.Int64
	last     int64
}

func (m *mortal) wrote(err error) error {
	if err == nil && m.writes.Add(1) == m.last {
		m.instance.kill()
	}
	return err
}

func (m *mortal) CreateExchange(ctx context.Context, x *store.Exchange) error {
	return m.wrote(m.Store.CreateExchange(ctx, x))
}

func (m *mortal) UpdateExchange(ctx context.Context, x *store.Exchange) error {
	return m.wrote(m.Store.UpdateExchange(ctx, x))
}

func (m *mortal) AppendEvent(ctx context.Context, exchange string, e store.Event, expires time.Time) error {
	return m.wrote(m.Store.AppendEvent(ctx, exchange, e, expires))
}

func (m *mortal) PutAnswer(ctx context.Context, exchange, question string, answer []byte, expires time.Time) error {
	return m.wrote(m.Store.PutAnswer(ctx, exchange, question, answer, expires))
}

// A process dies after any one of a suspended call's writes: the client that holds an event id gets its answer, or is told
// within a lease that the call was interrupted. It never waits for a question that nobody has stored.
func TestASuspendedCallSurvivesADeathAfterAnyWrite(t *testing.T) {
	const enough = 25 // writes of a call of three rounds
	for last := range int64(enough) {
		t.Run(fmt.Sprintf("write %d", last+1), func(t *testing.T) {
			inWorld(t, setup{opts: handler.Options{Ask: handler.AskSuspend}}, func(w *world) {
				s := w.session(w.client, latest)
				var writes atomic.Int64
				for _, i := range w.instances {
					i.store.Store = &mortal{Store: i.store.Store, instance: i, writes: &writes, last: last + 1}
				}
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
