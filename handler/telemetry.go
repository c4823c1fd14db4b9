package handler

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/hydrant-mcp/hydrant/internal/rawjson"
	"github.com/hydrant-mcp/hydrant/store"
)

// instrumentation is the name under which spans and metrics are made.
const instrumentation = "github.com/hydrant-mcp/hydrant/handler"

// The attributes of OpenTelemetry's semantic conventions for MCP (semantic-conventions-genai, docs/gen-ai/mcp.md, in
// development), and our own.
const (
	attrMethod       = attribute.Key("mcp.method.name")
	attrVersion      = attribute.Key("mcp.protocol.version")
	attrSession      = attribute.Key("mcp.session.id") // our hash of it: the id itself would open the session
	attrResource     = attribute.Key("mcp.resource.uri")
	attrTool         = attribute.Key("gen_ai.tool.name")
	attrPrompt       = attribute.Key("gen_ai.prompt.name")
	attrOperation    = attribute.Key("gen_ai.operation.name")
	attrRequestID    = attribute.Key("jsonrpc.request.id")
	attrErrorType    = attribute.Key("error.type")
	attrStatusCode   = attribute.Key("rpc.response.status_code")
	attrProtocol     = attribute.Key("network.protocol.name")
	attrHTTPVersion  = attribute.Key("network.protocol.version")
	attrTransport    = attribute.Key("network.transport")
	attrKind         = attribute.Key("hydrant.message.kind")
	attrSessionEvent = attribute.Key("hydrant.session.event")
)

// Values of these attributes.
const (
	valueOther       = "_OTHER"       // a method that is none of the protocol's: each would be a time series of its own
	valueToolError   = "tool_error"   // a result with isError
	valueCancelled   = "cancelled"    // the client has gone, and got no response
	valueExecuteTool = "execute_tool" // what tools/call is to the conventions for generative AI

	maxTelemetryValue = 256 // of a text that a client chose, in bytes
)

// What has become of a session, for [telemetry.session].
const (
	sessionCreated  = "created"  // by initialize
	sessionRestored = "restored" // from the store, for a message
	sessionMissing  = "missing"  // or expired, deleted, somebody else's
	sessionDeleted  = "deleted"  // by its client
)

// durationBuckets are those that the conventions give for mcp.server.operation.duration, in seconds.
var durationBuckets = []float64{0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300}

// telemetry makes the spans and metrics of a handler. While no SDK of OpenTelemetry is installed it costs next to nothing.
type telemetry struct {
	tracer   trace.Tracer
	duration metric.Float64Histogram
	messages metric.Int64Counter
	sessions metric.Int64Counter
	resumes  metric.Int64Counter
}

// newTelemetry makes a handler's telemetry; nil providers are the global ones.
func newTelemetry(tp trace.TracerProvider, mp metric.MeterProvider) *telemetry {
	if tp == nil {
		tp = otel.GetTracerProvider()
	}
	if mp == nil {
		mp = otel.GetMeterProvider()
	}
	meter := mp.Meter(instrumentation)
	t := &telemetry{tracer: tp.Tracer(instrumentation)}
	var errs [4]error
	t.duration, errs[0] = meter.Float64Histogram("mcp.server.operation.duration",
		metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(durationBuckets...),
		metric.WithDescription("The time from the arrival of an MCP request or notification until its answer."))
	t.messages, errs[1] = meter.Int64Counter("hydrant.messages", metric.WithUnit("{message}"),
		metric.WithDescription("MCP messages that have arrived: requests, notifications and responses."))
	t.sessions, errs[2] = meter.Int64Counter("hydrant.sessions", metric.WithUnit("{event}"),
		metric.WithDescription("Sessions that were created, restored from the store, missing there, or deleted."))
	t.resumes, errs[3] = meter.Int64Counter("hydrant.exchanges.resumed", metric.WithUnit("{resume}"),
		metric.WithDescription("Streams that a client has come back to with Last-Event-ID."))
	if err := errors.Join(errs[:]...); err != nil {
		otel.Handle(err)
	}
	return t
}

