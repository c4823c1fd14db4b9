package cloudrun

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/slogtest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"
)

func TestLogHandlerKeepsTheRulesOfSlog(t *testing.T) {
	var log *logBuffer
	slogtest.Run(t, func(*testing.T) slog.Handler {
		log = &logBuffer{}
		return NewLogHandler(log, nil)
	}, func(t *testing.T) map[string]any {
		r := log.records(t)[0]
		// The test looks for slog's own names.
		r[slog.MessageKey], r[slog.LevelKey] = r[fieldMessage], r[fieldSeverity]
		return r
	})
}

func TestLogRecordsAreThoseOfCloudLogging(t *testing.T) {
	log := &logBuffer{}
	logger := slog.New(NewLogHandler(log, &LogOptions{Project: "p", Level: slog.LevelDebug}))
	ctx := withTrace(t.Context(), http.Header{
		headerTrace: {"105445aa7843bc8bf206b12000100000/18374403900871474942;o=1"},
	})
	logger.WithGroup("outer").With("a", 1).WithGroup("inner").ErrorContext(ctx, "it broke", "error", errors.New("why"))
	r := log.records(t)[0]
	assert.Equal(t, "ERROR", r[fieldSeverity])
	assert.Equal(t, "it broke", r[fieldMessage])
	_, err := time.Parse(time.RFC3339Nano, r[fieldTime].(string))
	assert.NoError(t, err)
	assert.Equal(t, "projects/p/traces/105445aa7843bc8bf206b12000100000", r[fieldTrace])
	assert.Equal(t, "fefefefefefefefe", r[fieldSpan])
	assert.Equal(t, true, r[fieldSampled])
	source := r[fieldSource].(map[string]any)
	assert.True(t, strings.HasSuffix(source["file"].(string), "log_test.go"), source["file"])
	assert.Regexp(t, `^\d+$`, source["line"])
	assert.Contains(t, source["function"], "TestLogRecordsAreThoseOfCloudLogging")
	assert.Equal(t, map[string]any{"a": 1.0, "inner": map[string]any{"error": "why"}}, r["outer"])
	for _, key := range []string{"msg", "level", "source"} {
		assert.NotContains(t, r, key)
	}
}

func TestLogRecordsWithoutATraceAndAnErrorAreSmall(t *testing.T) {
	log := &logBuffer{}
	slog.New(NewLogHandler(log, nil)).Info("hello")
	r := log.records(t)[0]
	delete(r, fieldTime)
	assert.Equal(t, map[string]any{fieldSeverity: "INFO", fieldMessage: "hello"}, r)
}

func TestAttributesDoNotTakeThePlaceOfFields(t *testing.T) {
	log := &logBuffer{}
	logger := slog.New(NewLogHandler(log, nil))
	logger.With("time", 1).Info("hello", "message", 2, "severity", 3, "msg", 4, "level", 5, fieldTrace, 6, "other", 7,
		slog.Group("", "message", 8, "more", 9), slog.Group("g", "message", 10))
	assert.Equal(t, 1, strings.Count(log.String(), `"message":"hello"`))
	r := log.records(t)[0]
	assert.Equal(t, "hello", r[fieldMessage])
	assert.Equal(t, "INFO", r[fieldSeverity])
	assert.IsType(t, "", r[fieldTime])
	assert.NotContains(t, r, fieldTrace)
	assert.Equal(t, 1.0, r["time_"])
	assert.Equal(t, 3.0, r["severity_"])
	assert.Equal(t, 4.0, r["msg_"])
	assert.Equal(t, 5.0, r["level_"])
	assert.Equal(t, 6.0, r[fieldTrace+"_"])
	assert.Equal(t, 7.0, r["other"])
	assert.Equal(t, 9.0, r["more"])
	assert.Equal(t, map[string]any{"message": 10.0}, r["g"])
}

