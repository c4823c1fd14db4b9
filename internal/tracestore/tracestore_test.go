package tracestore

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/hydrant-mcp/hydrant/store"
	"github.com/hydrant-mcp/hydrant/store/memory"
	"github.com/hydrant-mcp/hydrant/store/storetest"
)

// The wrapped store keeps the contract, observed and not.
func TestContract(t *testing.T) {
	t.Run("observed", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) store.Store { return observe(t, memory.New()).Store })
	})
	t.Run("not observed", func(t *testing.T) {
		storetest.Run(t, func(*testing.T) store.Store { return New(memory.New(), nil, nil) })
	})
}

// An observed store has a message's span in the context ctx.
type observed struct {
	store.Store
	ctx    context.Context
	parent trace.Span
	spans  *tracetest.SpanRecorder
	reader *sdkmetric.ManualReader
}

func observe(t *testing.T, st store.Store) *observed {
	o := &observed{spans: tracetest.NewSpanRecorder(), reader: sdkmetric.NewManualReader()}
	tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(o.spans))
	o.Store = New(st, tp, sdkmetric.NewMeterProvider(sdkmetric.WithReader(o.reader)))
	o.ctx, o.parent = tp.Tracer("test").Start(t.Context(), "message")
	return o
}

// plain hides what a store is beside a Store.
type plain struct{ store.Store }

// watchable is a store that can be watched.
type watchable struct {
	store.Store
	ctx context.Context
}

func (w *watchable) Watch(ctx context.Context, _ store.Watched, changed func()) error {
	w.ctx = ctx
	changed()
	return nil
}

// Every operation of a store has a span, also one that is added to the interface later.
func TestEveryOperationHasASpan(t *testing.T) {
	o := observe(t, &watchable{Store: memory.New()})
	v := reflect.ValueOf(o.Store)
	methods := 0
	for _, iface := range []reflect.Type{reflect.TypeFor[store.Store](), reflect.TypeFor[store.Watcher]()} {
		for i := range iface.NumMethod() {
			m := v.MethodByName(iface.Method(i).Name)
			args := make([]reflect.Value, m.Type().NumIn())
			for j := range args {
				switch in := m.Type().In(j); in {
				case reflect.TypeFor[context.Context]():
					args[j] = reflect.ValueOf(o.ctx)
				case reflect.TypeFor[*store.Session]():
					args[j] = reflect.ValueOf(&store.Session{Key: "k"})
				case reflect.TypeFor[*store.Exchange]():
					args[j] = reflect.ValueOf(&store.Exchange{Key: "k"})
				case reflect.TypeFor[func()]():
					args[j] = reflect.ValueOf(func() {})
				default:
					args[j] = reflect.Zero(in)
				}
			}
			m.Call(args)
			methods++
			require.Len(t, o.spans.Ended(), methods, "%s has a span", iface.Method(i).Name)
		}
	}
	names := map[string]bool{}
	for _, s := range o.spans.Ended() {
		assert.Equal(t, trace.SpanKindClient, s.SpanKind())
		assert.Equal(t, o.parent.SpanContext().SpanID(), s.Parent().SpanID())
		names[s.Name()] = true
		for _, kv := range s.Attributes() {
			assert.Contains(t, []attribute.Key{attrOperation, attrOutcome, attrErrorType}, kv.Key)
		}
	}
	assert.Len(t, names, methods, "each its own")
	assert.Len(t, points(t, o.reader), methods)
}

func points(t *testing.T, reader *sdkmetric.ManualReader) []metricdata.HistogramDataPoint[float64] {
	t.Helper()
	var rm metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &rm))
	require.Len(t, rm.ScopeMetrics, 1)
	require.Len(t, rm.ScopeMetrics[0].Metrics, 1)
	m := rm.ScopeMetrics[0].Metrics[0]
	assert.Equal(t, "hydrant.store.operation.duration", m.Name)
	assert.Equal(t, "s", m.Unit)
	return m.Data.(metricdata.Histogram[float64]).DataPoints
}

type failing struct {
	store.Store
	err error
}

func (f failing) Session(context.Context, string) (*store.Session, error) { return nil, f.err }

func TestOutcomes(t *testing.T) {
	for _, c := range []struct {
		err     error
		outcome string
		problem string
	}{
		{nil, "ok", ""},
		{store.Wrap("op", store.ErrNotFound, nil), "not_found", ""},
		{store.Wrap("op", store.ErrExists, nil), "exists", ""},
		{store.Wrap("op", store.ErrConflict, nil), "conflict", ""},
		{store.Wrap("op", store.ErrThrottled, nil), "", "throttled"},
		{store.Wrap("op", store.ErrUnavailable, errors.New("key k1")), "", "unavailable"},
		{store.Wrap("op", store.ErrCorrupt, nil), "", "corrupt"},
		{store.Wrap("op", store.ErrTooLarge, nil), "", "too_large"},
		{context.Canceled, "", "cancelled"},
		{errors.New("something"), "", "_OTHER"},
	} {
		o := observe(t, failing{err: c.err})
		_, err := o.Session(o.ctx, "k1")
		assert.Equal(t, c.err, err)
		require.Len(t, o.spans.Ended(), 1)
		s := o.spans.Ended()[0]
		assert.Equal(t, "hydrant.store.session", s.Name())
		want := []attribute.KeyValue{attrOperation.String("session"), attrOutcome.String(c.outcome)}
		status := codes.Unset
		if c.problem != "" {
			want[1] = attrErrorType.String(c.problem)
			status = codes.Error
		}
		assert.ElementsMatch(t, want, s.Attributes())
		assert.Equal(t, sdktrace.Status{Code: status}, s.Status())
		measured := points(t, o.reader)
		require.Len(t, measured, 1)
		assert.ElementsMatch(t, want, measured[0].Attributes.ToSlice())
	}
}

func TestWithoutAMessageThereIsNoSpan(t *testing.T) {
	o := observe(t, memory.New())
	_, err := o.Session(t.Context(), "k")
	assert.ErrorIs(t, err, store.ErrNotFound)
	assert.Empty(t, o.spans.Ended())
	assert.Len(t, points(t, o.reader), 1, "but it is measured")
}

func TestAWatcherStaysOneAndNothingElseBecomesOne(t *testing.T) {
	_, ok := observe(t, plain{memory.New()}).Store.(store.Watcher)
	assert.False(t, ok)

	inner := &watchable{Store: memory.New()}
	o := observe(t, inner)
	changed := 0
	require.NoError(t, o.Store.(store.Watcher).Watch(o.ctx, store.Watched{}, func() { changed++ }))
	assert.Equal(t, 1, changed)
	require.Len(t, o.spans.Ended(), 1)
	assert.Equal(t, "hydrant.store.watch", o.spans.Ended()[0].Name())
	assert.Equal(t, o.parent, trace.SpanFromContext(inner.ctx), "the watch outlives its span")
}

// still answers at once, and so shows what observing it costs.
type still struct{ store.Store }

func (still) Session(context.Context, string) (*store.Session, error) { return nil, nil }

func BenchmarkStore(b *testing.B) {
	sdk := New(still{}, sdktrace.NewTracerProvider(),
		sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())))
	for _, bench := range []struct {
		name string
		st   store.Store
	}{
		{"bare", still{}},
		{"no SDK", New(still{}, nil, nil)},
		{"SDK", sdk},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = bench.st.Session(b.Context(), "k")
			}
		})
	}
}