// session counts what has become of a session.
func (t *telemetry) session(ctx context.Context, event string) {
	if t.sessions.Enabled(ctx) {
		t.sessions.Add(ctx, 1, metric.WithAttributes(attrSessionEvent.String(event)))
	}
}

// resumed counts a stream that a client has come back to.
func (t *telemetry) resumed(ctx context.Context) {
	if t.resumes.Enabled(ctx) {
		t.resumes.Add(ctx, 1)
	}
}

// An operation is a message under observation: a span of kind SERVER, and its metrics. nil observes nothing.
type operation struct {
	t       *telemetry
	ctx     context.Context
	span    trace.Span
	began   time.Time
	msg     *message
	name    string // of the tool or prompt
	version string // of the protocol; "" while it is not known
	ran     bool   // the server has seen it
	failure *failure
	isError bool // the result of a tool is an error
}

// begin observes a message that has arrived. The request that it gives back carries the span in its context, and is to be
// used from there on; end is to be called on the operation.
func (t *telemetry) begin(r *http.Request, m *message) (*http.Request, *operation) {
	ctx, links := remoteParent(r, m.meta)
	span := trace.SpanFromContext(context.Background()) // does nothing
	if m.kind != aResponse {                            // a response is the end of an operation of the server's
		ctx, span = t.tracer.Start(ctx, knownMethod(m.method), startOptions(m.method, links)...)
	}
	recording := span.IsRecording()
	if ctx != r.Context() && (recording || span.SpanContext().IsValid()) {
		r = r.WithContext(ctx)
	}
	if !recording && !t.duration.Enabled(ctx) && !t.messages.Enabled(ctx) {
		return r, nil
	}
	o := &operation{t: t, ctx: ctx, span: span, began: time.Now(), msg: m}
	if m.method == "tools/call" || m.method == "prompts/get" {
		o.name = clip(stringParam(*m, "name"))
	}
	if v, _ := rawjson.Get(m.meta, metaVersion); v != nil {
		if s, _ := rawjson.String(v); slices.Contains(modernVersions, s) {
			o.version = s
		}
	}
	if recording {
		o.describe(r)
	}
	return r, o
}

// describe sets what is known of the message before it runs.
func (o *operation) describe(r *http.Request) {
	attrs := []attribute.KeyValue{
		attrMethod.String(truncate(o.msg.method)),
		attrProtocol.String("http"),
		attrHTTPVersion.String(httpVersion(r)),
		attrTransport.String("tcp"),
	}
	if o.msg.kind == aRequest {
		attrs = append(attrs, attrRequestID.String(idText(o.msg.id)))
	}
	attrs = append(attrs, o.target()...)
	if o.name != "" {
		o.span.SetName(o.msg.method + " " + o.name)
	}
	switch o.msg.method {
	case "resources/read", "resources/subscribe", "resources/unsubscribe":
		if uri := withoutSecrets(stringParam(*o.msg, "uri")); uri != "" {
			attrs = append(attrs, attrResource.String(uri))
		}
	}
	o.span.SetAttributes(attrs...)
}

// target names the tool or the prompt.
func (o *operation) target() []attribute.KeyValue {
	switch {
	case o.name == "":
		return nil
	case o.msg.method == "tools/call":
		return []attribute.KeyValue{attrTool.String(o.name), attrOperation.String(valueExecuteTool)}
	}
	return []attribute.KeyValue{attrPrompt.String(o.name)}
}

// restored tells the operation which session it belongs to, and counts it; nil is none.
func (o *operation) restored(s *store.Session) { o.belongs(s, sessionRestored) }

// created tells the operation which session it has opened, and counts it.
func (o *operation) created(s *store.Session) { o.belongs(s, sessionCreated) }

