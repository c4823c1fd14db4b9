package handler

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/codes"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/hydrant-mcp/hydrant/store"
)

// An observatory sees what a handler's telemetry makes.
type observatory struct {
	*telemetry
	t      testing.TB
	spans  *tracetest.SpanRecorder
	reader *sdkmetric.ManualReader
}

func newObservatory(t testing.TB) *observatory {
	spans, reader := tracetest.NewSpanRecorder(), sdkmetric.NewManualReader()
	return &observatory{
		telemetry: newTelemetry(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)),
			sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))),
		t:      t,
		spans:  spans,
		reader: reader,
	}
}

// span gives the only span that has ended.
func (o *observatory) span() sdktrace.ReadOnlySpan {
	o.t.Helper()
	require.Len(o.t, o.spans.Ended(), 1)
	return o.spans.Ended()[0]
}

func attributesOf(s sdktrace.ReadOnlySpan) map[attribute.Key]any {
	return attributeMap(s.Attributes())
}

func attributeMap(kvs []attribute.KeyValue) map[attribute.Key]any {
	m := map[attribute.Key]any{}
	for _, kv := range kvs {
		m[kv.Key] = kv.Value.AsInterface()
	}
	return m
}

// points gives the attributes of a metric's data points.
func (o *observatory) points(name string) (points []map[attribute.Key]any, m metricdata.Metrics) {
	o.t.Helper()
	var rm metricdata.ResourceMetrics
	require.NoError(o.t, o.reader.Collect(context.Background(), &rm))
	for _, scope := range rm.ScopeMetrics {
		assert.Equal(o.t, instrumentation, scope.Scope.Name)
		for _, m = range scope.Metrics {
			if m.Name != name {
				continue
			}
			switch data := m.Data.(type) {
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					points = append(points, attributeMap(p.Attributes.ToSlice()))
				}
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					points = append(points, attributeMap(p.Attributes.ToSlice()))
				}
			}
			return points, m
		}
	}
	return nil, m
}

func parsed(t testing.TB, body string) *message {
	m, err := readMessage(json.RawMessage(body), defaultMaxID)
	require.NoError(t, err)
	return &m
}

const telemetryCall = `{"jsonrpc":"2.0","id":"a1","method":"tools/call","params":{"name":"add_note","arguments":{},` +
	`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","traceparent":` +
	`"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01","tracestate":"rojo=1","baggage":"user=alice"}}}`

func TestASpanIsWhatTheConventionsSay(t *testing.T) {
	o := newObservatory(t)
	r := httptest.NewRequest(http.MethodPost, "/mcp", nil)
	r, op := o.begin(r, parsed(t, telemetryCall))
	op.running()
	op.responded(json.RawMessage(`{"content":[]}`))
	assert.Equal(t, "alice", baggage.FromContext(r.Context()).Member("user").Value(), "tools can read the baggage")
	op.end(nil)

	s := o.span()
	assert.Equal(t, "tools/call add_note", s.Name())
	assert.Equal(t, trace.SpanKindServer, s.SpanKind())
	assert.Equal(t, codes.Unset, s.Status().Code)
	assert.Equal(t, "4bf92f3577b34da6a3ce929d0e0e4736", s.SpanContext().TraceID().String())
	assert.Equal(t, "00f067aa0ba902b7", s.Parent().SpanID().String())
	assert.Equal(t, "rojo=1", s.Parent().TraceState().String())
	assert.True(t, s.Parent().IsRemote())
	assert.Equal(t, s.SpanContext(), trace.SpanContextFromContext(r.Context()), "what the call does is below it")
	assert.Equal(t, map[attribute.Key]any{
		"mcp.method.name": "tools/call", "mcp.protocol.version": "2026-07-28", "jsonrpc.request.id": "a1",
		"gen_ai.tool.name": "add_note", "gen_ai.operation.name": "execute_tool",
		"network.protocol.name": "http", "network.protocol.version": "1.1", "network.transport": "tcp",
	}, attributesOf(s))

	points, m := o.points("mcp.server.operation.duration")
	assert.Equal(t, []map[attribute.Key]any{{
		"mcp.method.name": "tools/call", "mcp.protocol.version": "2026-07-28", "gen_ai.tool.name": "add_note",
		"gen_ai.operation.name": "execute_tool", "network.protocol.name": "http", "network.transport": "tcp",
	}}, points)
	assert.Equal(t, "s", m.Unit)
	assert.Equal(t, []float64{0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300},
		m.Data.(metricdata.Histogram[float64]).DataPoints[0].Bounds)
	points, _ = o.points("hydrant.messages")
	assert.Equal(t, []map[attribute.Key]any{{
		"hydrant.message.kind": "request", "mcp.protocol.version": "2026-07-28",
	}}, points)
}

