package faulty

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// An Operation is a method of [store.Store] or [store.Watcher].
type Operation string

// The operations.
const (
	CreateSession  Operation = "create_session"
	Session        Operation = "session"
	UpdateSession  Operation = "update_session"
	DeleteSession  Operation = "delete_session"
	CreateExchange Operation = "create_exchange"
	Exchange       Operation = "exchange"
	UpdateExchange Operation = "update_exchange"
	AppendEvent    Operation = "append_event"
	Events         Operation = "events"
	PutAnswer      Operation = "put_answer"
	Answer         Operation = "answer"
	Look           Operation = "look"
	RaiseTopic     Operation = "raise_topic"
	TopicVersions  Operation = "topic_versions"
	Watch          Operation = "watch"
)

var operations = []Operation{
	CreateSession, Session, UpdateSession, DeleteSession, CreateExchange, Exchange, UpdateExchange, AppendEvent, Events,
	PutAnswer, Answer, Look, RaiseTopic, TopicVersions, Watch,
}

// Writes says whether the operation changes what is stored.
func (op Operation) Writes() bool {
	switch op {
	case CreateSession, UpdateSession, DeleteSession, CreateExchange, UpdateExchange, AppendEvent, PutAnswer, RaiseTopic:
		return true
	}
	return false
}

// A Kind is a way to fail.
type Kind string

// The kinds.
const (
	None Kind = ""
	// Error is store.ErrUnavailable at once; nothing happens.
	Error Kind = "error"
	// Throttle is store.ErrThrottled at once; nothing happens.
	Throttle Kind = "throttle"
	// Timeout is store.ErrUnavailable when the context ends, or after Plan.Patience; nothing happens.
	Timeout Kind = "timeout"
	// Lost is store.ErrUnavailable for a write that happens all the same, as when its response is lost. A read is an Error.
	Lost Kind = "lost"
	// Conflict is store.ErrConflict for a compare-and-swap, as when somebody else was faster; other operations succeed.
	Conflict Kind = "conflict"
)

// Rates say how often an operation fails in which way: from 0 to 1, and together at most 1.
type Rates struct {
	Error, Throttle, Timeout, Lost, Conflict float64
}

func (r Rates) kinds() []struct {
	kind Kind
	rate float64
} {
	return []struct {
		kind Kind
		rate float64
	}{{Error, r.Error}, {Throttle, r.Throttle}, {Timeout, r.Timeout}, {Lost, r.Lost}, {Conflict, r.Conflict}}
}

// A Plan says what goes wrong, and how often. The zero Plan is a store that works.
type Plan struct {
	// Seed decides everything: the n-th call of an operation has the same fate in every run, whatever the calls of other
	// operations are doing meanwhile.
	Seed uint64
	// Rates are those of every operation that Only does not name.
	Rates
	// Only has the rates of single operations.
	Only map[Operation]Rates
	// Latency is the most that an operation waits before it begins; how much is random.
	Latency time.Duration
	// Patience is how long a Timeout takes at most. Default: 5 seconds.
	Patience time.Duration
}

const defaultPatience = 5 * time.Second

// Parse reads a plan from a comma-separated list: seed=1, rates such as error=0.03 and append_event.lost=0.1, latency=20ms
// and patience=1s. Without a seed it is random.
func Parse(text string) (Plan, error) {
	p := Plan{Seed: rand.Uint64()}
	for entry := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(entry), "=")
		if !ok {
			return p, fmt.Errorf("%q is not of the form name=value", entry)
		}
		if err := p.set(name, value); err != nil {
			return p, fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := p.check(); err != nil {
		return p, err
	}
	return p, nil
}

func (p *Plan) set(name, value string) (err error) {
	switch name {
	case "seed":
		p.Seed, err = strconv.ParseUint(value, 10, 64)
	case "latency":
		p.Latency, err = time.ParseDuration(value)
	case "patience":
		p.Patience, err = time.ParseDuration(value)
	default:
		op, kind, single := strings.Cut(name, ".")
		if !single {
			return p.Rates.set(Kind(name), value)
		}
		rates := p.Only[Operation(op)]
		if err := rates.set(Kind(kind), value); err != nil {
			return err
		}
		if p.Only == nil {
			p.Only = map[Operation]Rates{}
		}
		p.Only[Operation(op)] = rates
	}
	return err
}

func (r *Rates) set(kind Kind, value string) error {
	rate, err := strconv.ParseFloat(value, 64)
	if err != nil {
		return err
	}
	switch kind {
	case Error:
		r.Error = rate
	case Throttle:
		r.Throttle = rate
	case Timeout:
		r.Timeout = rate
	case Lost:
		r.Lost = rate
	case Conflict:
		r.Conflict = rate
	default:
		return fmt.Errorf("there is no such kind of fault")
	}
	return nil
}

func (p *Plan) check() error {
	if err := p.Rates.check(); err != nil {
		return err
	}
	for op, rates := range p.Only {
		if !known(op) {
			return fmt.Errorf("there is no operation %q", op)
		}
		if err := rates.check(); err != nil {
			return fmt.Errorf("%s: %w", op, err)
		}
	}
	if p.Latency < 0 || p.Patience < 0 {
		return fmt.Errorf("a duration is negative")
	}
	return nil
}

func known(op Operation) bool {
	for _, o := range operations {
		if o == op {
			return true
		}
	}
	return false
}

func (r Rates) check() error {
	sum := 0.0
	for _, k := range r.kinds() {
		if !(k.rate >= 0 && k.rate <= 1) { // not a number is neither
			return fmt.Errorf("the rate of %s is not between 0 and 1", k.kind)
		}
		sum += k.rate
	}
	if sum > 1 {
		return fmt.Errorf("the rates add up to more than 1")
	}
	return nil
}

// A fate is what becomes of one call.
type fate struct {
	kind    Kind
	latency time.Duration
}

// fate decides about the n-th call of an operation.
func (p *Plan) fate(op Operation, n uint64) fate {
	r := rand.New(rand.NewPCG(p.Seed^n*0x9e3779b97f4a7c15, hash(op)))
	var f fate
	if p.Latency > 0 {
		f.latency = time.Duration(r.Int64N(int64(p.Latency)))
	}
	rates, single := p.Only[op]
	if !single {
		rates = p.Rates
	}
	at := r.Float64()
	for _, k := range rates.kinds() {
		if at -= k.rate; at < 0 {
			f.kind = k.kind
			break
		}
	}
	return f
}

// hash is FNV-1a.
func hash(op Operation) uint64 {
	h := uint64(14695981039346656037)
	for _, c := range []byte(op) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return h
}
