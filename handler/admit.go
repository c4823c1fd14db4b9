package handler

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/rs/cors"

	"github.com/hydrant-mcp/hydrant/engine"
)

// A request is an HTTP request that was let in.
type request struct {
	h       *Handler
	w       http.ResponseWriter
	http    *http.Request
	runtime Runtime
	accept  acceptable

	name   string // of the server, in the store
	engine engine.Engine

	token     *auth.TokenInfo
	principal string
}

// admit looks at everything that needs neither the body nor the store. The Origin comes first: a page that may not call
// must not learn anything else, not even whether its credentials are good. done says that the request has been answered: it
// was a preflight.
func (h *Handler) admit(q *request) (done bool, f *failure) {
	if f := h.admitHost(q.http); f != nil {
		return false, f
	}
	if f := h.admitOrigin(q.http); f != nil {
		return false, f
	}
	if h.cors != nil {
		h.cors.HandlerFunc(q.w, q.http) // the headers that let a page read the answer, errors included
		if q.http.Method == http.MethodOptions && q.http.Header.Get("Access-Control-Request-Method") != "" {
			return true, nil
		}
	}
	if !slices.Contains(methods, q.http.Method) {
		return false, errMethod(methods...)
	}
	for _, values := range q.http.Header {
		for _, v := range values {
			if len(v) > h.opts.MaxHeader {
				return false, errHeaderTooLarge(h.opts.MaxHeader)
			}
		}
	}
	if f := h.authenticate(q); f != nil {
		return false, f
	}
	q.name, q.engine = h.opts.Name, h.engine
	if h.opts.Tenant != nil {
		name, server, err := h.opts.Tenant(q.http)
		if err != nil {
			return false, errTenant(err)
		}
		if server == nil {
			return false, errNoTenant()
		}
		q.name, q.engine = name, h.newEngine(server)
	}
	q.accept = parseAccept(q.http.Header)
	if q.runtime.Buffered || !flushes(q.w) {
		q.runtime.Buffered = true
	}
	return false, nil
}

// newCORS makes the policy for browsers. A page needs to send MCP's headers, whose names are open (Mcp-Param-*), and to read
// the session id.
func newCORS(origins []string) *cors.Cors {
	if len(origins) == 0 {
		return nil
	}
	return cors.New(cors.Options{
		AllowedOrigins: origins,
		AllowedMethods: methods,
		AllowedHeaders: []string{"*"},
		ExposedHeaders: []string{headerSession, "WWW-Authenticate", "Retry-After"},
		MaxAge:         int((2 * time.Hour).Seconds()), // the most that browsers keep
	})
}

// admitHost refuses names that are none of this server's, on connections to a loopback address: see
// [Options.AllowedHosts].
func (h *Handler) admitHost(r *http.Request) *failure {
	if h.opts.AllowedHosts == nil || !onLoopback(r) {
		return nil
	}
	name := r.Host
	if host, _, err := net.SplitHostPort(r.Host); err == nil {
		name = host
	}
	name = strings.Trim(name, "[]")
	if loopbackName(name) || slices.ContainsFunc(h.opts.AllowedHosts, func(a string) bool { return strings.EqualFold(a, name) }) {
		return nil
	}
	return errHost()
}

func onLoopback(r *http.Request) bool {
	addr, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return false
	}
	host, _, err := net.SplitHostPort(addr.String())
	return err == nil && net.ParseIP(host).IsLoopback()
}

func loopbackName(name string) bool {
	return strings.EqualFold(name, "localhost") || net.ParseIP(name).IsLoopback()
}

var methods = []string{http.MethodGet, http.MethodPost, http.MethodDelete}

// admitOrigin guards against pages that a browser runs for somebody else, DNS rebinding included: a client that is no
// browser sends no Origin.
func (h *Handler) admitOrigin(r *http.Request) *failure {
	for _, origin := range r.Header.Values("Origin") {
		listed := slices.ContainsFunc(h.opts.AllowedOrigins, func(o string) bool { return strings.EqualFold(o, origin) })
		if !listed && !sameLoopback(origin, r.Host) {
			return errOrigin()
		}
	}
	return nil
}

// sameLoopback says whether an Origin is a page that this very server, on this very machine, has served: a local tool
// with a user interface. A page that was rebound to a loopback address has its own name in its Origin.
func sameLoopback(origin, host string) bool {
	u, err := url.Parse(origin)
	if err != nil || u.Host != host || !validOrigin(origin) {
		return false
	}
	return loopbackName(u.Hostname())
}

// body reads the body of a POST, whose declared form is checked first.
func (q *request) body() ([]byte, *failure) {
	limit := q.h.opts.MaxBody
	if encoding := q.http.Header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return nil, errMediaType(clip(encoding))
	}
	if got := q.http.Header.Get("Content-Type"); !isJSON(got) {
		return nil, errMediaType(clip(got))
	}
	if !q.accept.json && !q.accept.stream {
		return nil, errAccept()
	}
	if q.http.ContentLength > limit {
		return nil, errTooLarge(limit)
	}
	body, err := io.ReadAll(http.MaxBytesReader(q.w, q.http.Body, limit))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, errBodyTimeout(readWait)
	}
	if err == nil { // net/http still waits for what is left of a body, and goes on to watch a connection that has sent all
		_ = http.NewResponseController(q.w).SetReadDeadline(time.Time{})
	}
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return nil, errTooLarge(limit)
	}
	if err != nil {
		return nil, errParse(errors.New("it broke off")).because(err)
	}
	return body, nil
}

// readWait is how long a body may take to arrive.
const readWait = time.Minute

// boundBody bounds how long the body may take, also one that net/http still reads after a refusal. Where the reader has no
// deadlines, its platform bounds it.
func (q *request) boundBody() {
	until := time.Now().Add(readWait)
	if end := q.runtime.Deadline; !end.IsZero() && end.Add(-margin).Before(until) {
		until = end.Add(-margin)
	}
	_ = http.NewResponseController(q.w).SetReadDeadline(until)
}

// flushes says whether a response writer, or what it wraps, can send what was written so far.
func flushes(w http.ResponseWriter) bool {
	for {
		switch t := w.(type) {
		case http.Flusher, interface{ FlushError() error }:
			return true
		case interface{ Unwrap() http.ResponseWriter }:
			w = t.Unwrap()
		default:
			return false
		}
	}
}