func (o *operation) belongs(s *store.Session, event string) {
	if o == nil || s == nil {
		return
	}
	o.version = s.ProtocolVersion
	if o.span.IsRecording() {
		o.span.SetAttributes(attrSession.String(logID(s.Key)))
	}
	o.t.session(o.ctx, event)
}

// running says that the server is about to see the message.
func (o *operation) running() {
	if o != nil {
		o.ran = true
	}
}

// responded takes the result that the client gets.
func (o *operation) responded(result json.RawMessage) {
	if o == nil || o.msg.method != "tools/call" {
		return
	}
	isError, _ := rawjson.Get(result, "isError")
	o.isError = string(isError) == "true"
}

// failed takes the failure that the client gets instead of a result, or that leaves it without one.
func (o *operation) failed(f *failure) {
	if o != nil {
		o.failure = f
	}
}

// end ends the observation. A failure here is as one given to failed; nil says nothing.
func (o *operation) end(f *failure) {
	if o == nil {
		return
	}
	if f == nil {
		f = o.failure
	}
	problem, code, text := o.problem(f)
	if o.span.IsRecording() {
		var attrs []attribute.KeyValue
		if o.version != "" {
			attrs = append(attrs, attrVersion.String(o.version))
		}
		if problem != "" {
			attrs = append(attrs, attrErrorType.String(problem))
			o.span.SetStatus(codes.Error, text)
		}
		if code != "" {
			attrs = append(attrs, attrStatusCode.String(code))
		}
		if !o.known(f) {
			o.span.SetName(knownMethod(o.msg.method))
		}
		o.span.SetAttributes(attrs...)
	}
	o.measure(f, problem, code)
	o.span.End()
}

// problem says how the message has failed: the error's type and its JSON-RPC code, "" for none, and a text that may be seen
// by whoever sees telemetry. The texts of tools and handlers may not.
func (o *operation) problem(f *failure) (kind, code, text string) {
	switch {
	case f == nil && o.isError:
		return valueToolError, "", ""
	case f == nil:
		return "", "", ""
	case errors.Is(f.cause, errClientGone), errors.Is(f.cause, context.Canceled):
		return valueCancelled, "", ""
	}
	code = strconv.FormatInt(f.code, 10)
	if !f.private {
		text = f.message
	}
	return code, code, text
}

// known says whether the names in the message exist. A client can send any number of others, and each would be a time
// series of its own.
func (o *operation) known(f *failure) bool {
	return o.ran && (f == nil || f.code != jsonrpc.CodeMethodNotFound && f.code != jsonrpc.CodeInvalidParams)
}

// measure records the metrics.
func (o *operation) measure(f *failure, problem, code string) {
	common := make([]attribute.KeyValue, 0, 10)
	if o.version != "" {
		common = append(common, attrVersion.String(o.version))
	}
	if problem != "" {
		common = append(common, attrErrorType.String(problem))
	}
	if o.t.messages.Enabled(o.ctx) {
		kind := [...]string{aRequest: "request", aNotification: "notification", aResponse: "response"}[o.msg.kind]
		o.t.messages.Add(o.ctx, 1, metric.WithAttributes(append(common, attrKind.String(kind))...))
	}
	if o.msg.kind == aResponse || !o.t.duration.Enabled(o.ctx) {
		return
	}
	method := knownMethod(o.msg.method)
	attrs := append(common, attrProtocol.String("http"), attrTransport.String("tcp"))
	if code != "" {
		attrs = append(attrs, attrStatusCode.String(code))
	}
	if o.known(f) {
		attrs = append(attrs, o.target()...)
		if o.msg.kind == aRequest { // notifications are acknowledged whether or not anybody knows them
			method = truncate(o.msg.method)
		}
	}
	attrs = append(attrs, attrMethod.String(method))
	o.t.duration.Record(o.ctx, time.Since(o.began).Seconds(), metric.WithAttributes(attrs...))
}