func TestASessionShowsAsItsHash(t *testing.T) {
	o := newObservatory(t)
	_, op := o.begin(httptest.NewRequest(http.MethodPost, "/", nil),
		parsed(t, `{"jsonrpc":"2.0","id":7,"method":"prompts/get","params":{"name":"greet"}}`))
	key := sessionKey("default", "THEIDITSELF")
	op.restored(&store.Session{Key: key, ProtocolVersion: "2025-11-25"})
	op.running()
	op.end(nil)
	attrs := attributesOf(o.span())
	assert.Equal(t, key[:12], attrs["mcp.session.id"])
	assert.Equal(t, "2025-11-25", attrs["mcp.protocol.version"])
	assert.Equal(t, "7", attrs["jsonrpc.request.id"])
	assert.Equal(t, "greet", attrs["gen_ai.prompt.name"])
	assert.NotContains(t, attrs, attribute.Key("gen_ai.operation.name"))
	assert.Equal(t, "prompts/get greet", o.span().Name())
}

func TestErrorsOfOperations(t *testing.T) {
	private := refuse(200, -32000, levelFault, "a secret of the tool's")
	private.private = true
	for _, c := range []struct {
		name   string
		do     func(*operation)
		kind   string
		code   any
		text   string
		status codes.Code
	}{
		{name: "none", do: func(o *operation) { o.end(nil) }, status: codes.Unset},
		{name: "a tool's", do: func(o *operation) { o.responded(json.RawMessage(`{"isError":true}`)); o.end(nil) },
			kind: "tool_error", status: codes.Error},
		{name: "no tool's", do: func(o *operation) { o.responded(json.RawMessage(`{"isError":false}`)); o.end(nil) },
			status: codes.Unset},
		{name: "ours", do: func(o *operation) { o.end(errSessionMissing()) },
			kind: "-32001", code: "-32001", text: errSessionMissing().message, status: codes.Error},
		{name: "on a stream", do: func(o *operation) { o.failed(errSessionMissing()); o.end(nil) },
			kind: "-32001", code: "-32001", text: errSessionMissing().message, status: codes.Error},
		{name: "private", do: func(o *operation) { o.end(private) }, kind: "-32000", code: "-32000", status: codes.Error},
		{name: "the client has gone", do: func(o *operation) { o.end(errGone(errClientGone)) },
			kind: "cancelled", status: codes.Error},
		{name: "the client has gone, says the store", do: func(o *operation) { o.end(errStore(context.Canceled)) },
			kind: "cancelled", status: codes.Error},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := newObservatory(t)
			_, op := o.begin(httptest.NewRequest(http.MethodPost, "/", nil), parsed(t, telemetryCall))
			op.running()
			c.do(op)
			s := o.span()
			assert.Equal(t, sdktrace.Status{Code: c.status, Description: c.text}, s.Status())
			points, _ := o.points("mcp.server.operation.duration")
			require.Len(t, points, 1)
			for _, attrs := range []map[attribute.Key]any{attributesOf(s), points[0]} {
				if c.kind == "" {
					assert.NotContains(t, attrs, attrErrorType)
				} else {
					assert.Equal(t, c.kind, attrs[attrErrorType])
				}
				assert.Equal(t, c.code, attrs[attrStatusCode])
				assert.Equal(t, "add_note", attrs[attrTool])
			}
		})
	}
}

