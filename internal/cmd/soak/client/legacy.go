package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
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
			o.broke(ctx, err)
			return
		}
		o.heard("POST", r)
		after, again := r.retryAfter()
		if !again {
			if id := r.header.Get(headerSession); id != "" && f.request.Method == "initialize" {
				s.ID = id
			}
			err = f.first(ctx, r)
			r.close()
			switch {
			case f.done:
			case f.last == "":
				o.broke(ctx, err)
			default:
				f.resume(ctx)
			}
			return
		}
		drain(r)
		r.close()
		o.Retries++
		if !pause(ctx, after) {
			o.Fate = Unavailable
			return
		}
	}
}

func drain(r *response) { _, _ = io.Copy(io.Discard, io.LimitReader(r, 64<<10)) }

// first reads the response to the POST. The error is how its connection broke.
func (f *follower) first(ctx context.Context, r *response) error {
	o := f.outcome
	if r.status == http.StatusOK && r.stream() {
		return f.read(ctx, r)
	}
	body, err := io.ReadAll(r)
	if r.status != http.StatusOK {
		o.trace("%s", body)
	}
	switch r.status {
	case http.StatusOK, http.StatusBadGateway:
		return f.inline(r, body, err)
	case http.StatusNotFound:
		o.Fate, f.done = Missing, true
	default:
		o.Fate, f.done = Refused, true
	}
	return nil
}

// inline takes a body that is the response, as far as it could be read.
func (f *follower) inline(r *response, body []byte, err error) error {
	if err != nil {
		return err
	}
	if r.status == http.StatusBadGateway { // whoever is between answers for a server that it cannot reach
		return r.broke(errUnreachable)
	}
	var m message
	if json.Unmarshal(body, &m) != nil {
		f.outcome.Wrong = append(f.outcome.Wrong, "a body that is no message: "+clip(string(body)))
		return nil
	}
	f.response(m, string(body))
	return nil
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

// read reads a stream to its end. The error is how its connection broke.
func (f *follower) read(ctx context.Context, r *response) error {
	o := f.outcome
	stream := Stream{Instance: r.header.Get(HeaderInstance), Began: r.began}
	dropped := false
	err := ReadEvents(r, func(e Event) bool {
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
	if dropped {
		err = r.broke(errCut)
	}
	stream.Ended, stream.Broke = time.Now(), err != nil
	o.Streams = append(o.Streams, stream)
	o.trace("stream ends: %v, at %s", err, brief(f.last))
	return err
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
			case r.status == http.StatusNotFound:
				o.SessionMissing = true
				return false
			case r.status != http.StatusBadGateway:
				o.Wrong = append(o.Wrong, fmt.Sprintf("%d to an answer or a notification", r.status))
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
			_ = f.read(ctx, r) // the next round of the loop comes back
		case again || r.status == http.StatusBadGateway:
			drain(r)
		case r.status == http.StatusNotFound:
			o.Fate, f.done = Missing, true
		default:
			body, _ := io.ReadAll(r)
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
			status = r.status
			after, again := r.retryAfter()
			if !again && status != http.StatusBadGateway {
				return status, tries
			}
			if again {
				wait = after
			}
		}
		if !pause(ctx, wait) {
			return status, tries
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
	return r.status, r.listen("", opened, heard)
}

// ErrWrong says that a stream of announcements carries something that does not belong there.
var ErrWrong = errors.New("on a stream of announcements")

// listen reads announcements. subscription is the id of the modern request that they belong to.
func (r *response) listen(subscription string, opened func(), heard func(method string, params json.RawMessage)) error {
	if r.status == http.StatusBadGateway {
		return r.broke(errUnreachable)
	}
	if r.status != http.StatusOK || !r.stream() {
		drain(r)
		return nil
	}
	if opened != nil {
		opened()
	}
	var wrong error
	err := ReadEvents(r, func(e Event) bool {
		if e.Data == "" {
			return true
		}
		var m message
		err := json.Unmarshal([]byte(e.Data), &m)
		switch {
		case err == nil && m.notification() && m.subscription() == subscription:
			heard(m.Method, m.Params)
		case err == nil && m.response() && string(m.ID) == subscription: // a modern stream ends so
		default:
			wrong = fmt.Errorf("%w: %s", ErrWrong, clip(e.Data))
		}
		return wrong == nil
	})
	return cmp.Or(wrong, err)
}
