// Package client is an MCP client of both eras that follows the protocol exactly and nothing beyond it, over raw HTTP. Its
// connections break where it is told, and it says what became of every call: it is for load tests, and for tests of what
// happens on bad days.
//
// What it does when something goes wrong is what the specification lets a client do: it repeats what was refused with 503
// and a Retry-After, comes back with Last-Event-ID when a stream breaks off that has given it an event id, answers a
// question again when it does not know whether its answer arrived, and repeats nothing else. A POST that got no response may
// have run.
package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// The headers.
const (
	headerSession   = "Mcp-Session-Id"
	headerVersion   = "Mcp-Protocol-Version"
	headerMethod    = "Mcp-Method"
	headerName      = "Mcp-Name"
	headerLastEvent = "Last-Event-ID"
	// HeaderInstance is set by servers of load tests: which process answers.
	HeaderInstance = "X-Instance"
	// HeaderRequest numbers every HTTP request, so that they can tell which process took one that it never answered.
	HeaderRequest = "X-Request"
)

// Modern is the version of the modern era.
const Modern = "2026-07-28"

// A Client talks to one endpoint.
type Client struct {
	URL  string
	HTTP *http.Client
	// Cut says after how many bytes of its body the connection of the next response breaks; negative: it does not. Nil:
	// never.
	Cut func() int64
	// Patience bounds one call, with all that the protocol has for it. Default: 60 seconds.
	Patience time.Duration
	// ComeBack is how long it waits before it comes back where the stream has not said. Default: half a second.
	ComeBack time.Duration
	// Capabilities are what the client declares. Default: elicitation.
	Capabilities string
	// Token is the bearer token; empty: none.
	Token string
}

func (c *Client) patience() time.Duration {
	if c.Patience > 0 {
		return c.Patience
	}
	return time.Minute
}

func (c *Client) comeBack() time.Duration {
	if c.ComeBack > 0 {
		return c.ComeBack
	}
	return 500 * time.Millisecond
}

func (c *Client) capabilities() string {
	if c.Capabilities != "" {
		return c.Capabilities
	}
	return `{"elicitation":{}}`
}

// A response is the head of an HTTP response, and its body that may break.
type response struct {
	status  int
	header  http.Header
	body    io.Reader
	close   func()
	request string // its number
	began   time.Time
	conn    net.Conn
}

func (r *response) Read(p []byte) (int, error) {
	n, err := r.body.Read(p)
	if err != nil && err != io.EOF {
		err = r.broke(err)
	}
	return n, err
}

// broke says how the connection broke.
func (r *response) broke(err error) *Break {
	frail, ok := r.conn.(interface{ Broke() bool })
	here := errors.Is(err, errCut) || ok && frail.Broke()
	return &Break{Request: r.request, Here: here, Began: r.began, Ended: time.Now(), Err: err}
}

// A Break is how the connection of an HTTP request broke before its response was complete.
type Break struct {
	// Request is the number of the request, as in HeaderRequest.
	Request string
	// Here says that it was broken on this side: by Client.Cut, or by a connection whose method Broke says so.
	Here bool
	// Began is when the request was made, Ended when it was seen that the connection is gone.
	Began, Ended time.Time
	Err          error
}

func (b *Break) Error() string { return b.Err.Error() }
func (b *Break) Unwrap() error { return b.Err }

func (r *response) stream() bool {
	return strings.HasPrefix(r.header.Get("Content-Type"), "text/event-stream")
}

// retryAfter says whether the request may be repeated, and when.
func (r *response) retryAfter() (time.Duration, bool) {
	seconds, err := strconv.Atoi(r.header.Get("Retry-After"))
	busy := r.status == http.StatusServiceUnavailable || r.status == http.StatusTooManyRequests
	return time.Duration(seconds) * time.Second, err == nil && busy
}

var (
	// errCut is what reading gives where this client's connection is told to break.
	errCut = errors.New("the connection was cut")
	// errUnreachable stands for the answer of whoever is between, and cannot reach the server.
	errUnreachable = errors.New("bad gateway")
)

// nextRequest numbers the HTTP requests of this process.
var nextRequest atomic.Int64

