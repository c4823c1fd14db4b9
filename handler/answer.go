package handler

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// An answer is the HTTP response to a request, or to a batch. It is one inline JSON body, unless something must go out
// before the response, the client takes an event stream and the runtime streams; or the client takes nothing else.
type answer struct {
	*request
	batch     bool
	streaming bool
	responses []json.RawMessage
	written   int64
	broken    bool // the client cannot be reached any more
}

// keepAlive is how often a silent stream carries a comment: proxies cut what is idle.
const keepAlive = 15 * time.Second

// streams says whether something can go out before the response.
func (a *answer) streams() bool { return a.accept.stream && !a.runtime.Buffered }

// open turns the answer into an event stream.
func (a *answer) open() {
	if a.streaming {
		return
	}
	a.streaming = true
	h := a.w.Header()
	h.Set("Content-Type", typeStream)
	h.Set("Cache-Control", "no-cache, no-transform") // and so no compression, which would hold events back
	h.Set("X-Accel-Buffering", "no")
	a.w.WriteHeader(http.StatusOK)
	a.flush()
	for _, msg := range a.responses { // of a batch, from before it streamed
		a.event(msg)
	}
	a.responses = nil
}

// event sends a message on the stream.
func (a *answer) event(msg json.RawMessage) {
	a.open()
	var b bytes.Buffer
	b.Grow(len(msg) + len("event: message\ndata: \n\n"))
	b.WriteString("event: message\n")
	for line := range bytes.SplitSeq(msg, []byte("\n")) { // JSON has line breaks only where space may be
		b.WriteString("data: ")
		b.Write(bytes.TrimSuffix(line, []byte("\r")))
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
	a.write(b.Bytes())
	a.flush()
}

func (a *answer) comment() {
	a.write([]byte(":\n\n"))
	a.flush()
}

func (a *answer) write(b []byte) {
	if a.broken {
		return
	}
	n, err := a.w.Write(b)
	a.written += int64(n)
	if err == nil {
		err = a.http.Context().Err() // net/http buffers: a write to nobody can succeed
	}
	a.lost(err)
}

// lost notes that the client cannot be reached any more, which is normal.
func (a *answer) lost(err error) {
	if err != nil && !a.broken {
		a.broken = true
		a.h.opts.Logger.DebugContext(a.http.Context(), "the client closed the connection", "error", err)
	}
}

func (a *answer) flush() {
	if a.broken || a.runtime.Buffered {
		return
	}
	a.lost(http.NewResponseController(a.w).Flush())
}

// respond adds a response. In a batch it waits for the others, unless the answer streams.
func (a *answer) respond(msg json.RawMessage, id json.RawMessage) {
	if most := a.runtime.MaxResponse; most > 0 && a.written+int64(len(msg)) > most {
		f := errResponseSize(int64(len(msg)), most)
		a.h.log(a.request, f)
		msg = f.encode(id)
	}
	if a.streaming {
		a.event(msg)
		return
	}
	a.responses = append(a.responses, msg)
	a.written += int64(len(msg))
}

// finish sends what has not been sent yet. status is the HTTP status of an inline answer.
func (a *answer) finish(status int) {
	if a.streaming {
		return
	}
	if !a.accept.json && status == http.StatusOK { // an error of HTTP is JSON, whatever the client takes
		a.open()
		return
	}
	var body []byte
	switch {
	case a.batch:
		body = encode(a.responses)
	case len(a.responses) == 1:
		body = a.responses[0]
	}
	h := a.w.Header()
	h.Set("Content-Type", typeJSON)
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	a.w.WriteHeader(status)
	a.write(body)
}

// serve runs a request and answers it.
func (a *answer) serve(x *exchange) *failure {
	ctx, stop := x.context()
	defer stop()
	out := newOutgoing()
	var result json.RawMessage
	var f *failure
	done := make(chan struct{})
	go func() {
		defer close(done)
		result, f = x.call(ctx, out)
	}()
	a.relay(ctx, out, done)
	if f != nil {
		return f
	}
	if x.minted != "" {
		a.w.Header().Set(headerSession, x.minted)
	}
	a.respond(encodeResult(x.msg.id, result), x.msg.id)
	return nil
}

// relay sends what the server sends before its response, until the call is done.
func (a *answer) relay(ctx context.Context, out *outgoing, done <-chan struct{}) {
	alive := time.NewTicker(keepAlive)
	defer alive.Stop()
	for running := true; running; {
		select {
		case <-out.ready:
		case <-alive.C:
			if a.streaming {
				a.comment()
			}
		case <-done:
			running = false
		}
		msgs, dropped := out.take()
		if dropped > 0 {
			a.h.opts.Logger.WarnContext(ctx, "notifications were dropped: the client does not read", "count", dropped)
		}
		if !a.streams() {
			continue // there is no way to tell the client before the response
		}
		for _, msg := range msgs {
			a.event(msg)
		}
	}
}

// accepted acknowledges notifications and responses.
func (a *answer) accepted() { a.w.WriteHeader(http.StatusAccepted) }
