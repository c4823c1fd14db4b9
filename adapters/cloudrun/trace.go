package cloudrun

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// headerTrace is Google's own trace header: TRACE_ID/SPAN_ID;o=OPTIONS, the span in decimal.
const headerTrace = "X-Cloud-Trace-Context"

type traceKey struct{}

// withTrace keeps the trace that the headers name, for the log. It is not put in the place of OpenTelemetry's: a span that
// somebody makes of the request is not to have a parent that it has not asked for.
func withTrace(ctx context.Context, h http.Header) context.Context {
	sc := trace.SpanContextFromContext(
		propagation.TraceContext{}.Extract(context.Background(), propagation.HeaderCarrier(h)))
	if !sc.IsValid() {
		sc = parseTrace(h.Get(headerTrace))
	}
	if !sc.HasTraceID() {
		return ctx
	}
	return context.WithValue(ctx, traceKey{}, sc)
}

// parseTrace reads Google's header. Everything but the trace id may be missing.
func parseTrace(s string) trace.SpanContext {
	s, options, _ := strings.Cut(s, ";")
	id, span, _ := strings.Cut(s, "/")
	var c trace.SpanContextConfig
	var err error
	if c.TraceID, err = trace.TraceIDFromHex(id); err != nil {
		return trace.SpanContext{}
	}
	if n, err := strconv.ParseUint(span, 10, 64); err == nil {
		for i := range c.SpanID {
			c.SpanID[i] = byte(n >> (8 * (len(c.SpanID) - 1 - i)))
		}
	}
	if options == "o=1" {
		c.TraceFlags = trace.FlagsSampled
	}
	return trace.NewSpanContext(c)
}

// traceOf is the trace that a log record belongs to: the span of this process in which it was written, or else what the
// request's headers said. A span context that came from the client and that nobody here records goes last: the console
// shows a record below its request if both have the same trace.
func traceOf(ctx context.Context) trace.SpanContext {
	span := trace.SpanContextFromContext(ctx)
	if span.IsValid() && !span.IsRemote() {
		return span
	}
	if sc, ok := ctx.Value(traceKey{}).(trace.SpanContext); ok {
		return sc
	}
	return span
}
