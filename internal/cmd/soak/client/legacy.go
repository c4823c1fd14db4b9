package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// A Session is a legacy client's.
type Session struct {
	*Client
	ID, Version string
}

// Initialize opens a session. The outcome is that of the initialize request; the session is nil unless it was answered.
func (c *Client) Initialize(ctx context.Context, version string) (*Session, *Outcome) {
	s := &Session{Client: c}
	q := Request{Method: "initialize", Params: `{"protocolVersion":"` + version + `","capabilities":` + c.capabilities() +
		`,"clientInfo":{"name":"soak","version":"1"}}`}
	o := s.Call(ctx, q)
	if o.Fate != Answered || o.Result == nil || s.ID == "" {
		return nil, o
	}
	s.Version = version
	return s, o
}

// Call makes a request and does all that the protocol has for it.
func (s *Session) Call(ctx context.Context, q Request) *Outcome {
	ctx, cancel := context.WithTimeout(ctx, s.patience())
	defer cancel()
	f := &follower{session: s, request: q, outcome: &Outcome{Began: time.Now()}, answered: map[string]bool{}}
	f.body = f.request.body("") // numbers it
	f.run(ctx)
	f.outcome.Ended = time.Now()
	return f.outcome
}

// A follower follows one call over its connections.
type follower struct {
	session  *Session
	request  Request
	body     string
	outcome  *Outcome
	last     string // event id
	retry    time.Duration
	events   int
	answered map[string]bool
	done     bool
}

func (s *Session) headers(more ...string) []string {
	return append([]string{headerSession, s.ID, headerVersion, s.Version}, more...)
}

func (f *follower) run(ctx context.Context) {
	s, o := f.session, f.outcome
	for {
		headers := s.headers()
		if f.request.StreamOnly {
			headers = append(headers, "Accept", "text/event-stream")
		}
		r, err := s.send(ctx, http.MethodPost, f.body, headers...)
		if err != nil {
			o.trace("POST -> %v", err)
			o.Fate = CutInline
			return
		}
		o.heard("POST", r)
		after, again := r.retryAfter()
		if !again {
			if id := r.header.Get(headerSession); id != "" && f.request.Method == "initialize" {
				s.ID = id
			}
			f.first(ctx, r)
			r.close()
			break
		}
		drain(r)
		r.close()
		o.Retries++
		if !pause(ctx, after) {
			o.Fate = Unavailable
			return
		}
	}
	if f.done {
		return
	}
	o.CutAt = time.Now()
	if f.last == "" {
		o.Fate = CutInline
		return
	}
	f.resume(ctx)
}

func drain(r *response) { _, _ = io.Copy(io.Discard, io.LimitReader(r.body, 64<<10)) }

// first reads the response to the POST.
func (f *follower) first(ctx context.Context, r *response) {
	o := f.outcome
	if r.status == http.StatusOK && r.stream() {
		f.read(ctx, r)
		return
	}
	body, err := io.ReadAll(r.body)
	if err != nil {
		o.trace("body of %d bytes: %v", len(body), err)
		return
	}
	if r.status == http.StatusNotFound {
		o.Fate, f.done = Missing, true
		o.trace("%s", body)
		return
	}
	// Whoever is between may answer for a server that it cannot reach: that is no JSON.
	var m message
	if json.Unmarshal(body, &m) != nil || r.status == http.StatusBadGateway {
		o.trace("no message: %.100s", body)
		return
	}
	if r.status != http.StatusOK {
		o.Fate, f.done = Refused, true
		o.trace("%s", body)
		return
	}
	f.response(m, string(body))
}

// response takes a response.
func (f *follower) response(m message, raw string) {
	o := f.outcome
	if !m.response() || string(m.ID) != f.request.ID {
		o.Wrong = append(o.Wrong, "a response that belongs to somebody else: "+clip(raw))
		return
	}
	if f.done {
		o.Wrong = append(o.Wrong, "a second response: "+clip(raw))
		return
	}
	o.Fate, o.Result, o.Error, f.done = Answered, m.Result, m.Error, true
}

func clip(s string) string {
	if len(s) > 300 {
		return s[:300] + "…"
	}
	return s
}

// read reads a stream to its end.
func (f *follower) read(ctx context.Context, r *response) {
	o := f.outcome
	stream := Stream{Instance: r.header.Get(HeaderInstance), Began: time.Now()}
	dropped := false
	err := ReadEvents(r.body, func(e Event) bool {
		if e.Retry > 0 {
			f.retry = e.Retry
		}
		if e.ID != "" && e.ID != f.last {
			f.last, o.HeldID = e.ID, true
		} else if e.Data != "" {
			o.NoID = true
		}
		if e.Data != "" {
			f.take(ctx, e.Data)
		}
		f.events++
		if o.Resumes == 0 && f.request.Drop != nil && f.request.Drop(f.events) {
			r.close()
			dropped = true
			return false
		}
		return true
	})
	stream.Ended, stream.Broke = time.Now(), err != nil || dropped
	o.Streams = append(o.Streams, stream)
	o.trace("stream ends: %v, at %s", err, brief(f.last))
}

func brief(id string) string {
	if len(id) > 12 {
		return id[len(id)-12:]
	}
	return id
}