func TestSeverities(t *testing.T) {
	for level, want := range map[slog.Level]string{
		slog.LevelDebug: "DEBUG", slog.LevelDebug - 10: "DEBUG", slog.LevelInfo: "INFO", slog.LevelInfo + 1: "INFO",
		slog.LevelInfo + 2: "NOTICE", slog.LevelWarn: "WARNING", slog.LevelError: "ERROR", slog.LevelError + 4: "CRITICAL",
		slog.LevelError + 8: "ALERT", slog.LevelError + 12: "EMERGENCY", slog.LevelError + 100: "EMERGENCY",
	} {
		assert.Equal(t, want, severity(level), "%v", level)
	}
}

func TestTraceHeaders(t *testing.T) {
	const id, other = "4bf92f3577b34da6a3ce929d0e0e4736", "105445aa7843bc8bf206b12000100000"
	for _, c := range []struct {
		name, w3c, google string
		trace, span       string
		sampled           bool
	}{
		{name: "none"},
		{name: "W3C", w3c: "00-" + id + "-00f067aa0ba902b7-01", trace: id, span: "00f067aa0ba902b7", sampled: true},
		{name: "W3C goes first", w3c: "00-" + id + "-00f067aa0ba902b7-00", google: other + "/1;o=1", trace: id,
			span: "00f067aa0ba902b7"},
		{name: "Google's", google: other + "/1;o=1", trace: other, span: "0000000000000001", sampled: true},
		{name: "not sampled", google: other + "/255;o=0", trace: other, span: "00000000000000ff"},
		{name: "a trace alone", google: other, trace: other, span: "0000000000000000"},
		{name: "a span that is none", google: other + "/x;o=1", trace: other, span: "0000000000000000", sampled: true},
		{name: "W3C is broken", w3c: "00-zz-00-01", google: other + "/1", trace: other, span: "0000000000000001"},
		{name: "both are broken", w3c: "x", google: "y/1;o=1"},
		{name: "zeros", google: strings.Repeat("0", 32) + "/1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := http.Header{}
			h.Set("Traceparent", c.w3c)
			h.Set(headerTrace, c.google)
			sc := traceOf(withTrace(t.Context(), h))
			require.Equal(t, c.trace != "", sc.HasTraceID())
			if c.trace == "" {
				return
			}
			assert.Equal(t, c.trace, sc.TraceID().String())
			assert.Equal(t, c.span, sc.SpanID().String())
			assert.Equal(t, c.sampled, sc.IsSampled())
		})
	}
}

func TestTheSpanOfThisProcessGoesBeforeTheHeaders(t *testing.T) {
	config := trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}}
	headers := http.Header{headerTrace: {"105445aa7843bc8bf206b12000100000/1"}}
	local := trace.ContextWithSpanContext(withTrace(t.Context(), headers), trace.NewSpanContext(config))
	assert.Equal(t, config.TraceID, traceOf(local).TraceID())
	config.Remote = true
	remote := trace.ContextWithSpanContext(withTrace(t.Context(), headers), trace.NewSpanContext(config))
	assert.Equal(t, "105445aa7843bc8bf206b12000100000", traceOf(remote).TraceID().String())
	assert.Equal(t, config.TraceID,
		traceOf(trace.ContextWithSpanContext(context.Background(), trace.NewSpanContext(config))).TraceID())
}

func TestTheProjectIsFound(t *testing.T) {
	asked := 0
	metadata := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		if r.URL.Path != "/computeMetadata/v1/project/project-id" || r.Header.Get("Metadata-Flavor") != "Google" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte("from-metadata\n"))
	}))
	t.Cleanup(metadata.Close)
	t.Setenv("GCE_METADATA_HOST", strings.TrimPrefix(metadata.URL, "http://"))
	t.Setenv("K_SERVICE", "")
	t.Setenv("GOOGLE_CLOUD_PROJECT", "")
	assert.Empty(t, findProject(""))
	assert.Zero(t, asked)
	t.Setenv("K_SERVICE", "svc")
	assert.Equal(t, "from-metadata", findProject(""))
	t.Setenv("GOOGLE_CLOUD_PROJECT", "from-environment")
	assert.Equal(t, "from-environment", findProject(""))
	assert.Equal(t, "given", findProject("given"))
	assert.Equal(t, 1, asked)
}
