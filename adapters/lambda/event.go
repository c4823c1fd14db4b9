package lambda

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/hydrant-mcp/hydrant/handler"
)

// A kind is what an event comes from.
type kind int

const (
	functionURL kind = iota + 1
	rest             // API Gateway REST API
	httpAPI          // API Gateway HTTP API, payload format 2.0
	httpAPI1         // API Gateway HTTP API, payload format 1.0, which looks like a REST API's
	alb              // Application Load Balancer
)

func (k kind) canStream() bool { return k == functionURL || k == rest }

// An event is any HTTP event. The kinds share the names of what they share, so one type decodes them all.
type event struct {
	kind   kind
	header http.Header

	Version string `json:"version"`

	// Formats 1.0 and the load balancer's.
	HTTPMethod                      string              `json:"httpMethod"`
	Path                            string              `json:"path"`
	MultiValueHeaders               map[string][]string `json:"multiValueHeaders"`
	QueryStringParameters           map[string]string   `json:"queryStringParameters"`
	MultiValueQueryStringParameters map[string][]string `json:"multiValueQueryStringParameters"`

	// Format 2.0.
	RawPath        string   `json:"rawPath"`
	RawQueryString string   `json:"rawQueryString"`
	Cookies        []string `json:"cookies"`

	Headers         map[string]string `json:"headers"`
	Body            string            `json:"body"`
	IsBase64Encoded bool              `json:"isBase64Encoded"`
	RequestContext  json.RawMessage   `json:"requestContext"`

	about struct { // the part of RequestContext that all kinds of events need
		APIID      string `json:"apiId"`
		DomainName string `json:"domainName"`
		Stage      string `json:"stage"`
		Path       string `json:"path"`
		Identity   struct {
			SourceIP string `json:"sourceIp"`
		} `json:"identity"`
		RequestTimeEpoch int64     `json:"requestTimeEpoch"` // milliseconds
		TimeEpoch        int64     `json:"timeEpoch"`
		ConnectionID     string    `json:"connectionId"`
		ELB              *struct{} `json:"elb"`
		HTTP             *struct {
			Method   string `json:"method"`
			Protocol string `json:"protocol"`
			SourceIP string `json:"sourceIp"`
		} `json:"http"`
	}
}

var errNotHTTP = errors.New("lambda: this is not an HTTP event: it is none of API Gateway's (REST, HTTP), of a Function " +
	"URL or of an Application Load Balancer")

func decodeEvent(payload []byte) (*event, error) {
	e := &event{}
	if err := json.Unmarshal(payload, e); err != nil {
		return nil, fmt.Errorf("%w: %w", errNotHTTP, err)
	}
	if len(e.RequestContext) > 0 {
		if err := json.Unmarshal(e.RequestContext, &e.about); err != nil {
			return nil, fmt.Errorf("%w: %w", errNotHTTP, err)
		}
	}
	switch c := &e.about; {
	case c.ELB != nil:
		e.kind = alb
	case c.HTTP != nil && e.isFunctionURL():
		e.kind = functionURL
	case c.HTTP != nil:
		e.kind = httpAPI
	case c.ConnectionID != "": // a WebSocket's, which has a method too
		return nil, errNotHTTP
	case e.Version == "1.0":
		e.kind = httpAPI1
	default:
		e.kind = rest
	}
	if len(e.RequestContext) == 0 || e.method() == "" {
		return nil, errNotHTTP
	}
	e.header = e.joinHeaders()
	return e, nil
}

// isFunctionURL tells a Function URL from an HTTP API, whose events are alike, by its domain, <apiId>.lambda-url.<region>….
// It has no other.
func (e *event) isFunctionURL() bool {
	id, rest, _ := strings.Cut(e.about.DomainName, ".")
	return strings.HasPrefix(rest, "lambda-url.") && id == e.about.APIID
}

func (e *event) method() string {
	if e.about.HTTP != nil {
		return e.about.HTTP.Method
	}
	return e.HTTPMethod
}

func (e *event) receivedAt() time.Time {
	return time.UnixMilli(max(e.about.RequestTimeEpoch, e.about.TimeEpoch))
}

// joinHeaders joins what the event has of headers: in one map or in two, names in any case.
func (e *event) joinHeaders() http.Header {
	h := make(http.Header, len(e.Headers)+len(e.MultiValueHeaders)+1)
	for _, name := range slices.Sorted(maps.Keys(e.MultiValueHeaders)) {
		for _, v := range e.MultiValueHeaders[name] {
			h.Add(name, v)
		}
	}
	multi := maps.Clone(h)
	for _, name := range slices.Sorted(maps.Keys(e.Headers)) {
		if _, ok := multi[textproto.CanonicalMIMEHeaderKey(name)]; !ok { // else it is the last of the values above
			h.Add(name, e.Headers[name])
		}
	}
	if len(e.Cookies) > 0 {
		h.Set("Cookie", strings.Join(e.Cookies, "; "))
	}
	return h
}

// query gives the query string. The load balancer leaves names and values as the client encoded them; a REST API decodes
// them.
func (e *event) query() string {
	if e.RawQueryString != "" {
		return e.RawQueryString
	}
	values := make(url.Values, len(e.MultiValueQueryStringParameters))
	maps.Copy(values, e.MultiValueQueryStringParameters)
	for name, v := range e.QueryStringParameters {
		if _, ok := values[name]; !ok {
			values[name] = []string{v}
		}
	}
	if e.kind != alb {
		return values.Encode()
	}
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		for _, v := range values[name] {
			pairs = append(pairs, name+"="+v)
		}
	}
	return strings.Join(pairs, "&")
}

