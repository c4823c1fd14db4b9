package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// A group is people who think for the same time, more or less.
type group struct {
	think   time.Duration
	people  int
	cancels bool // they do not answer then: they cancel the call
}

func (g group) String() string {
	if g.cancels {
		return fmt.Sprintf("cancels after %v", g.think)
	}
	return fmt.Sprintf("answers after %v", g.think)
}

// quantile is the one that is held against a goal: of answers the median, of cancellations nearly all.
func (g group) quantile() float64 {
	if g.cancels {
		return 0.95
	}
	return 0.5
}

// A sample is one question and its answer.
type sample struct {
	accepted, toTool, toClient time.Duration // after the answer was sent
	asked, answered            time.Time
	spent                      *tally // by the instance that waits
}

// A result is what a group has seen. What was not measured is less than nothing.
type result struct {
	samples                   []sample
	firstMinute, laterMinutes float64 // reads
	writes, told              float64 // a minute
}

// atOnce is how many of those who think for a short time do so at the same time: on a small machine more of them would
// measure each other.
const atOnce = 2

// warmUp is how many people are asked before anything is measured: the emulators' first calls take many times longer.
const warmUp = 20

// think asks everybody, each on an instance of its own, and takes the answers at one other instance.
func think(ctx context.Context, st shared, groups []group) ([]result, *machine, error) {
	other, stop, err := st()
	if err != nil {
		return nil, nil, err
	}
	defer stop()
	b, err := start(other)
	if err != nil {
		return nil, nil, err
	}
	defer b.stop()
	for range warmUp {
		if _, err := ask(ctx, st, b, 0, false); err != nil {
			return nil, nil, err
		}
	}
	m := &machine{}
	stopProbing, err := m.probe(ctx, st)
	if err != nil {
		return nil, nil, err
	}
	defer stopProbing()
	results := make([]result, len(groups))
	errs := make(chan error, len(groups))
	var wg sync.WaitGroup
	for i, g := range groups {
		wg.Go(func() {
			var err error
			results[i].samples, err = g.ask(ctx, st, b)
			if err != nil {
				errs <- fmt.Errorf("%v: %w", g, err)
			}
			results[i].count()
		})
	}
	wg.Wait()
	close(errs)
	return results, m, <-errs
}

func (g group) ask(ctx context.Context, st shared, b *instance) ([]sample, error) {
	var mu sync.Mutex
	var samples []sample
	var failed error
	turn := make(chan struct{}, g.people)
	if g.think < 10*time.Second {
		turn = make(chan struct{}, atOnce)
	}
	var wg sync.WaitGroup
	for range g.people {
		turn <- struct{}{}
		wg.Go(func() {
			defer func() { <-turn }()
			// Nobody answers in step with the looks into the store.
			think := g.think + time.Duration((rand.Float64()-0.5)*float64(min(g.think/5, 3*time.Second)))
			s, err := ask(ctx, st, b, think, g.cancels)
			mu.Lock()
			defer mu.Unlock()
			samples = append(samples, s)
			if err != nil {
				failed = err
			}
		})
	}
	wg.Wait()
	return samples, failed
}

// ask asks one person, who answers at b or cancels there.
func ask(ctx context.Context, st shared, b *instance, think time.Duration, cancels bool) (s sample, err error) {
	own, stop, err := st()
	if err != nil {
		return s, err
	}
	defer stop()
	s.spent = &tally{}
	a, err := start(counted(own, s.spent))
	if err != nil {
		return s, err
	}
	defer a.stop()
	c, err := connect(ctx, b)
	if err != nil {
		return s, err
	}
	defer c.close()
	res, err := c.post(ctx, a, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"ask"}}`)
	if err != nil {
		return s, err
	}
	defer res.Body.Close()
	stream := bufio.NewReader(res.Body)
	msg, err := next(stream)
	if err != nil {
		return s, fmt.Errorf("waiting for the question: %w", err)
	}
	s.asked = time.Now()
	var question struct{ ID json.RawMessage }
	if err := json.Unmarshal(msg, &question); err != nil {
		return s, err
	}
	select {
	case <-time.After(think):
	case <-ctx.Done():
		return s, ctx.Err()
	}
	s.answered = time.Now()
	said := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","content":{}}}`, question.ID)
	if cancels {
		said = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`
	}
	answer, err := c.post(ctx, b, said)
	if err != nil {
		return s, err
	}
	if err := discard(answer); err != nil {
		return s, err
	}
	s.accepted = time.Since(s.answered)
	if _, err := next(stream); err != nil {
		return s, fmt.Errorf("waiting for the response: %w", err)
	}
	s.toClient = time.Since(s.answered)
	s.toTool = (<-a.told).Sub(s.answered)
	return s, nil
}

// count averages what the waiting instances have spent.
func (r *result) count() {
	r.firstMinute, r.laterMinutes, r.writes, r.told = -1, -1, -1, -1
	if len(r.samples) == 0 {
		return
	}
	waited := time.Duration(0)
	var first, later, laterFor, writes, told float64
	for _, s := range r.samples {
		wait := s.answered.Sub(s.asked)
		waited += wait
		in := func(k kind, from, to time.Duration) float64 {
			n, _ := s.spent.between(k, s.asked.Add(from), s.asked.Add(to))
			return float64(n)
		}
		writes += in(write, 0, wait)
		told += in(wasTold, 0, wait)
		first += in(read, 0, min(wait, time.Minute))
		if missing := time.Minute - wait; missing > 0 && missing <= wait/2 {
			first += in(read, wait-missing, wait) // the end of the minute is like what was seen of it last
		}
		if wait > time.Minute {
			later += in(read, time.Minute, wait)
			laterFor += (wait - time.Minute).Minutes()
		}
	}
	n := float64(len(r.samples))
	if waited/time.Duration(len(r.samples)) < 30*time.Second {
		return // too short to say anything about a minute
	}
	r.firstMinute = first / n
	r.writes, r.told = writes/waited.Minutes(), told/waited.Minutes()
	if laterFor > 0 {
		r.laterMinutes = later / laterFor
	}
}

func (r *result) quantile(q float64, of func(sample) time.Duration) time.Duration {
	var all []time.Duration
	for _, s := range r.samples {
		all = append(all, of(s))
	}
	return middle(all, q)
}
