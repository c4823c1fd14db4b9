package lambdafront

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// An API is Lambda's Runtime API, and as much of the Extensions API as a function needs to be sent SIGTERM, for one
// process. https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html
type API struct {
	server   *http.Server
	listener net.Listener
	pending  chan *invocation
	closed   chan struct{}
	polled   chan struct{}
	first    sync.Once
	end      sync.Once

	hooks Hooks

	mu         sync.Mutex
	count      int
	underWay   map[string]*invocation
	registered bool
	initError  string
}

// Hooks are told what the function does. Nil ones are not called.
type Hooks struct {
	Polls func() // it asks for its next event: it has done with the one before
	Event func() // it is about to get an event
}

type invocation struct {
	ctx      context.Context
	id       string
	payload  []byte
	deadline time.Time
	answer   chan *Answer
}

// An Answer is what a function posts for an event. Body must be read to its end, or closed: the function waits for that.
type Answer struct {
	ContentType string
	Body        io.ReadCloser
	// Err is the error that the function reports instead of an answer; Body is empty then.
	Err *FunctionError

	request *http.Request
	read    chan struct{}
	once    sync.Once
}

// A FunctionError is an error that a function reports.
type FunctionError struct {
	Type    string `json:"errorType"`
	Message string `json:"errorMessage"`
}

func (e *FunctionError) Error() string { return fmt.Sprintf("%s: %s", e.Type, e.Message) }

const (
	headerRequestID = "Lambda-Runtime-Aws-Request-Id"
	headerDeadline  = "Lambda-Runtime-Deadline-Ms"
	headerARN       = "Lambda-Runtime-Invoked-Function-Arn"
	headerTrace     = "Lambda-Runtime-Trace-Id"
	// TrailerErrorType and TrailerErrorBody tell of an error after the first byte; the body is base64 of JSON.
	TrailerErrorType = "Lambda-Runtime-Function-Error-Type"
	TrailerErrorBody = "Lambda-Runtime-Function-Error-Body"
)

var errClosed = errors.New("lambdafront: the Runtime API is closed")

// NewAPI listens on a free port of the loopback interface.
func NewAPI(hooks Hooks) (*API, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	a := &API{
		hooks:    hooks,
		listener: l,
		pending:  make(chan *invocation),
		closed:   make(chan struct{}),
		polled:   make(chan struct{}),
		underWay: map[string]*invocation{},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /2018-06-01/runtime/invocation/next", a.next)
	mux.HandleFunc("POST /2018-06-01/runtime/invocation/{id}/response", a.response)
	mux.HandleFunc("POST /2018-06-01/runtime/invocation/{id}/error", a.failure)
	mux.HandleFunc("POST /2018-06-01/runtime/init/error", a.initFailure)
	mux.HandleFunc("POST /2020-01-01/extension/register", a.register)
	mux.HandleFunc("GET /2020-01-01/extension/event/next", a.extensionNext)
	a.server = &http.Server{Handler: mux}
	go func() { _ = a.server.Serve(l) }()
	return a, nil
}

// Addr is what AWS_LAMBDA_RUNTIME_API is to be.
func (a *API) Addr() string { return a.listener.Addr().String() }

// Polled is closed when the function asks for its first event: its start is over.
func (a *API) Polled() <-chan struct{} { return a.polled }

// WantsSIGTERM says whether the function has registered an extension, without which Lambda sends no SIGTERM.
func (a *API) WantsSIGTERM() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.registered
}

// InitError is what the function has said about a failed start; empty without one.
func (a *API) InitError() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.initError
}

// Close ends the API and what is under way.
func (a *API) Close() {
	a.end.Do(func() {
		close(a.closed)
		_ = a.server.Close()
	})
}

// Invoke hands an event to the function, when it asks for one, and returns when the answer begins. ctx ends the wait; the
// function is told the deadline, and nothing else.
func (a *API) Invoke(ctx context.Context, payload []byte, deadline time.Time) (*Answer, error) {
	a.mu.Lock()
	a.count++
	id := fmt.Sprintf("8476a536-e9f4-11e8-9739-%012x", a.count)
	inv := &invocation{ctx: ctx, id: id, payload: payload, deadline: deadline, answer: make(chan *Answer)}
	a.underWay[id] = inv
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.underWay, id)
	}()
	select {
	case a.pending <- inv:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-a.closed:
		return nil, errClosed
	}
	select {
	case answer := <-inv.answer:
		return answer, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-a.closed:
		return nil, errClosed
	}
}

