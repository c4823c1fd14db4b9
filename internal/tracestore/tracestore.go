// Package tracestore observes a store: a span of kind CLIENT and a measurement for each operation.
//
// A span is named hydrant.store.<operation>, and is a child of the message's: an operation outside of a recorded span has
// none, and is measured only. Neither spans nor metrics carry a key, a session or anything else of what is stored.
package tracestore

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/hydrant-mcp/hydrant/store"
)

const instrumentation = "github.com/hydrant-mcp/hydrant/store"

// durationBuckets are those of OpenTelemetry's conventions for databases (db.client.operation.duration), in seconds.
var durationBuckets = []float64{0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10}

const (
	attrOperation = attribute.Key("hydrant.store.operation")
	attrOutcome   = attribute.Key("hydrant.store.outcome")
	attrErrorType = attribute.Key("error.type")
)

// New wraps a store; nil providers are the global ones. What it gives is a [store.Watcher] if st is one.
func New(st store.Store, tp trace.TracerProvider, mp metric.MeterProvider) store.Store {
	if tp == nil {
		tp = otel.GetTracerProvider()
	}
	if mp == nil {
		mp = otel.GetMeterProvider()
	}
	duration, err := mp.Meter(instrumentation).Float64Histogram("hydrant.store.operation.duration",
		metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(durationBuckets...),
		metric.WithDescription("The time that an operation of the store takes."))
	if err != nil {
		otel.Handle(err)
	}
	traced := &tracedStore{Store: st, tracer: tp.Tracer(instrumentation), duration: duration}
	if w, ok := st.(store.Watcher); ok {
		return &watchedStore{tracedStore: traced, watcher: w}
	}
	return traced
}

// tracedStore observes each method. The embedded store is there for methods that are none of these: they pass through.
type tracedStore struct {
	store.Store
	tracer   trace.Tracer
	duration metric.Float64Histogram
}

// An operation is one of the store's methods.
type operation struct {
	name    string
	span    string
	options []trace.SpanStartOption
	// measured is what a measurement carries, by what has become of the operation: made once, because there are few.
	measured map[outcome]metric.MeasurementOption
}

// An outcome is what has become of an operation. What the contract of [store.Store] lets it answer is no failure.
type outcome struct {
	name   string
	failed bool
}

var outcomes = []struct {
	outcome
	err error
}{
	{outcome{"not_found", false}, store.ErrNotFound},
	{outcome{"exists", false}, store.ErrExists},
	{outcome{"conflict", false}, store.ErrConflict},
	{outcome{"cancelled", true}, context.Canceled},
	{outcome{"throttled", true}, store.ErrThrottled}, // before what it also is
	{outcome{"unavailable", true}, store.ErrUnavailable},
	{outcome{"corrupt", true}, store.ErrCorrupt},
	{outcome{"too_large", true}, store.ErrTooLarge},
}

var (
	ok    = outcome{name: "ok"}
	other = outcome{"_OTHER", true}
)

func outcomeOf(err error) outcome {
	if err == nil {
		return ok
	}
	for _, o := range outcomes {
		if errors.Is(err, o.err) {
			return o.outcome
		}
	}
	return other
}

func (o outcome) attributes() []attribute.KeyValue {
	if o.failed {
		return []attribute.KeyValue{attrErrorType.String(o.name)}
	}
	return []attribute.KeyValue{attrOutcome.String(o.name)}
}

func newOperation(name string) *operation {
	op := &operation{
		name: name,
		span: "hydrant.store." + name,
		options: []trace.SpanStartOption{
			trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attrOperation.String(name)),
		},
		measured: map[outcome]metric.MeasurementOption{},
	}
	all := []outcome{ok, other}
	for _, o := range outcomes {
		all = append(all, o.outcome)
	}
	for _, o := range all {
		op.measured[o] = metric.WithAttributeSet(attribute.NewSet(append(o.attributes(), attrOperation.String(name))...))
	}
	return op
}

var (
	createSession  = newOperation("create_session")
	readSession    = newOperation("session")
	updateSession  = newOperation("update_session")
	deleteSession  = newOperation("delete_session")
	createExchange = newOperation("create_exchange")
	readExchange   = newOperation("exchange")
	updateExchange = newOperation("update_exchange")
	appendEvent    = newOperation("append_event")
	readEvents     = newOperation("events")
	putAnswer      = newOperation("put_answer")
	readAnswer     = newOperation("answer")
	readWaited     = newOperation("look")
	raiseTopic     = newOperation("raise_topic")
	readTopics     = newOperation("topic_versions")
	beginWatch     = newOperation("watch")
)

// do observes an operation.
func (s *tracedStore) do(ctx context.Context, op *operation, call func(context.Context) error) error {
	measured, recorded := s.duration.Enabled(ctx), trace.SpanFromContext(ctx).IsRecording()
	if !measured && !recorded {
		return call(ctx)
	}
	var span trace.Span
	if recorded {
		ctx, span = s.tracer.Start(ctx, op.span, op.options...)
	}
	began := time.Now()
	err := call(ctx)
	o := outcomeOf(err)
	if measured {
		s.duration.Record(ctx, time.Since(began).Seconds(), op.measured[o])
	}
	if recorded {
		span.SetAttributes(o.attributes()...)
		if o.failed {
			span.SetStatus(codes.Error, "") // the error's text may name what is stored
		}
		span.End()
	}
	return err
}

