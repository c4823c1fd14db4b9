package handler

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

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
// must not learn anything else, not even whether its credentials are good.
func (h *Handler) admit(q *request) *failure {
	if f := h.admitOrigin(q.http); f != nil {
		return f
	}
	if !slices.Contains(methods, q.http.Method) {
		return errMethod(methods...)
	}
	if f := h.authenticate(q); f != nil {
		return f
	}
	q.name, q.engine = h.opts.Name, h.engine
	if h.opts.Tenant != nil {
		name, server, err := h.opts.Tenant(q.http)
		if err != nil || server == nil {
			return errTenant(err)
		}
		q.name, q.engine = name, h.newEngine(server)
	}
	q.accept = parseAccept(q.http.Header)
	if q.runtime.Buffered || !flushes(q.w) {
		q.runtime.Buffered = true
	}
	return nil
}

var methods = []string{http.MethodGet, http.MethodPost, http.MethodDelete}

// admitOrigin guards against pages that a browser runs for somebody else, DNS rebinding included: a client that is no
// browser sends no Origin.
func (h *Handler) admitOrigin(r *http.Request) *failure {
	for _, origin := range r.Header.Values("Origin") {
		if !slices.Contains(h.opts.AllowedOrigins, origin) && !sameLoopback(origin, r.Host) {
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
	name := u.Hostname()
	ip := net.ParseIP(name)
	return name == "localhost" || ip != nil && ip.IsLoopback()
}

// authenticate finds out who is asking.
func (h *Handler) authenticate(q *request) *failure {
	if h.opts.Verifier != nil {
		if f := h.verify(q); f != nil {
			return f
		}
	}
	q.token = auth.TokenInfoFromContext(q.http.Context())
	q.principal = principal(q.token)
	return nil
}

// principal is who owns a session: issuer and subject, not the token's bytes, because tokens are refreshed.
func principal(token *auth.TokenInfo) string {
	if token == nil {
		return ""
	}
	issuer, _ := token.Extra["iss"].(string)
	return strconv.Quote(issuer) + " " + strconv.Quote(token.UserID)
}

// verify runs the SDK's own check of the bearer token, and turns its refusals, which are plain text, into JSON-RPC errors
// with a complete challenge (RFC 6750, section 3).
func (h *Handler) verify(q *request) *failure {
	var passed *http.Request
	var refused refusal
	auth.RequireBearerToken(h.opts.Verifier, &auth.RequireBearerTokenOptions{Scopes: h.opts.Scopes})(
		http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { passed = r }),
	).ServeHTTP(&refused, q.http)
	if passed != nil {
		q.http = passed
		return nil
	}
	switch refused.status {
	case http.StatusUnauthorized:
		f := refuse(refused.status, jsonrpc.CodeInvalidRequest, slog.LevelInfo, "a valid bearer token is needed")
		if q.http.Header.Get("Authorization") == "" {
			return f.with("WWW-Authenticate", h.challenge(""))
		}
		return f.with("WWW-Authenticate", h.challenge("invalid_token"))
	case http.StatusForbidden:
		return refuse(refused.status, jsonrpc.CodeInvalidRequest, slog.LevelInfo,
			"the token lacks a scope; needed: %s", strings.Join(h.opts.Scopes, " ")).
			with("WWW-Authenticate", h.challenge("insufficient_scope"))
	default:
		return refuse(http.StatusInternalServerError, jsonrpc.CodeInternalError, slog.LevelError,
			"the token could not be checked").because(errors.New("handler: Options.Verifier failed"))
	}
}

func (h *Handler) challenge(problem string) string {
	var params []string
	if problem != "" {
		params = append(params, `error="`+problem+`"`)
	}
	if len(h.opts.Scopes) > 0 {
		params = append(params, "scope="+strconv.Quote(strings.Join(h.opts.Scopes, " ")))
	}
	if h.opts.ResourceMetadataURL != "" {
		params = append(params, "resource_metadata="+strconv.Quote(h.opts.ResourceMetadataURL))
	}
	return strings.TrimSpace("Bearer " + strings.Join(params, ", "))
}

// refusal is a response of which only the status matters.
type refusal struct {
	header http.Header
	status int
}

func (r *refusal) Header() http.Header {
	if r.header == nil {
		r.header = http.Header{}
	}
	return r.header
}

func (r *refusal) Write(b []byte) (int, error) { return len(b), nil }

func (r *refusal) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
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
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return nil, errTooLarge(limit)
	}
	if err != nil {
		return nil, errParse(errors.New("it broke off")).because(err)
	}
	return body, nil
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
