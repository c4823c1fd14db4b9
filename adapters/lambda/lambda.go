package lambda

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"path"
	"runtime/debug"
	"strings"
	"time"

	awslambda "github.com/aws/aws-lambda-go/lambda"

	"github.com/hydrant-mcp/hydrant/handler"
	"github.com/hydrant-mcp/hydrant/internal/paniclog"
)

// Start serves h on AWS Lambda. It is the last call of main: it does not return, and ends the process when there is no
// Lambda around it.
//
// On SIGTERM, which Lambda sends before it takes an idle environment away, [handler.Runtime].Draining is closed, and the
// process ends as soon as no invocation is under way. Lambda kills it after about half a second.
func Start(h http.Handler, opts ...Option) {
	newFunction(h, opts).start()
}

// NewHandler gives what [Start] runs, for tests and for programs that start it themselves: aws-lambda-go's Start and
// StartHandler recognize it, and stream its answers where [WithStreaming] applies. Its Invoke gives a whole answer; one
// that streams begins with the head in JSON and eight zero bytes. It does not listen for SIGTERM.
//
// The error of an invocation says that the event is not one of HTTP. All else that goes wrong is an HTTP response.
func NewHandler(h http.Handler, opts ...Option) awslambda.Handler {
	return newFunction(h, opts).handler()
}

// An Option changes how [Start] and [NewHandler] serve.
type Option func(*options)

type options struct {
	streaming  bool
	healthPath string
	basePath   string
	timeout    time.Duration // of API Gateway; zero: its default
	logger     *slog.Logger
	limits     limits
}

// WithStreaming answers Function URLs and REST APIs through Lambda's response stream. They have to be set up for it: the
// Function URL's invoke mode is RESPONSE_STREAM, the REST API's response transfer mode is STREAM. Where they are not,
// every answer comes out garbled; and they are, without this option. HTTP APIs and load balancers stay buffered.
func WithStreaming() Option { return func(o *options) { o.streaming = true } }

// WithHealthPath sets the path whose GET and HEAD are answered 200 without asking the handler. Default: /healthz. Empty:
// none. The health check of a load balancer, known by its user agent, is answered so at any path.
func WithHealthPath(path string) Option { return func(o *options) { o.healthPath = path } }

// WithBasePath names a prefix that the front door leaves on paths and that the handler does not expect, such as the API
// mapping of a custom domain: with "/v1", a request for /v1/mcp is one for /mcp. Paths without it stay as they are. A
// stage's name is taken off without this.
func WithBasePath(prefix string) Option {
	return func(o *options) { o.basePath = strings.TrimSuffix(path.Clean("/"+prefix), "/") }
}

// WithGatewayTimeout says how long API Gateway waits for an answer, where its integration timeout is not the default.
// Default: 29 s for a REST API, 15 minutes when it streams, 30 s for an HTTP API.
func WithGatewayTimeout(d time.Duration) Option { return func(o *options) { o.timeout = d } }

// WithLogger takes what the adapter has to say: panics and answers that are too large, at error. Default: slog.Default().
func WithLogger(l *slog.Logger) Option { return func(o *options) { o.logger = l } }

const (
	defaultHealthPath = "/healthz"
	timeoutREST       = 29 * time.Second
	timeoutRESTStream = 15 * time.Minute
	timeoutHTTP       = 30 * time.Second

	// The request's context ends by margin before the request, and a stream that is still open is cut by cutMargin before.
	// Hydrant's handler keeps a larger margin and so has the first word: these are for what does not look at the Runtime.
	margin    = 200 * time.Millisecond
	cutMargin = 100 * time.Millisecond
)

// A function is a handler as Lambda sees it.
type function struct {
	options
	h     http.Handler
	drain *drain
}

func newFunction(h http.Handler, opts []Option) *function {
	if h == nil {
		panic("lambda: there is no http.Handler to serve")
	}
	f := &function{h: h, drain: newDrain()}
	f.options = options{healthPath: defaultHealthPath, logger: slog.Default(), limits: defaultLimits}
	for _, opt := range opts {
		opt(&f.options)
	}
	return f
}

func (f *function) start() {
	awslambda.Start(f.handler(awslambda.WithEnableSIGTERM(f.drain.exitWhenIdle)))
}