// take takes a message of a stream.
func (f *follower) take(ctx context.Context, data string) {
	o := f.outcome
	var m message
	if err := json.Unmarshal([]byte(data), &m); err != nil {
		o.Wrong = append(o.Wrong, "an event that is no message: "+clip(data))
		return
	}
	switch {
	case m.Method == "":
		f.response(m, data)
	case m.ID == nil:
		o.Notifications++
		var params struct {
			Token json.RawMessage `json:"progressToken"`
		}
		if m.Method == "notifications/progress" && json.Unmarshal(m.Params, &params) == nil &&
			string(params.Token) != f.request.Progress {
			o.Wrong = append(o.Wrong, "progress that belongs to somebody else: "+clip(data))
		}
	default:
		if id := string(m.ID); !f.answered[id] && !f.request.Unanswered {
			f.answered[id] = true
			result := f.request.answer(m.Params)
			if o.trace("question"); !f.session.Answer(ctx, id, result, o) {
				o.trace("the answer did not arrive")
			}
			o.LastAnswer = time.Now()
		}
	}
}

// Answer sends the answer to a question until it is acknowledged. It may be sent twice: the second is ignored.
func (s *Session) Answer(ctx context.Context, id, result string, o *Outcome) bool {
	return s.deliver(ctx, `{"jsonrpc":"2.0","id":`+id+`,"result":`+result+`}`, o)
}

// Notify sends a notification until it is acknowledged. It is for those that may be repeated.
func (s *Session) Notify(ctx context.Context, method, params string, o *Outcome) bool {
	return s.deliver(ctx, `{"jsonrpc":"2.0","method":"`+method+`","params":`+params+`}`, o)
}

func (s *Session) deliver(ctx context.Context, body string, o *Outcome) bool {
	for {
		wait := s.comeBack()
		r, err := s.send(ctx, http.MethodPost, body, s.headers()...)
		if err == nil {
			o.heard("POST of an answer or a notification", r)
			drain(r)
			r.close()
			switch after, again := r.retryAfter(); {
			case r.status == http.StatusAccepted:
				return true
			case again:
				o.Retries++
				wait = after
			case r.status != http.StatusBadGateway:
				return false
			}
		}
		if !pause(ctx, wait) {
			return false
		}
	}
}

// resume comes back with the last event id until the response has come.
func (f *follower) resume(ctx context.Context) {
	s, o := f.session, f.outcome
	for !f.done {
		wait := s.comeBack()
		if f.retry > 0 {
			wait = f.retry
		}
		if !pause(ctx, wait) {
			o.Fate = Silent
			return
		}
		o.Resumes++
		r, err := s.send(ctx, http.MethodGet, "", s.headers(headerLastEvent, f.last)...)
		if err != nil {
			o.trace("GET -> %v", err)
			continue
		}
		o.heard("GET after "+brief(f.last), r)
		_, again := r.retryAfter()
		switch {
		case r.status == http.StatusOK && r.stream():
			f.read(ctx, r)
		case again || r.status == http.StatusBadGateway:
			drain(r)
		case r.status == http.StatusNotFound:
			o.Fate, f.done = Missing, true
		default:
			body, _ := io.ReadAll(r.body)
			o.Fate, f.done = Refused, true
			o.trace("%s", body)
		}
		r.close()
	}
}

// Delete ends the session. What it says is the status of the last response, 0 without one.
func (s *Session) Delete(ctx context.Context) (status, tries int) {
	ctx, cancel := context.WithTimeout(ctx, s.patience())
	defer cancel()
	for {
		tries++
		wait := s.comeBack()
		r, err := s.send(ctx, http.MethodDelete, "", s.headers()...)
		if err == nil {
			drain(r)
			r.close()
			after, again := r.retryAfter()
			if !again && r.status != http.StatusBadGateway {
				return r.status, tries
			}
			if again {
				wait = after
			}
		}
		if !pause(ctx, wait) {
			return 0, tries
		}
	}
}

// Listen holds the session's standalone stream until ctx ends or the stream does, and hands over its notifications by
// method and params. opened is called when the stream is open.
func (s *Session) Listen(ctx context.Context, opened func(), heard func(method string, params json.RawMessage)) (
	status int, err error,
) {
	r, err := s.send(ctx, http.MethodGet, "", s.headers()...)
	if err != nil {
		return 0, err
	}
	defer r.close()
	if r.status != http.StatusOK || !r.stream() {
		drain(r)
		return r.status, nil
	}
	return r.status, listen(r, opened, heard)
}

func listen(r *response, opened func(), heard func(method string, params json.RawMessage)) error {
	if opened != nil {
		opened()
	}
	var wrong error
	err := ReadEvents(r.body, func(e Event) bool {
		if e.Data == "" {
			return true
		}
		var m message
		if json.Unmarshal([]byte(e.Data), &m) != nil || strings.HasPrefix(m.Method, "notifications/") == (m.ID != nil) {
			wrong = fmt.Errorf("on a stream of announcements: %s", clip(e.Data))
			return false
		}
		if m.Method != "" {
			heard(m.Method, m.Params)
		}
		return true
	})
	if wrong != nil {
		return wrong
	}
	return err
}