// A location is where a request goes.
type location struct {
	prefix string // what the front door has before the path: a stage, a base path
	path   string // as the handler expects it
	raw    string // as it came
}

// locate takes off the path what the handler does not know of. Format 2.0 has the stage in the path. Format 1.0 has it
// in the request context's path only, and a custom domain's base path in both.
func (e *event) locate(basePath string) location {
	l := location{path: e.Path, raw: e.Path}
	if e.kind == functionURL || e.kind == httpAPI {
		l.path, l.raw = e.RawPath, e.RawPath
	}
	stage := "/" + e.about.Stage
	hasStage := e.about.Stage != "" && e.about.Stage != "$default" && e.kind != functionURL
	if full := e.about.Path; hasStage && full == stage+l.path {
		l.prefix = stage
	} else if hasStage {
		l.strip(stage)
	}
	l.strip(basePath)
	if !strings.HasPrefix(l.path, "/") {
		l.path = "/" + l.path
	}
	return l
}

func (l *location) strip(prefix string) {
	rest, ok := strings.CutPrefix(l.path, prefix)
	if ok && prefix != "" && (rest == "" || rest[0] == '/') {
		l.prefix, l.path = l.prefix+prefix, rest
	}
}

// body decodes the body. Its error says that it is not base64 though the event says so.
func (e *event) body() ([]byte, error) {
	if e.IsBase64Encoded {
		return base64.StdEncoding.DecodeString(e.Body)
	}
	return []byte(e.Body), nil
}

// sourceIP is the client's address, as the front door saw it.
func (e *event) sourceIP() string {
	switch {
	case e.about.HTTP != nil:
		return e.about.HTTP.SourceIP
	case e.kind != alb:
		return e.about.Identity.SourceIP
	}
	// The load balancer appends; what comes before is what the client says.
	forwarded := e.header.Values("X-Forwarded-For")
	if len(forwarded) == 0 {
		return ""
	}
	last := forwarded[len(forwarded)-1]
	last = strings.TrimSpace(last[strings.LastIndexByte(last, ',')+1:])
	if host, _, err := net.SplitHostPort(last); err == nil { // it can be told to append the port too
		return host
	}
	return last
}

// baseURL is where clients find what the handler has at "/".
func (e *event) baseURL(l location) string {
	host := cmp.Or(e.about.DomainName, e.header.Get("Host"))
	if host == "" {
		return ""
	}
	return cmp.Or(e.header.Get("X-Forwarded-Proto"), "https") + "://" + host + l.prefix
}

// context is the request's: it says in its values what the platform knows and can do.
func (e *event) context(ctx context.Context, l location, r handler.Runtime) (context.Context, context.CancelFunc) {
	ctx = handler.WithRuntime(ctx, r)
	ctx = context.WithValue(ctx, eventKey{}, &EventContext{
		kind:    e.kind,
		raw:     e.RequestContext,
		source:  e.sourceIP(),
		baseURL: e.baseURL(l),
	})
	if r.Deadline.IsZero() {
		return context.WithCancel(ctx)
	}
	return context.WithDeadlineCause(ctx, r.Deadline.Add(-margin), errDeadline)
}

// request makes the HTTP request that the client sent.
func (e *event) request(ctx context.Context, l location, body []byte) *http.Request {
	r := &http.Request{
		Method:        e.method(),
		URL:           &url.URL{Path: l.path, RawQuery: e.query()},
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        e.header.Clone(),
		Body:          http.NoBody,
		ContentLength: int64(len(body)),
		RequestURI:    cmp.Or(l.raw, "/"),
	}
	if p, err := url.PathUnescape(l.path); err == nil {
		r.URL.Path, r.URL.RawPath = p, l.path
	}
	if r.URL.RawQuery != "" {
		r.RequestURI += "?" + r.URL.RawQuery
	}
	if e.about.HTTP != nil {
		if major, minor, ok := http.ParseHTTPVersion(e.about.HTTP.Protocol); ok {
			r.Proto, r.ProtoMajor, r.ProtoMinor = e.about.HTTP.Protocol, major, minor
		}
	}
	if len(body) > 0 {
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	if ip := e.sourceIP(); ip != "" {
		r.RemoteAddr = net.JoinHostPort(ip, "0") // as net/http has it; the port is not known
	}
	// As net/http does: the host has a place of its own.
	r.Host = cmp.Or(r.Header.Get("Host"), e.about.DomainName)
	r.Header.Del("Host")
	r.Header.Del("Transfer-Encoding") // said how the body came to the front door
	if r.Header.Get("Content-Length") != "" {
		r.Header.Set("Content-Length", fmt.Sprint(len(body)))
	}
	// For handlers that derive their own URL from the request, as they do behind any proxy.
	r.Header.Del("X-Forwarded-Prefix") // a client's own would send others to addresses of its choice
	if l.prefix != "" {
		r.Header.Set("X-Forwarded-Prefix", l.prefix)
	}
	if e.kind != alb && r.Header.Get("X-Forwarded-Proto") == "" {
		r.Header.Set("X-Forwarded-Proto", "https")
	}
	return r.WithContext(ctx)
}
