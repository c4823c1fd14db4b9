package lambda

import (
	"io"
	"net/http"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda/messages"
)

// A streamer takes a response that goes out as it is written. Nothing is buffered: a Write returns when the runtime's
// client has taken all of it, so there is never anything left to flush.
type streamer struct {
	head
	method string
	body   *io.PipeWriter
	begun  chan struct{} // closed when the head is written
	err    error         // of the last Write
}

func (w *streamer) WriteHeader(status int) {
	if w.write(status) {
		close(w.begun)
	}
}

func (w *streamer) Write(b []byte) (int, error) {
	w.sniff(b)
	w.WriteHeader(http.StatusOK)
	if w.bodyless(w.method) {
		return len(b), nil
	}
	n, err := w.body.Write(b)
	if err != nil {
		w.err = err
	}
	return n, err
}

// FlushError implements what [http.ResponseController] asks for. The head goes out with it, if it has not yet.
func (w *streamer) FlushError() error {
	w.WriteHeader(http.StatusOK)
	return w.err
}

// Flush implements [http.Flusher].
func (w *streamer) Flush() { _ = w.FlushError() }

// stream answers through the runtime's response stream. It returns once the head is known; the handler goes on in a
// goroutine, which has ended when the answer has been closed. A handler that hangs and never writes a head is left to
// Lambda, which kills the process at the deadline: better that than one that thaws in the middle of another request.
func (i *invocation) stream() any {
	r, pipe := io.Pipe()
	w := &streamer{method: i.event.method(), body: pipe, begun: make(chan struct{})}
	cut := func() { _ = pipe.CloseWithError(streamError("Deadline", errDeadline)) }
	stopTimer := func() bool { return true }
	if !i.deadline.IsZero() {
		// The handler has had its time when this happens, and may hang: the client is to see an error, not silence.
		stopTimer = time.AfterFunc(time.Until(i.deadline.Add(-cutMargin)), cut).Stop
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		var end error
		defer func() { // also when the handler ends its goroutine
			stopTimer()
			w.WriteHeader(http.StatusOK)
			_ = pipe.CloseWithError(end) // nil is the regular end; what came first stays
		}()
		switch err := i.call(w); {
		case err == nil:
		case w.status != 0:
			end = streamError("Handler", err)
		default:
			w.header = nil
			writeFailure(w, http.StatusInternalServerError, failureServer, i.body)
		}
	}()
	<-w.begun
	out := &streamBody{PipeReader: r, end: func() {
		i.done() // the handler may wait for something that nobody will see
		<-ended
	}}
	if i.event.kind == rest {
		return &events.APIGatewayProxyStreamingResponse{
			StatusCode: w.status, MultiValueHeaders: clean(w.sent), Body: out,
		}
	}
	headers, cookies := joined(w.sent)
	return &events.LambdaFunctionURLStreamingResponse{
		StatusCode: w.status, Headers: headers, Cookies: cookies, Body: out,
	}
}

// A streamBody is closed when Lambda has taken all of it, or takes no more.
type streamBody struct {
	*io.PipeReader
	end func()
}

func (b *streamBody) Close() error {
	err := b.PipeReader.Close()
	b.end()
	return err
}

// streamError is an error in the middle of a stream. Lambda tells its invoker of it in trailers: kind and text.
func streamError(kind string, err error) error {
	return messages.InvokeResponse_Error{Type: "Hydrant." + kind, Message: err.Error()}
}