// Clients can make up names without end. None of them becomes a time series or the name of a span.
func TestMadeUpNamesStayOutOfMetrics(t *testing.T) {
	long := strings.Repeat("x", maxMethod)
	for _, c := range []struct {
		name, body string
		ran        bool
		f          *failure
		span       string
		method     string
	}{
		{name: "an unknown tool", body: telemetryCall, ran: true, f: refuse(200, -32602, levelLimit, "unknown tool"),
			span: "tools/call", method: "tools/call"},
		{name: "a tool that was never asked", body: telemetryCall, f: errSessionMissing(), span: "tools/call",
			method: "tools/call"},
		{name: "an unknown method", body: `{"jsonrpc":"2.0","id":1,"method":"` + long + `"}`, ran: true,
			f: refuse(404, -32601, levelLimit, "no such method"), span: "_OTHER", method: "_OTHER"},
		{name: "an unknown notification", body: `{"jsonrpc":"2.0","method":"` + long + `"}`, ran: true, span: "_OTHER",
			method: "_OTHER"},
		{name: "a method of the server's own", body: `{"jsonrpc":"2.0","id":1,"method":"acme/do"}`, ran: true,
			span: "_OTHER", method: "acme/do"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := newObservatory(t)
			_, op := o.begin(httptest.NewRequest(http.MethodPost, "/", nil), parsed(t, c.body))
			if c.ran {
				op.running()
			}
			op.end(c.f)
			assert.Equal(t, c.span, o.span().Name())
			for _, v := range attributesOf(o.span()) {
				assert.LessOrEqual(t, len(v.(string)), maxTelemetryValue)
			}
			points, _ := o.points("mcp.server.operation.duration")
			require.Len(t, points, 1)
			assert.Equal(t, c.method, points[0][attrMethod])
			assert.NotContains(t, points[0], attrTool)
		})
	}
}

func TestResourceURIsWithoutSecrets(t *testing.T) {
	for uri, want := range map[string]any{
		"notes://alice/1":                                "notes://alice/1",
		"https://user:secret@h.example/a?key=s#x":        "https://h.example/a",
		"file:///home/x":                                 "file:///home/x",
		"https://h.example/" + strings.Repeat("a", 1000): ("https://h.example/" + strings.Repeat("a", 1000))[:maxTelemetryValue],
		"%zz": nil,
		"":    nil,
	} {
		o := newObservatory(t)
		params, err := json.Marshal(map[string]string{"uri": uri})
		require.NoError(t, err)
		_, op := o.begin(httptest.NewRequest(http.MethodPost, "/", nil),
			parsed(t, `{"jsonrpc":"2.0","id":1,"method":"resources/read","params":`+string(params)+`}`))
		op.end(nil)
		assert.Equal(t, want, attributesOf(o.span())[attrResource], uri)
		points, _ := o.points("mcp.server.operation.duration")
		assert.NotContains(t, points[0], attrResource)
	}
}

func TestWhereATraceComesFrom(t *testing.T) {
	const (
		fromMeta    = "4bf92f3577b34da6a3ce929d0e0e4736" // in telemetryCall
		fromHeader  = "0af7651916cd43dd8448eb211c80319c"
		plain       = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
		baggageOnly = `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{"baggage":"user=bob"}}}`
		broken      = `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{"traceparent":7,"baggage":[1]}}}`
	)
	fromServer := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled,
	})
	for _, c := range []struct {
		name, body string
		header     bool
		middleware bool
		trace      string // "": a new one
		linked     string
		user       string
	}{
		{name: "nowhere", body: plain},
		{name: "the headers", body: plain, header: true, trace: fromHeader, user: "header"},
		{name: "_meta", body: telemetryCall, trace: fromMeta, user: "alice"},
		{name: "_meta before the headers", body: telemetryCall, header: true, trace: fromMeta, linked: fromHeader,
			user: "alice"},
		{name: "middleware before the headers", body: plain, header: true, middleware: true,
			trace: fromServer.TraceID().String()},
		{name: "_meta before middleware", body: telemetryCall, middleware: true, trace: fromMeta,
			linked: fromServer.TraceID().String(), user: "alice"},
		{name: "baggage of _meta, trace of the headers", body: baggageOnly, header: true, trace: fromHeader, user: "bob"},
		{name: "a broken _meta", body: broken, header: true, trace: fromHeader, user: "header"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := newObservatory(t)
			r := httptest.NewRequest(http.MethodPost, "/", nil)
			if c.header {
				r.Header.Set("Traceparent", "00-"+fromHeader+"-b7ad6b7169203331-01")
				r.Header.Set("Baggage", "user=header")
			}
			if c.middleware {
				r = r.WithContext(trace.ContextWithSpanContext(r.Context(), fromServer))
			}
			r, op := o.begin(r, parsed(t, c.body))
			op.end(nil)
			s := o.span()
			if c.trace == "" {
				assert.False(t, s.Parent().IsValid())
			} else {
				assert.Equal(t, c.trace, s.SpanContext().TraceID().String())
			}
			if c.linked == "" {
				assert.Empty(t, s.Links())
			} else {
				require.Len(t, s.Links(), 1)
				assert.Equal(t, c.linked, s.Links()[0].SpanContext.TraceID().String())
			}
			assert.Equal(t, c.user, baggage.FromContext(r.Context()).Member("user").Value())
		})
	}
}

