package cloudrun

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/hydrant-mcp/hydrant/handler"
	"github.com/hydrant-mcp/hydrant/internal/paniclog"
)

// route picks who answers. It is no [http.ServeMux]: that one redirects requests for paths that it finds unclean, and a POST
// that is redirected is lost, or arrives as a GET.
func (s *server) route(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	s.running.Add(1)
	defer s.running.Add(-1)
	res := &response{ResponseWriter: w, draining: s.draining}
	r = r.WithContext(withTrace(r.Context(), r.Header))
	defer func() { s.finish(res, r, began, recover()) }()
	switch {
	case r.URL.Path == s.healthPath:
		s.health(res, r)
	case s.path == "/" || strings.TrimSuffix(r.URL.Path, "/") == strings.TrimSuffix(s.path, "/"):
		s.handler.ServeHTTP(res, r.WithContext(handler.WithRuntime(r.Context(), s.runtime(began))))
	default:
		answer(res, http.StatusNotFound, -32600, "there is no MCP endpoint at this path")
	}
}

// runtime is what Cloud Run can do for a request that began at a time.
func (s *server) runtime(began time.Time) handler.Runtime {
	// With request-based billing the CPU is throttled once a response has ended.
	rt := handler.Runtime{Draining: s.draining, HoldResponses: os.Getenv("K_SERVICE") != ""}
	if s.requestTimeout > 0 {
		rt.Deadline = began.Add(s.requestTimeout)
	}
	if end := s.end.Load(); end != nil && (rt.Deadline.IsZero() || end.Before(rt.Deadline)) {
		rt.Deadline = *end
	}
	return rt
}

// health says whether the instance takes requests.
func (s *server) health(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	select {
	case <-s.draining:
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, "draining\n")
	default:
		_, _ = io.WriteString(w, "ok\n")
	}
}

// finish sees to it that a request that ended in a panic, or with the instance, has an answer, and logs it. Without one
// net/http would say 200 with no body, or reset the connection.
func (s *server) finish(w *response, r *http.Request, began time.Time, panicked any) {
	abort := false
	switch {
	case panicked == http.ErrAbortHandler:
		abort = true
	case panicked != nil:
		s.logger.ErrorContext(r.Context(), "panic in the HTTP handler", "panic", paniclog.Value(panicked),
			"stack", string(debug.Stack()))
		abort = w.status != 0 // the client must see that it has not got all of it
		if !abort {
			answer(w, http.StatusInternalServerError, -32603, "the server failed")
		}
	case w.status == 0 && context.Cause(r.Context()) == ErrShutdown:
		w.Header().Set("Retry-After", "1")
		answer(w, http.StatusServiceUnavailable, -32603, ErrShutdown.Error()+" before the request was answered")
	}
	s.logRequest(w, r, time.Since(began))
	if abort {
		panic(http.ErrAbortHandler)
	}
}

// answer writes a JSON-RPC error. It has no id: of which request it is, only the handler knows.
func answer(w http.ResponseWriter, status, code int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","error":{"code":%d,"message":%q}}`, code, message)
}

// logRequest writes the access log. Of the URL it has the path only, and no header but the user agent.
func (s *server) logRequest(w *response, r *http.Request, took time.Duration) {
	level := slog.LevelDebug
	if w.status >= http.StatusBadRequest && r.URL.Path != s.healthPath {
		level = slog.LevelInfo
	}
	ctx := r.Context()
	if !s.logger.Enabled(ctx, level) {
		return
	}
	status := w.status
	if status == 0 {
		status = http.StatusOK // what net/http sends for a handler that says nothing
	}
	s.logger.LogAttrs(ctx, level, r.Method+" "+r.URL.Path, slog.Group("httpRequest",
		slog.String("requestMethod", r.Method),
		slog.String("requestUrl", r.URL.Path),
		slog.Int("status", status),
		slog.String("responseSize", strconv.FormatInt(w.size, 10)),
		slog.String("userAgent", r.UserAgent()),
		slog.String("latency", strconv.FormatFloat(took.Seconds(), 'f', 6, 64)+"s"),
		slog.String("protocol", r.Proto),
	))
}

// A response notes what is sent, and ends its connection when the instance drains.
type response struct {
	http.ResponseWriter
	draining <-chan struct{}
	status   int // 0 until the header is written
	size     int64
}

// Unwrap is for [http.ResponseController].
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *response) WriteHeader(status int) {
	if w.status == 0 && status >= http.StatusOK {
		w.status = status
		select {
		case <-w.draining:
			w.Header().Set("Connection", "close") // HTTP/2 says it with a GOAWAY
		default:
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *response) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	n, err := w.ResponseWriter.Write(b)
	w.size += int64(n)
	return n, err
}

// FlushError is for [http.ResponseController].
func (w *response) FlushError() error {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Flush implements [http.Flusher].
func (w *response) Flush() { _ = w.FlushError() }