// send makes one HTTP request. The response must be closed. The error is a Break.
func (c *Client) send(ctx context.Context, method, body string, headers ...string) (*response, error) {
	r := &response{request: strconv.FormatInt(nextRequest.Add(1), 10), began: time.Now()}
	ctx, cancel := context.WithCancel(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(got httptrace.GotConnInfo) { r.conn = got.Conn },
	}))
	var in io.Reader
	if method == http.MethodPost {
		in = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.URL, in)
	if err != nil {
		cancel()
		return nil, err
	}
	switch method {
	case http.MethodPost:
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
	case http.MethodGet:
		req.Header.Set("Accept", "text/event-stream")
	}
	req.Header.Set(HeaderRequest, r.request)
	if c.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.Token)
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i+1] != "" {
			req.Header.Set(headers[i], headers[i+1])
		}
	}
	res, err := c.HTTP.Do(req)
	if err != nil {
		cancel()
		return nil, r.broke(err)
	}
	r.status, r.header, r.body = res.StatusCode, res.Header, res.Body
	r.close = func() {
		cancel()
		_ = res.Body.Close()
	}
	if c.Cut != nil {
		if after := c.Cut(); after >= 0 {
			r.body = &cutReader{r: res.Body, left: after, cut: r.close}
		}
	}
	return r, nil
}

type cutReader struct {
	r    io.Reader
	left int64
	cut  func()
}

func (r *cutReader) Read(p []byte) (int, error) {
	if r.left <= 0 {
		r.cut()
		return 0, errCut
	}
	n, err := r.r.Read(p[:min(int64(len(p)), r.left)])
	r.left -= int64(n)
	return n, err
}

// Do makes one HTTP request, of a session if it has one, and gives its response as it is.
func (s *Session) Do(ctx context.Context, method, body string, headers ...string) (
	status int, header http.Header, text string, err error,
) {
	r, err := s.send(ctx, method, body, s.headers(headers...)...)
	if err != nil {
		return 0, nil, "", err
	}
	defer r.close()
	raw, err := io.ReadAll(r)
	return r.status, r.header, string(raw), err
}

// pause waits, unless ctx ends.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// A message is what all messages of JSON-RPC have.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

func (m *message) response() bool { return m.Method == "" && (m.Result != nil || m.Error != nil) }

func (m *message) notification() bool {
	return m.ID == nil && strings.HasPrefix(m.Method, "notifications/")
}

// subscription is the id of the subscriptions/listen that a notification of the modern era belongs to.
func (m *message) subscription() string {
	var params struct {
		Meta struct {
			Subscription json.RawMessage `json:"io.modelcontextprotocol/subscriptionId"`
		} `json:"_meta"`
	}
	_ = json.Unmarshal(m.Params, &params)
	return string(params.Meta.Subscription)
}

// nextID numbers the requests of this process.
var nextID atomic.Int64

// A Fate is what has become of a call.
type Fate string

const (
	// Answered: its response has arrived.
	Answered Fate = "answered"
	// CutInline: the connection broke, or whoever is between could not reach the server, and there is no event id to come
	// back with. It may have run.
	CutInline Fate = "cut inline"
	// Missing: the session does not exist, says the server.
	Missing Fate = "session missing"
	// Refused: an HTTP status that the protocol has no way on from.
	Refused Fate = "refused"
	// Unavailable: 503 for as long as patience lasted. It has not run.
	Unavailable Fate = "unavailable"
	// Silent: nothing has come for as long as patience lasted, whether or not the client has come back with an event id.
	Silent Fate = "silent"
)

// An Outcome is what has become of a call, and how.
type Outcome struct {
	Fate Fate
	// Result or Error is the response's, where it was answered.
	Result, Error json.RawMessage
	// Wrong are faults of the server's that have nothing to do with what the tool does: a message that belongs to
	// somebody else, a second response, an answer that is refused.
	Wrong []string
	// SessionMissing says that an answer or a notification was told that the session does not exist.
	SessionMissing bool
	// Notifications counts the notifications that came before the response.
	Notifications int
	// Retries and Resumes count what the protocol has for a bad day.
	Retries, Resumes int
	// HeldID says that the client held an event id.
	HeldID bool
	// NoID says that the stream of the POST carried messages without event ids: the store had refused them.
	NoID bool
	// Break is how the connection of the POST broke that had no answer. Nil: it did not break.
	Break *Break
	// Began and Ended are times.
	Began, Ended time.Time
	// LastAnswer is when the last answer to a question had arrived.
	LastAnswer time.Time
	// Instances are the processes that have answered, in order, and Streams the streams that they answered with.
	Instances []string
	Streams   []Stream
	// Trace is every HTTP exchange, for whoever looks for the cause.
	Trace []string
}