func TestAResponseIsCountedAndHasNoSpan(t *testing.T) {
	o := newObservatory(t)
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	same, op := o.begin(r, parsed(t, `{"jsonrpc":"2.0","id":1,"result":{}}`))
	assert.Same(t, r, same)
	op.running()
	op.end(nil)
	assert.Empty(t, o.spans.Ended())
	points, _ := o.points("mcp.server.operation.duration")
	assert.Empty(t, points)
	points, _ = o.points("hydrant.messages")
	assert.Equal(t, []map[attribute.Key]any{{"hydrant.message.kind": "response"}}, points)
}

func TestSessionsAndResumesAreCounted(t *testing.T) {
	o := newObservatory(t)
	_, op := o.begin(httptest.NewRequest(http.MethodPost, "/", nil), parsed(t, `{"jsonrpc":"2.0","id":1,"method":"ping"}`))
	op.created(&store.Session{})
	op.restored(&store.Session{})
	op.restored(&store.Session{})
	op.restored(nil)
	o.session(t.Context(), sessionMissing)
	o.resumed(t.Context())
	_, m := o.points("hydrant.sessions")
	counts := map[string]int64{}
	for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
		v, _ := p.Attributes.Value(attrSessionEvent)
		counts[v.AsString()] = p.Value
	}
	assert.Equal(t, map[string]int64{"created": 1, "restored": 2, "missing": 1}, counts)
	_, m = o.points("hydrant.exchanges.resumed")
	assert.EqualValues(t, 1, m.Data.(metricdata.Sum[int64]).DataPoints[0].Value)
}

// Without an SDK a trace context passes through all the same: what a tool calls belongs to the client's trace.
func TestWithoutAnSDKATracePassesThrough(t *testing.T) {
	for name, tel := range map[string]*telemetry{
		"the global providers": newTelemetry(nil, nil),
		"no-op providers":      newTelemetry(tracenoop.NewTracerProvider(), metricnoop.NewMeterProvider()),
	} {
		t.Run(name, func(t *testing.T) {
			r, op := tel.begin(httptest.NewRequest(http.MethodPost, "/", nil), parsed(t, telemetryCall))
			assert.Nil(t, op)
			sc := trace.SpanContextFromContext(r.Context())
			assert.Equal(t, "4bf92f3577b34da6a3ce929d0e0e4736", sc.TraceID().String())
			op.restored(nil)
			op.running()
			op.responded(nil)
			op.failed(errGone(errors.New("x")))
			op.end(nil)

			plain := httptest.NewRequest(http.MethodPost, "/", nil)
			same, op := tel.begin(plain, parsed(t, `{"jsonrpc":"2.0","id":1,"method":"ping"}`))
			assert.Same(t, plain, same)
			assert.Nil(t, op)
		})
	}
}

