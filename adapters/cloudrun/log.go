package cloudrun

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// LogOptions of [NewLogHandler]. nil is the defaults.
type LogOptions struct {
	// Level is the lowest level that is written. Default: info.
	Level slog.Leveler
	// Project is the id of the Google Cloud project that traces are in. Default: that of GOOGLE_CLOUD_PROJECT, or else, on
	// Cloud Run, which does not set it, what the metadata server says.
	Project string
}

// The fields that Cloud Logging takes out of a JSON line (https://cloud.google.com/logging/docs/structured-logging).
const (
	fieldSeverity = "severity"
	fieldMessage  = "message"
	fieldTime     = "time"
	fieldTrace    = "logging.googleapis.com/trace"
	fieldSpan     = "logging.googleapis.com/spanId"
	fieldSampled  = "logging.googleapis.com/trace_sampled"
	fieldSource   = "logging.googleapis.com/sourceLocation"
)

// NewLogHandler makes a handler for log/slog that writes one JSON object a line, in the form that Cloud Logging
// understands:
//
//   - severity, message and time;
//   - the trace and span that the record's context belongs to: OpenTelemetry's span, or else the traceparent or
//     X-Cloud-Trace-Context header of the request, if [Serve] serves it;
//   - the source location, for errors;
//   - all attributes, and those of a group httpRequest as Cloud Logging's own. An attribute that would take the place of
//     one of these fields gets an underscore at the end of its name.
//
// Write to os.Stderr or os.Stdout. On Cloud Run, without a project in opts or the environment, it asks the metadata
// server for it once, for a second at most; without one, records carry the bare trace id.
func NewLogHandler(w io.Writer, opts *LogOptions) slog.Handler {
	if opts == nil {
		opts = &LogOptions{}
	}
	h := &logHandler{
		json: slog.NewJSONHandler(w, &slog.HandlerOptions{Level: opts.Level, ReplaceAttr: replace}),
	}
	if project := findProject(opts.Project); project != "" {
		h.traces = "projects/" + project + "/traces/"
	}
	return h
}

// replace gives slog's own fields the names and values that Cloud Logging knows. No other attribute at the top has one
// of these names, see free.
func replace(groups []string, a slog.Attr) slog.Attr {
	if len(groups) > 0 {
		return a
	}
	switch a.Key {
	case slog.MessageKey:
		a.Key = fieldMessage
	case slog.LevelKey:
		if level, ok := a.Value.Any().(slog.Level); ok {
			return slog.String(fieldSeverity, severity(level))
		}
	}
	return a
}

// severity is the name of a level; Google's own library has the same numbers.
func severity(level slog.Level) string {
	switch {
	case level < slog.LevelInfo:
		return "DEBUG"
	case level < slog.LevelInfo+2:
		return "INFO"
	case level < slog.LevelWarn:
		return "NOTICE"
	case level < slog.LevelError:
		return "WARNING"
	case level < slog.LevelError+4:
		return "ERROR"
	case level < slog.LevelError+8:
		return "CRITICAL"
	case level < slog.LevelError+12:
		return "ALERT"
	}
	return "EMERGENCY"
}

// logHandler keeps the groups by itself: the fields that it adds to a record are at the top, whatever group is open.
type logHandler struct {
	json   slog.Handler
	traces string  // what is before a trace's id
	groups []group // the outermost first
}

type group struct {
	name  string
	attrs []slog.Attr
}

// Enabled implements [slog.Handler].
func (h *logHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.json.Enabled(ctx, level)
}

// WithAttrs implements [slog.Handler].
func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	if len(attrs) == 0 {
		return h
	}
	c := *h
	if len(h.groups) == 0 {
		c.json = h.json.WithAttrs(free(attrs))
		return &c
	}
	c.groups = slices.Clone(h.groups)
	last := &c.groups[len(c.groups)-1]
	last.attrs = slices.Concat(last.attrs, attrs)
	return &c
}

// WithGroup implements [slog.Handler].
func (h *logHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	c := *h
	c.groups = append(slices.Clip(h.groups), group{name: name})
	return &c
}

// Handle implements [slog.Handler].
func (h *logHandler) Handle(ctx context.Context, r slog.Record) error {
	out := slog.NewRecord(r.Time, r.Level, r.Message, 0)
	if sc := traceOf(ctx); sc.HasTraceID() {
		out.AddAttrs(slog.String(fieldTrace, h.traces+sc.TraceID().String()))
		if sc.HasSpanID() {
			out.AddAttrs(slog.String(fieldSpan, sc.SpanID().String()))
		}
		out.AddAttrs(slog.Bool(fieldSampled, sc.IsSampled()))
	}
	if r.Level >= slog.LevelError && r.PC != 0 {
		out.AddAttrs(source(r.PC))
	}
	attrs := make([]slog.Attr, 0, r.NumAttrs())
	r.Attrs(func(a slog.Attr) bool {
		attrs = append(attrs, a)
		return true
	})
	for _, g := range slices.Backward(h.groups) {
		attrs = []slog.Attr{{Key: g.name, Value: slog.GroupValue(slices.Concat(g.attrs, attrs)...)}}
	}
	out.AddAttrs(free(attrs)...)
	return h.json.Handle(ctx, out)
}

// free renames attributes that would be at the top under the name of a field. A group without a name is its attributes.
func free(attrs []slog.Attr) []slog.Attr {
	taken := func(a slog.Attr) bool {
		switch a.Key {
		case fieldSeverity, fieldMessage, fieldTime, slog.MessageKey, slog.LevelKey:
			return true
		case "":
			return a.Value.Kind() == slog.KindGroup
		}
		return strings.HasPrefix(a.Key, "logging.googleapis.com/")
	}
	if !slices.ContainsFunc(attrs, taken) {
		return attrs
	}
	attrs = slices.Clone(attrs)
	for i, a := range attrs {
		switch {
		case !taken(a):
		case a.Key == "":
			attrs[i].Value = slog.GroupValue(free(a.Value.Group())...)
		default:
			attrs[i].Key += "_"
		}
	}
	return attrs
}

// source is a LogEntrySourceLocation, in which a line is a string.
func source(pc uintptr) slog.Attr {
	frame, _ := runtime.CallersFrames([]uintptr{pc}).Next()
	return slog.Group(fieldSource,
		slog.String("file", frame.File),
		slog.String("line", strconv.Itoa(frame.Line)),
		slog.String("function", frame.Function),
	)
}

const metadataTimeout = time.Second

// findProject finds out in which project the process runs, "" where it cannot.
func findProject(project string) string {
	if project != "" {
		return project
	}
	if project = os.Getenv("GOOGLE_CLOUD_PROJECT"); project != "" {
		return project
	}
	if os.Getenv("K_SERVICE") == "" {
		return "" // not on Cloud Run, and no metadata server to wait for
	}
	host := os.Getenv("GCE_METADATA_HOST") // as in every Google SDK
	if host == "" {
		host = "169.254.169.254"
	}
	ctx, cancel := context.WithTimeout(context.Background(), metadataTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		"http://"+host+"/computeMetadata/v1/project/project-id", nil)
	if err != nil {
		return ""
	}
	req.Header.Set("Metadata-Flavor", "Google")
	req.Close = true
	res, err := (&http.Client{Transport: &http.Transport{}}).Do(req) // past any proxy
	if err != nil {
		return ""
	}
	defer res.Body.Close()
	const most = 256
	body, err := io.ReadAll(io.LimitReader(res.Body, most))
	if err != nil || res.StatusCode != http.StatusOK {
		return ""
	}
	return strings.TrimSpace(string(body))
}