func (f *function) handler(opts ...awslambda.Option) awslambda.Handler {
	return awslambda.NewHandlerWithOptions(f.invoke, opts...)
}

// invoke handles one event. What it returns is an io.ReadCloser of a kind that aws-lambda-go passes on as it is, and
// closes when Lambda has taken it.
func (f *function) invoke(ctx context.Context, payload json.RawMessage) (any, error) {
	e, err := decodeEvent(payload)
	if err != nil {
		return nil, err
	}
	streams := f.streaming && e.kind.canStream()
	i := &invocation{function: f, event: e, ctx: ctx, done: f.drain.enter()}
	location := e.locate(f.basePath)
	if f.isHealthCheck(e, location.path) {
		i.serve = serveHealth
	} else if i.body, err = e.body(); err != nil {
		i.serve = serveBadBody
	} else {
		runtime := f.runtime(ctx, e, streams)
		request, cancel := e.context(ctx, location, runtime)
		leave := i.done
		i.ctx, i.deadline, i.done = request, runtime.Deadline, func() { cancel(); leave() }
		i.serve = func(w http.ResponseWriter) { f.h.ServeHTTP(w, e.request(request, location, i.body)) }
	}
	if streams {
		return i.stream(), nil
	}
	return i.buffer(), nil
}

// An invocation is one event on its way to its answer.
type invocation struct {
	*function
	event    *event
	ctx      context.Context
	deadline time.Time // of the request; zero: none
	body     []byte    // of the request
	serve    func(http.ResponseWriter)
	done     func() // to be called once Lambda has taken the answer
}

var (
	errPanicked = errors.New("the handler panicked")
	errDeadline = errors.New("the time for this request is over")
)

// call survives a panic, as net/http does: the next invocation finds a healthy process.
func (i *invocation) call(w http.ResponseWriter) (err error) {
	err = errPanicked
	defer func() {
		if v := recover(); v != nil && v != http.ErrAbortHandler { //nolint:errorlint // net/http compares so too
			i.logger.ErrorContext(i.ctx, "the handler panicked", "panic", paniclog.Value(v), "stack", string(debug.Stack()))
		}
	}()
	i.serve(w)
	return nil
}

// runtime is what the platform can do for an event. The deadline is the function's or the front door's, whichever comes
// first.
func (f *function) runtime(ctx context.Context, e *event, streams bool) handler.Runtime {
	deadline, ok := ctx.Deadline()
	if end, limited := f.gatewayDeadline(e, streams); limited && (!ok || end.Before(deadline)) {
		deadline = end
	}
	return handler.Runtime{
		Buffered:    !streams,
		Deadline:    deadline,
		MaxResponse: f.limits.body(e.kind, streams),
		Draining:    f.drain.begun,
	}
}

// gatewayDeadline is when the front door gives up waiting.
func (f *function) gatewayDeadline(e *event, streams bool) (time.Time, bool) {
	var wait time.Duration
	switch {
	case e.kind == rest && streams:
		wait = timeoutRESTStream
	case e.kind == rest:
		wait = timeoutREST
	case e.kind == httpAPI || e.kind == httpAPI1:
		wait = timeoutHTTP
	default:
		return time.Time{}, false
	}
	if f.timeout > 0 {
		wait = f.timeout
	}
	// The gateway has been waiting since it took the request, a cold start included. A time that makes no sense, of a
	// clock that is off or of an event that was recorded, does not count.
	now := time.Now()
	start := now
	if at := e.receivedAt(); at.Before(now) && now.Sub(at) < wait {
		start = at
	}
	return start.Add(wait), true
}

func (f *function) isHealthCheck(e *event, path string) bool {
	if m := e.method(); m != http.MethodGet && m != http.MethodHead {
		return false
	}
	if f.healthPath != "" && path == f.healthPath {
		return true
	}
	return e.kind == alb && strings.HasPrefix(e.header.Get("User-Agent"), "ELB-HealthChecker/")
}

func serveHealth(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write([]byte("ok\n"))
}

func serveBadBody(w http.ResponseWriter) {
	writeFailure(w, http.StatusBadRequest, failureBody, nil)
}