func BenchmarkTelemetry(b *testing.B) {
	modern := strings.Replace(telemetryCall,
		`,"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01","tracestate":"rojo=1","baggage":"user=alice"`,
		"", 1)
	require.NotContains(b, modern, "rojo")
	for _, bench := range []struct {
		name string
		tel  *telemetry
		body string
	}{
		{"no SDK", newTelemetry(nil, nil), modern},
		{"no SDK, with a trace context", newTelemetry(nil, nil), telemetryCall},
		{"metrics only", newTelemetry(tracenoop.NewTracerProvider(),
			sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))), modern},
		{"SDK", newTelemetry(sdktrace.NewTracerProvider(), sdkmetric.NewMeterProvider(
			sdkmetric.WithReader(sdkmetric.NewManualReader()))), modern},
	} {
		b.Run(bench.name, func(b *testing.B) {
			m := parsed(b, bench.body)
			r := httptest.NewRequest(http.MethodPost, "/", nil)
			result := json.RawMessage(`{"content":[{"type":"text","text":"hello"}]}`)
			b.ReportAllocs()
			for b.Loop() {
				_, op := bench.tel.begin(r, m)
				op.restored(nil)
				op.running()
				op.responded(result)
				op.end(nil)
			}
		})
	}
}

// The whole pipeline: every message has its span, and what it costs in the store below it.
func TestEveryMessageIsObserved(t *testing.T) {
	spans, reader := tracetest.NewSpanRecorder(), sdkmetric.NewManualReader()
	s := setup{opts: Options{
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)),
		MeterProvider:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)),
	}}
	e := open(t, s, true)
	legacy := e.session(version20251125)
	require.Equal(t, 200, legacy.call("echo", `{}`).status)
	require.Equal(t, 200, legacy.call("progress", `{}`).status, "a stream that can be resumed")
	require.Equal(t, 202, legacy.post(`{"jsonrpc":"2.0","id":"none","result":{}}`).status)
	require.Equal(t, 204, legacy.send("DELETE", "").status)
	require.Equal(t, 404, legacy.call("made_up", `{}`).status)
	require.Equal(t, 200, e.modernCall("echo", `{}`).status)
	require.True(t, e.modernCall("panic", `{}`).isError())
	require.Equal(t, 400, e.modernCall("made_up", `{}`).status)
	require.Equal(t, 404, e.modern("acme/none", ``, `{}`).status)

	// A response is written a moment before its span ends.
	require.Eventually(t, func() bool { return len(spans.Started()) == len(spans.Ended()) }, 5*time.Second, time.Millisecond)
	var messages []string
	below := map[string][]string{}
	name := map[trace.SpanID]string{}
	for _, s := range spans.Started() {
		name[s.SpanContext().SpanID()] = s.Name()
	}
	for _, s := range spans.Started() {
		for _, kv := range s.Attributes() {
			assert.NotContains(t, kv.Value.String(), legacy.id)
		}
		if s.SpanKind() == trace.SpanKindServer {
			line := s.Name()
			if v, ok := attributesOf(s)[attrErrorType]; ok {
				line += " " + v.(string)
			}
			messages = append(messages, line)
			continue
		}
		parent := name[s.Parent().SpanID()]
		below[parent] = append(below[parent], strings.TrimPrefix(s.Name(), "hydrant.store."))
	}
	assert.Equal(t, []string{
		"initialize", "notifications/initialized", "tools/call echo", "tools/call progress",
		"tools/call -32001", "tools/call echo", "tools/call panic tool_error", "tools/call -32602", "_OTHER -32601",
	}, messages)
	assert.Equal(t, []string{"create_session"}, below["initialize"])
	assert.Equal(t, []string{"session", "update_session"}, below["notifications/initialized"])
	assert.Equal(t, []string{"session"}, below["tools/call echo"], "the modern one needs no store")
	assert.Contains(t, below["tools/call progress"], "append_event")

	var rm metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &rm))
	events := map[string]int64{}
	tools := map[string]bool{}
	for _, scope := range rm.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					if v, ok := p.Attributes.Value(attrSessionEvent); ok {
						events[v.AsString()] += p.Value
					}
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					if v, ok := p.Attributes.Value(attrTool); ok {
						tools[v.AsString()] = true
					}
				}
			}
		}
	}
	assert.Equal(t, map[string]int64{"created": 1, "restored": 4, "missing": 1, "deleted": 1}, events)
	assert.Equal(t, map[string]bool{"echo": true, "progress": true, "panic": true}, tools)
}