func (a *API) next(w http.ResponseWriter, r *http.Request) {
	a.first.Do(func() { close(a.polled) })
	if a.hooks.Polls != nil {
		a.hooks.Polls()
	}
	select {
	case inv := <-a.pending:
		if a.hooks.Event != nil {
			a.hooks.Event()
		}
		h := w.Header()
		h.Set("Content-Type", "application/json")
		h.Set(headerRequestID, inv.id)
		h.Set(headerDeadline, strconv.FormatInt(inv.deadline.UnixMilli(), 10))
		h.Set(headerARN, "arn:aws:lambda:us-east-1:123456789012:function:hydrant")
		h.Set(headerTrace, "Root=1-5bef4de7-ad49b0e87f6ef6c87fc2e700;Parent=9a9197af755a6419;Sampled=1")
		_, _ = w.Write(inv.payload)
	case <-r.Context().Done():
	case <-a.closed:
	}
}

func (a *API) find(w http.ResponseWriter, r *http.Request) *invocation {
	a.mu.Lock()
	defer a.mu.Unlock()
	inv := a.underWay[r.PathValue("id")]
	if inv == nil {
		http.Error(w, `{"errorType":"InvalidRequestID"}`, http.StatusBadRequest)
	}
	return inv
}

// response passes the body on as it arrives. Lambda reads it to its end whether anybody listens or not.
func (a *API) response(w http.ResponseWriter, r *http.Request) {
	inv := a.find(w, r)
	if inv == nil {
		return
	}
	answer := &Answer{ContentType: r.Header.Get("Content-Type"), request: r, read: make(chan struct{})}
	answer.Body = answerBody{answer}
	select {
	case inv.answer <- answer:
		<-answer.read
	case <-inv.ctx.Done():
		_, _ = io.Copy(io.Discard, r.Body)
	}
	w.WriteHeader(http.StatusAccepted)
}

type answerBody struct{ a *Answer }

func (b answerBody) Read(p []byte) (int, error) {
	n, err := b.a.request.Body.Read(p)
	if err != nil {
		b.a.once.Do(func() { close(b.a.read) })
	}
	return n, err
}

func (b answerBody) Close() error {
	_, err := io.Copy(io.Discard, b)
	return err
}

// Trailer is what came after the body, once that has been read.
func (a *Answer) Trailer() http.Header {
	if a.request == nil {
		return nil
	}
	return a.request.Trailer
}

func (a *API) failure(w http.ResponseWriter, r *http.Request) {
	inv := a.find(w, r)
	if inv == nil {
		return
	}
	answer := &Answer{Err: &FunctionError{}, Body: http.NoBody}
	if err := json.NewDecoder(r.Body).Decode(answer.Err); err != nil {
		answer.Err = &FunctionError{Type: "Unreadable", Message: err.Error()}
	}
	select {
	case inv.answer <- answer:
	case <-inv.ctx.Done():
	}
	w.WriteHeader(http.StatusAccepted)
}

func (a *API) initFailure(w http.ResponseWriter, r *http.Request) {
	text, _ := io.ReadAll(r.Body)
	a.mu.Lock()
	a.initError = string(text)
	a.mu.Unlock()
	w.WriteHeader(http.StatusAccepted)
}

func (a *API) register(w http.ResponseWriter, _ *http.Request) {
	a.mu.Lock()
	a.registered = true
	a.mu.Unlock()
	w.Header().Set("Lambda-Extension-Identifier", "d5a4e7d2-1f1c-4e0b-9d0e-6a1c8c3a5b1f")
	_, _ = io.WriteString(w, "{}")
}

// extensionNext never answers: the extension has subscribed to no events.
func (a *API) extensionNext(_ http.ResponseWriter, r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-a.closed:
	}
}
