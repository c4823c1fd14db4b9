package lambda

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"
)

// limits are what Lambda and its front doors take, in bytes.
type limits struct {
	buffered int64 // the encoded answer
	alb      int64 // the same, from a load balancer
	stream   int64 // the body
}

// API Gateway's own limit of 10 MB lies behind Lambda's, and streams are exempt from it.
var defaultLimits = limits{buffered: 6 << 20, alb: 1 << 20, stream: 200 << 20}

// headRoom is kept free for what surrounds the body in a buffered answer.
const headRoom = 4 << 10

func (l limits) encoded(k kind) int64 {
	if k == alb {
		return l.alb
	}
	return l.buffered
}

// body is the size of the largest body that may fit. What a buffered body becomes in JSON depends on its characters: a
// base64 text stays as long as it is, quotes in quotes double. To promise only what always fits would refuse half of what
// does, so this is what fits at best; [invocation.buffer] measures what really comes out.
func (l limits) body(k kind, streams bool) int64 {
	if streams {
		return l.stream
	}
	return l.encoded(k) - headRoom
}

// A head is the part of a response that comes before its body.
type head struct {
	header http.Header
	status int         // zero until it is written
	sent   http.Header // header as it was then
}

func (h *head) Header() http.Header {
	if h.header == nil {
		h.header = http.Header{}
	}
	return h.header
}

// write settles the head, once. Informational statuses have no way to the client.
func (h *head) write(status int) (first bool) {
	if h.status != 0 || status >= 100 && status < 200 {
		return false
	}
	h.status, h.sent = status, h.Header().Clone()
	// These are about the connection to the client, which the front door has; the length is not ours to promise, as it
	// may yet put another body there.
	for _, name := range []string{"Connection", "Content-Length", "Keep-Alive", "Trailer", "Transfer-Encoding"} {
		h.sent.Del(name)
	}
	return true
}

// bodyless says whether HTTP allows no body in the response.
func (h *head) bodyless(method string) bool {
	return method == http.MethodHead || h.status == http.StatusNoContent || h.status == http.StatusNotModified
}

// sniff sets the content type where the handler leaves it out, as net/http does.
func (h *head) sniff(body []byte) {
	if h.status == 0 && h.Header().Get("Content-Type") == "" && len(body) > 0 {
		h.Header().Set("Content-Type", http.DetectContentType(body))
	}
}

// A recorder takes a response that goes out whole. It cannot flush, so that nobody thinks it streams.
type recorder struct {
	head
	method string
	body   bytes.Buffer
}

func (w *recorder) WriteHeader(status int) { w.write(status) }

func (w *recorder) Write(b []byte) (int, error) {
	w.sniff(b)
	w.write(http.StatusOK)
	if w.bodyless(w.method) {
		return len(b), nil
	}
	return w.body.Write(b)
}

// buffer answers with one JSON document.
func (i *invocation) buffer() any {
	method := i.event.method()
	w := &recorder{method: method}
	if err := i.call(w); err != nil {
		w = &recorder{method: method}
		writeFailure(w, http.StatusInternalServerError, failureServer, i.body)
	}
	w.write(http.StatusOK)
	most := i.limits.encoded(i.event.kind)
	encoded := i.event.encode(&w.head, w.body.Bytes(), most)
	if size := int64(len(encoded)); size > most {
		i.logger.ErrorContext(i.ctx, "the response is larger than the runtime can return", "size", size, "limit", most)
		small := &recorder{head: head{header: w.sent}, method: method}
		writeFailure(small, http.StatusOK, failureSize(size, most), i.body)
		encoded = i.event.encode(&small.head, small.body.Bytes(), most)
	}
	return &document{Reader: bytes.NewReader(encoded), done: i.done}
}

// A document is an answer that is encoded already. aws-lambda-go sends what reads and has no JSON of its own as it is.
type document struct {
	*bytes.Reader
	done func()
}

func (d *document) Close() error        { d.done(); return nil }
func (d *document) ContentType() string { return "application/json" }

func (d *document) MarshalJSON() ([]byte, error) {
	return nil, errors.New("lambda: this is encoded already")
}

// proxyResponse is what the front doors take. The types of package events have all fields at all times, null where there
// is nothing.
type proxyResponse struct {
	StatusCode        int                 `json:"statusCode"`
	StatusDescription string              `json:"statusDescription,omitempty"` // load balancer
	Headers           map[string]string   `json:"headers,omitempty"`
	MultiValueHeaders map[string][]string `json:"multiValueHeaders,omitempty"`
	Cookies           []string            `json:"cookies,omitempty"` // format 2.0
	Body              string              `json:"body"`
	IsBase64Encoded   bool                `json:"isBase64Encoded"`
}

// encode gives the answer in the event's form. Text goes as text, unless it only fits in base64.
func (e *event) encode(h *head, body []byte, most int64) []byte {
	out := proxyResponse{StatusCode: h.status}
	switch {
	case e.kind == functionURL || e.kind == httpAPI:
		out.Headers, out.Cookies = joined(h.sent)
	case e.kind == alb && e.MultiValueHeaders == nil:
		out.Headers = single(h.sent)
	default:
		out.MultiValueHeaders = clean(h.sent)
	}
	if e.kind == alb {
		out.StatusDescription = strings.TrimSpace(fmt.Sprintf("%d %s", h.status, http.StatusText(h.status)))
	}
	text := utf8.Valid(body)
	if text {
		out.Body = string(body)
	} else {
		out.Body, out.IsBase64Encoded = base64.StdEncoding.EncodeToString(body), true
	}
	encoded := marshal(out)
	// A REST API would pass base64 on as such, unless its binary media types cover text.
	if text && int64(len(encoded)) > most && e.kind != rest && base64.StdEncoding.EncodedLen(len(body)) < len(encoded) {
		out.Body, out.IsBase64Encoded = base64.StdEncoding.EncodeToString(body), true
		if again := marshal(out); len(again) < len(encoded) {
			return again
		}
	}
	return encoded
}

func marshal(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err) // strings, numbers and maps of them
	}
	return bytes.TrimRight(b.Bytes(), "\n")
}

var oneLine = strings.NewReplacer("\r", " ", "\n", " ")

// clean keeps line breaks out of headers, as net/http does.
func clean(h http.Header) map[string][]string {
	out := make(map[string][]string, len(h))
	for name, values := range h {
		for _, v := range values {
			out[name] = append(out[name], oneLine.Replace(v))
		}
	}
	return out
}

const setCookie = "Set-Cookie"

// joined gives headers with repeated values on one line, and the cookies, which do not bear that, by themselves.
func joined(h http.Header) (headers map[string]string, cookies []string) {
	headers = make(map[string]string, len(h))
	for name, values := range clean(h) {
		if name == setCookie {
			cookies = values
			continue
		}
		headers[name] = strings.Join(values, ", ")
	}
	return headers, cookies
}

// single gives headers for a form that has nothing else. Header names do not depend on case, and the load balancer sends
// each entry: several cookies go by names that differ in case.
func single(h http.Header) map[string]string {
	headers, cookies := joined(h)
	for i, c := range cookies {
		headers[cased(setCookie, i)] = c
	}
	return headers
}

// cased gives the i-th spelling of a name: its letters are the bits of i.
func cased(name string, i int) string {
	b := []byte(strings.ToLower(name))
	for at := range b {
		if b[at] < 'a' || b[at] > 'z' {
			continue
		}
		if i&1 == 1 {
			b[at] -= 'a' - 'A'
		}
		i >>= 1
	}
	return string(b)
}
