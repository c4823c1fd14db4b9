package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hydrant-mcp/hydrant/store"
)

// A machine is how fast one operation of the store is here and now: what a latency is to be compared with.
type machine struct {
	mu                  sync.Mutex
	reads, writes, told []time.Duration
}

const probeEvery = 250 * time.Millisecond

// probe measures until stop is called. It has connections of its own, one to write and one to be told: on a connection that
// carries both, one waits for the other.
func (m *machine) probe(ctx context.Context, st shared) (stop func(), err error) {
	writer, closeWriter, err := st()
	if err != nil {
		return nil, err
	}
	reader, closeReader, err := st()
	if err != nil {
		closeWriter()
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := 0; wait(ctx, probeEvery) == nil; n++ {
			_ = m.once(ctx, writer, reader, fmt.Sprint("probe-", n)) // what fails was not measured
		}
	}()
	return func() {
		cancel()
		<-done
		closeWriter()
		closeReader()
	}, nil
}

func (m *machine) once(ctx context.Context, writer, reader store.Store, exchange string) error {
	began := time.Now()
	if _, err := reader.Answer(ctx, exchange, "q"); !errors.Is(err, store.ErrNotFound) {
		return err
	}
	m.note(&m.reads, time.Since(began))
	changed := make(chan struct{}, 1)
	w, watches := reader.(store.Watcher)
	if watches {
		watching, stop := context.WithCancel(ctx)
		defer stop()
		err := w.Watch(watching, store.Watched{Slots: []store.Slot{{Exchange: exchange, Question: "q"}}}, func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		})
		if err != nil {
			return err
		}
	}
	began = time.Now()
	if err := writer.PutAnswer(ctx, exchange, "q", []byte("{}"), time.Now().Add(time.Hour)); err != nil {
		return err
	}
	m.note(&m.writes, time.Since(began))
	if !watches {
		return nil
	}
	select {
	case <-changed:
		m.note(&m.told, time.Since(began))
	case <-ctx.Done():
	}
	return nil
}

func (m *machine) note(where *[]time.Duration, d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	*where = append(*where, d)
}

func (m *machine) String() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	text := fmt.Sprintf("one read took %s, one write %s", ms(middle(m.reads, 0.5)), ms(middle(m.writes, 0.5)))
	if len(m.told) > 0 {
		text += fmt.Sprintf(", and being told of it %s", ms(middle(m.told, 0.5)))
	}
	return text
}

// middle gives a quantile; zero of nothing.
func middle(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