// A Stream is one connection of a call.
type Stream struct {
	Instance string
	// Began is when the request was made.
	Began, Ended time.Time
	// Broke says that it did not end properly.
	Broke bool
}

func (o *Outcome) trace(format string, args ...any) {
	o.Trace = append(o.Trace, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

func (o *Outcome) heard(method string, r *response) {
	instance := r.header.Get(HeaderInstance)
	if instance != "" {
		o.Instances = append(o.Instances, instance)
	}
	o.trace("%s -> %d %s from %s", method, r.status, r.header.Get("Content-Type"), instance)
}

// broke notes how the connection broke without which there is no answer. No error is a stream that ended properly, without
// its response.
func (o *Outcome) broke(ctx context.Context, err error) {
	o.trace("no answer: %v", err)
	if o.Fate = CutInline; ctx.Err() != nil {
		o.Fate = Silent
	}
	errors.As(err, &o.Break)
}

// Text is the first text of a tool's result.
func (o *Outcome) Text() string {
	var result struct{ Content []struct{ Text string } }
	if json.Unmarshal(o.Result, &result) != nil || len(result.Content) == 0 {
		return ""
	}
	return result.Content[0].Text
}

// IsError says whether the result is a tool's failure.
func (o *Outcome) IsError() bool {
	var result struct{ IsError bool }
	return json.Unmarshal(o.Result, &result) == nil && result.IsError
}

// Interrupted says whether the response says that the process died that ran the call.
func (o *Outcome) Interrupted() bool {
	return o.Fate == Answered && strings.Contains(string(o.Result)+string(o.Error), "The call was interrupted")
}

// Cancelled says whether the response says that the call was cancelled.
func (o *Outcome) Cancelled() bool {
	var e struct{ Code int }
	return json.Unmarshal(o.Error, &e) == nil && e.Code == codeCancelled
}

// codeCancelled is LSP's code for a cancelled request; MCP has none.
const codeCancelled = -32800

// A Request is one to make.
type Request struct {
	Method string
	// Params is a JSON object, without _meta.
	Params string
	// ID is the JSON-RPC id; empty: the next number.
	ID string
	// Progress is the progress token, as JSON; empty: none.
	Progress string
	// Answer answers a question of the server's. Nil: they are cancelled.
	Answer func(params json.RawMessage) string
	// Unanswered leaves questions without an answer.
	Unanswered bool
	// StreamOnly accepts nothing but an event stream.
	StreamOnly bool
	// Drop is called with the number of each event of the POST's stream, from 1 on; true breaks the connection after it.
	Drop func(n int) bool
}

func (q *Request) id() string {
	if q.ID == "" {
		q.ID = strconv.FormatInt(nextID.Add(1), 10)
	}
	return q.ID
}

func (q *Request) answer(params json.RawMessage) string {
	if q.Answer == nil {
		return `{"action":"cancel"}`
	}
	return q.Answer(params)
}

// Tool is a request that calls a tool.
func Tool(name, arguments string) Request {
	return Request{Method: "tools/call", Params: `{"name":` + strconv.Quote(name) + `,"arguments":` + arguments + `}`}
}

// body is the request as a message, with more members for _meta.
func (q *Request) body(meta string) string {
	if q.Progress != "" {
		if meta != "" {
			meta += ","
		}
		meta += `"progressToken":` + q.Progress
	}
	params := q.Params
	if meta != "" {
		inside := strings.TrimSuffix(strings.TrimPrefix(params, "{"), "}")
		if inside != "" {
			inside += ","
		}
		params = "{" + inside + `"_meta":{` + meta + `}}`
	}
	if params == "" {
		params = "{}"
	}
	return `{"jsonrpc":"2.0","id":` + q.id() + `,"method":"` + q.Method + `","params":` + params + `}`
}
