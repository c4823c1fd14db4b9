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
	broken    bool   // the client cannot be reached any more
	before    func() // is called before each wait for the client; may be nil
}

// keepAlive is how often a silent stream carries a comment: proxies cut what is idle.
const keepAlive = 15 * time.Second

const (
	// writeWait is how long a client may take nothing of what is written.
	writeWait = 10 * time.Second
	// piece is how much is written in that time, in bytes: a large response reaches a client on a slow line too.
	piece = 64 << 10
)

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

// event sends a message on the stream, opening it if need be.
func (a *answer) event(msg json.RawMessage) {
	a.open()
	a.writeEvent("", 0, msg)
}

// writeEvent writes one event of the stream: a message, or with an id and no message only a place to come back to.
func (a *answer) writeEvent(id string, retry time.Duration, msg json.RawMessage) {
	var b bytes.Buffer
	b.Grow(len(msg) + len(id) + 64)
	if id != "" {
		b.WriteString("id: ")
		b.WriteString(id)
		b.WriteByte('\n')
	}
	if retry > 0 {
		b.WriteString("retry: ")
		b.WriteString(strconv.FormatInt(retry.Milliseconds(), 10))
		b.WriteByte('\n')
	}
	if msg == nil {
		b.WriteString("data:\n")
	} else {
		b.WriteString("event: message\n")
		for line := range bytes.SplitSeq(msg, []byte("\n")) { // JSON has line breaks only where space may be
			b.WriteString("data: ")
			b.Write(bytes.ReplaceAll(line, []byte("\r"), nil))
			b.WriteByte('\n')
		}
	}
	b.WriteByte('\n')
	a.write(b.Bytes())
	a.flush()
}

// writeRetry tells the client when to come back.
func (a *answer) writeRetry(d time.Duration) {
	a.write([]byte("retry: " + strconv.FormatInt(d.Milliseconds(), 10) + "\n\n"))
	a.flush()
}

func (a *answer) comment() {
	a.write([]byte(":\n\n"))
	a.flush()
}

func (a *answer) write(b []byte) {
	for len(b) > 0 && !a.broken {
		a.wait(func(*http.ResponseController) error {
			n, err := a.w.Write(b[:min(len(b), piece)])
			a.written += int64(n)
			b = b[n:]
			if err == nil && context.Cause(a.http.Context()) == context.Canceled {
				err = context.Canceled // net/http buffers: a write to nobody can succeed. Any other cause is the end of the process
			}
			return err
		})
	}
}

// wait does what the client may hold up. One that does not read must not hold up what else this goroutine does for the call.
// Where the writer has no deadlines, its platform bounds it.
func (a *answer) wait(do func(*http.ResponseController) error) {
	if a.broken {
		return
	}
	if a.before != nil {
		a.before()
	}
	control := http.NewResponseController(a.w)
	_ = control.SetWriteDeadline(time.Now().Add(writeWait))
	err := do(control)
	_ = control.SetWriteDeadline(time.Time{})
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
	if !a.runtime.Buffered {
		a.wait((*http.ResponseController).Flush)
	}
}

// end ends the response while the HTTP request goes on. Only HTTP/1.1 on a connection of our own can do that; elsewhere the
// stream stays open.
func (a *answer) end() {
	conn, _, err := http.NewResponseController(a.w).Hijack()
	if err != nil {
		return
	}
	a.broken = true
	_ = conn.SetWriteDeadline(time.Now().Add(writeWait)) // whoever takes over a connection gets it without
	if a.http.ProtoAtLeast(1, 1) {
		_, _ = conn.Write([]byte("0\r\n\r\n")) // the last chunk; the headers of a stream have no length
	}
	_ = conn.Close()
}

// bounded replaces a response that the runtime cannot return.
func (a *answer) bounded(msg, id json.RawMessage) json.RawMessage {
	if most := a.runtime.MaxResponse; most > 0 && a.written+int64(len(msg)) > most {
		f := errResponseSize(int64(len(msg)), most)
		a.h.log(a.request, f)
		return f.encode(id)
	}
	return msg
}

// respond adds a response. In a batch it waits for the others, unless the answer streams.
func (a *answer) respond(msg json.RawMessage) {
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

// accepted acknowledges notifications and responses.
func (a *answer) accepted() { a.w.WriteHeader(http.StatusAccepted) }
