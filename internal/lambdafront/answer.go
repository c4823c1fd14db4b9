package lambdafront

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

const (
	typeStream = "application/vnd.awslambda.http-integration-response"
	// maxBuffered is what Lambda takes of a buffered answer; maxALB what a load balancer does. Bytes.
	maxBuffered = 6 << 20
	maxALB      = 1 << 20
)

// answerHead is what comes before the body in both forms.
type answerHead struct {
	StatusCode        int                 `json:"statusCode"`
	Headers           map[string]string   `json:"headers"`
	MultiValueHeaders map[string][]string `json:"multiValueHeaders"`
	Cookies           []string            `json:"cookies"`
}

// writeHead writes a head as the front door does.
func (s Source) writeHead(w http.ResponseWriter, h answerHead) {
	for name, v := range h.Headers {
		w.Header().Add(name, v)
	}
	for name, values := range h.MultiValueHeaders {
		for _, v := range values {
			w.Header().Add(name, v)
		}
	}
	for _, c := range h.Cookies {
		w.Header().Add("Set-Cookie", c)
	}
	if s == REST || s == HTTP {
		if values, ok := w.Header()["Www-Authenticate"]; ok {
			w.Header()["X-Amzn-Remapped-Www-Authenticate"] = values
			w.Header().Del("Www-Authenticate")
		}
	}
	w.WriteHeader(h.StatusCode)
}

// writeBuffered passes on an answer that is one JSON document. An error is what the front door would answer 502 to.
func (s Source) writeBuffered(w http.ResponseWriter, a *Answer) error {
	if a.ContentType == typeStream {
		return errors.New("the function streams, and the front door does not")
	}
	limit := maxBuffered
	if s == ALB || s == ALBMulti {
		limit = maxALB
	}
	text, err := io.ReadAll(io.LimitReader(a.Body, int64(limit)+1))
	if err != nil {
		return err
	}
	if len(text) > limit {
		return fmt.Errorf("the answer has more than %d bytes", limit)
	}
	if a.Trailer().Get(TrailerErrorType) != "" {
		return trailerError(a)
	}
	var doc struct {
		answerHead
		Body            string `json:"body"`
		IsBase64Encoded bool   `json:"isBase64Encoded"`
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		return err
	}
	if doc.StatusCode < 200 || doc.StatusCode > 599 {
		return fmt.Errorf("the status is %d", doc.StatusCode)
	}
	if s == ALBMulti && doc.Headers != nil || s == ALB && doc.MultiValueHeaders != nil {
		return errors.New("the headers are in the form that the target group is not set to")
	}
	body := []byte(doc.Body)
	if doc.IsBase64Encoded {
		if body, err = base64.StdEncoding.DecodeString(doc.Body); err != nil {
			return err
		}
	}
	s.writeHead(w, doc.answerHead)
	_, _ = w.Write(body) // a client that has gone is nobody's fault
	return nil
}

var errCut = errors.New("lambdafront: the stream broke")

// writeStream passes on an answer as it comes. Lambda does not tell the function when the client goes: the rest is read,
// and thrown away. [errCut] is an error after the head.
func (s Source) writeStream(w http.ResponseWriter, a *Answer) error {
	if a.ContentType != typeStream {
		return errors.New("the front door streams, and the function does not")
	}
	in := bufio.NewReader(a.Body)
	var prelude []byte
	for !bytes.HasSuffix(prelude, make([]byte, 8)) {
		part, err := in.ReadBytes(0)
		prelude = append(prelude, part...)
		if err != nil {
			return fmt.Errorf("the stream ends within its head: %w", err)
		}
	}
	var head answerHead
	if err := json.Unmarshal(bytes.TrimRight(prelude, "\x00"), &head); err != nil {
		return err
	}
	if head.StatusCode < 200 || head.StatusCode > 599 {
		return fmt.Errorf("the status is %d", head.StatusCode)
	}
	s.writeHead(w, head)
	flusher := http.NewResponseController(w)
	_ = flusher.Flush()
	buffer := make([]byte, 32<<10)
	for {
		n, err := in.Read(buffer)
		if n > 0 {
			_, _ = w.Write(buffer[:n])
			_ = flusher.Flush()
		}
		switch {
		case err == io.EOF && a.Trailer().Get(TrailerErrorType) == "":
			return nil
		case err == io.EOF:
			return fmt.Errorf("%w: %w", errCut, trailerError(a))
		case err != nil:
			return fmt.Errorf("%w: %w", errCut, err)
		}
	}
}

func trailerError(a *Answer) error {
	e := &FunctionError{Type: a.Trailer().Get(TrailerErrorType)}
	if text, err := base64.StdEncoding.DecodeString(a.Trailer().Get(TrailerErrorBody)); err == nil {
		_ = json.Unmarshal(text, e)
	}
	return e
}