// observed are the methods of the protocol that a client can send, with the options that their spans start with.
var observed = func() map[string][]trace.SpanStartOption {
	all := map[string][]trace.SpanStartOption{}
	for _, m := range []string{
		valueOther,
		"initialize", "ping", "server/discover", "logging/setLevel", "completion/complete",
		"tools/list", "tools/call", "prompts/list", "prompts/get",
		"resources/list", "resources/templates/list", "resources/read", "resources/subscribe", "resources/unsubscribe",
		"subscriptions/listen",
		"notifications/initialized", "notifications/cancelled", "notifications/progress",
		"notifications/roots/list_changed",
	} {
		all[m] = []trace.SpanStartOption{
			trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(attrMethod.String(m)),
		}
	}
	return all
}()

func knownMethod(method string) string {
	if _, ok := observed[method]; ok {
		return method
	}
	return valueOther
}

func startOptions(method string, links []trace.Link) []trace.SpanStartOption {
	opts := observed[knownMethod(method)]
	if len(links) > 0 {
		opts = append(slices.Clip(opts), trace.WithLinks(links...))
	}
	return opts
}

// propagator reads W3C's trace context and baggage. It is not OpenTelemetry's global propagator: MCP fixes the keys and
// their formats in _meta (SEP-414), and the global one does nothing until somebody sets it, or may read something else.
var propagator = propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})

// remoteParent gives the context in which a message's span starts. The trace context in the message's _meta is the parent:
// it belongs to this very message. What the HTTP request brings, from middleware or from its headers, is linked then, as
// the conventions say; without a trace context in _meta it is the parent.
func remoteParent(r *http.Request, meta json.RawMessage) (context.Context, []trace.Link) {
	ctx := r.Context()
	ambient := trace.SpanContextFromContext(ctx)
	if !ambient.IsValid() && (r.Header["Traceparent"] != nil || r.Header["Baggage"] != nil) {
		ctx = propagator.Extract(ctx, propagation.HeaderCarrier(r.Header))
		ambient = trace.SpanContextFromContext(ctx)
	}
	if !bytes.Contains(meta, []byte("traceparent")) && !bytes.Contains(meta, []byte("baggage")) {
		return ctx, nil
	}
	ctx = propagator.Extract(ctx, metaCarrier(meta))
	if parent := trace.SpanContextFromContext(ctx); ambient.IsValid() && !parent.Equal(ambient) {
		return ctx, []trace.Link{{SpanContext: ambient}}
	}
	return ctx, nil
}

// A metaCarrier is a message's _meta as OpenTelemetry reads it.
type metaCarrier json.RawMessage

// Get implements [propagation.TextMapCarrier].
func (m metaCarrier) Get(key string) string {
	raw, _ := rawjson.Get(json.RawMessage(m), key)
	s, _ := rawjson.String(raw)
	return s
}

// Set implements [propagation.TextMapCarrier]; nothing is written here.
func (m metaCarrier) Set(string, string) {}

// Keys implements [propagation.TextMapCarrier].
func (m metaCarrier) Keys() []string { return propagator.Fields() }

func httpVersion(r *http.Request) string {
	if r.ProtoMajor == 1 {
		return "1." + strconv.Itoa(r.ProtoMinor)
	}
	return strconv.Itoa(r.ProtoMajor)
}

// idText is a request's id as the conventions want it: a text, whatever its type.
func idText(id json.RawMessage) string {
	if s, ok := rawjson.String(id); ok {
		return truncate(s)
	}
	return truncate(string(id))
}

// truncate bounds a text that a client chose.
func truncate(s string) string {
	if len(s) <= maxTelemetryValue {
		return s
	}
	return string(bytes.ToValidUTF8([]byte(s[:maxTelemetryValue]), nil))
}

// withoutSecrets takes from a URI what may hold a secret: user, query and fragment.
func withoutSecrets(uri string) string {
	u, err := url.Parse(uri)
	if err != nil {
		return ""
	}
	u.User, u.RawQuery, u.ForceQuery, u.Fragment, u.RawFragment = nil, "", false, "", ""
	return truncate(u.String())
}