// CreateSession implements [store.Store].
func (s *tracedStore) CreateSession(ctx context.Context, session *store.Session) error {
	return s.do(ctx, createSession, func(ctx context.Context) error { return s.Store.CreateSession(ctx, session) })
}

// Session implements [store.Store].
func (s *tracedStore) Session(ctx context.Context, key string) (session *store.Session, err error) {
	err = s.do(ctx, readSession, func(ctx context.Context) (err error) {
		session, err = s.Store.Session(ctx, key)
		return err
	})
	return session, err
}

// UpdateSession implements [store.Store].
func (s *tracedStore) UpdateSession(ctx context.Context, session *store.Session) error {
	return s.do(ctx, updateSession, func(ctx context.Context) error { return s.Store.UpdateSession(ctx, session) })
}

// DeleteSession implements [store.Store].
func (s *tracedStore) DeleteSession(ctx context.Context, key string) error {
	return s.do(ctx, deleteSession, func(ctx context.Context) error { return s.Store.DeleteSession(ctx, key) })
}

// CreateExchange implements [store.Store].
func (s *tracedStore) CreateExchange(ctx context.Context, x *store.Exchange) error {
	return s.do(ctx, createExchange, func(ctx context.Context) error { return s.Store.CreateExchange(ctx, x) })
}

// Exchange implements [store.Store].
func (s *tracedStore) Exchange(ctx context.Context, key string) (x *store.Exchange, err error) {
	err = s.do(ctx, readExchange, func(ctx context.Context) (err error) {
		x, err = s.Store.Exchange(ctx, key)
		return err
	})
	return x, err
}

// UpdateExchange implements [store.Store].
func (s *tracedStore) UpdateExchange(ctx context.Context, x *store.Exchange) error {
	return s.do(ctx, updateExchange, func(ctx context.Context) error { return s.Store.UpdateExchange(ctx, x) })
}

// AppendEvent implements [store.Store].
func (s *tracedStore) AppendEvent(ctx context.Context, exchange string, e store.Event, expires time.Time) error {
	return s.do(ctx, appendEvent, func(ctx context.Context) error {
		return s.Store.AppendEvent(ctx, exchange, e, expires)
	})
}

// Events implements [store.Store].
func (s *tracedStore) Events(ctx context.Context, exchange string, after int64, limit int) (es []store.Event, err error) {
	err = s.do(ctx, readEvents, func(ctx context.Context) (err error) {
		es, err = s.Store.Events(ctx, exchange, after, limit)
		return err
	})
	return es, err
}

// PutAnswer implements [store.Store].
func (s *tracedStore) PutAnswer(ctx context.Context, exchange, question string, answer []byte, expires time.Time) error {
	return s.do(ctx, putAnswer, func(ctx context.Context) error {
		return s.Store.PutAnswer(ctx, exchange, question, answer, expires)
	})
}

// Answer implements [store.Store].
func (s *tracedStore) Answer(ctx context.Context, exchange, question string) (answer []byte, err error) {
	err = s.do(ctx, readAnswer, func(ctx context.Context) (err error) {
		answer, err = s.Store.Answer(ctx, exchange, question)
		return err
	})
	return answer, err
}

// Look implements [store.Store].
func (s *tracedStore) Look(ctx context.Context, session string, slots []store.Slot) (
	found *store.Session, answers map[store.Slot][]byte, err error,
) {
	err = s.do(ctx, readWaited, func(ctx context.Context) (err error) {
		found, answers, err = s.Store.Look(ctx, session, slots)
		return err
	})
	return found, answers, err
}

// RaiseTopic implements [store.Store].
func (s *tracedStore) RaiseTopic(ctx context.Context, topic string) error {
	return s.do(ctx, raiseTopic, func(ctx context.Context) error { return s.Store.RaiseTopic(ctx, topic) })
}

// TopicVersions implements [store.Store].
func (s *tracedStore) TopicVersions(ctx context.Context, topics []string) (versions map[string]int64, err error) {
	err = s.do(ctx, readTopics, func(ctx context.Context) (err error) {
		versions, err = s.Store.TopicVersions(ctx, topics)
		return err
	})
	return versions, err
}

// watchedStore is a tracedStore of a store that tells what has changed.
type watchedStore struct {
	*tracedStore
	watcher store.Watcher
}

// Watch implements [store.Watcher]. Its span is the time until watching has begun.
func (s *watchedStore) Watch(ctx context.Context, w store.Watched, changed func()) error {
	return s.do(ctx, beginWatch, func(context.Context) error {
		// Not below the span, which ends long before the watch does.
		return s.watcher.Watch(ctx, w, changed)
	})
}
