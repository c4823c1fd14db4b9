package handler

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
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
	if f := h.authenticate(q); f != nil {
		return false, f
	}
	q.name, q.engine = h.opts.Name, h.engine
	if h.opts.Tenant != nil {
		name, server, err := h.opts.Tenant(q.http)
		if err != nil || server == nil {
			return false, errTenant(err)
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
	return loopbackName(u.Hostname())
}

// authenticate finds out who is asking.
func (h *Handler) authenticate(q *request) *failure {
	switch {
	case h.opts.Verifier != nil:
		if h.opts.AllowAnonymous && len(q.http.Header.Values("Authorization")) == 0 {
			return nil
		}
		if f := h.verify(q); f != nil {
			return f
		}
	case h.opts.Identify != nil:
		token, err := guarded(func() (*auth.TokenInfo, error) { return h.opts.Identify(q.http) })
		if errors.Is(err, auth.ErrInvalidToken) {
			return h.errToken(q.http, "invalid_token")
		}
		if err != nil {
			return errVerifier(err)
		}
		q.token, q.principal = token, principal(token)
		return nil
	}
	q.token = auth.TokenInfoFromContext(q.http.Context())
	q.principal = principal(q.token)
	return nil
}

// guarded turns a panic of the user's code into an error: a verifier that fails has not let anybody in.
func guarded(f func() (*auth.TokenInfo, error)) (token *auth.TokenInfo, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errVerifierPanic
		}
	}()
	return f()
}

var errVerifierPanic = errors.New("handler: the function that identifies clients panicked")

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
	var failed error
	verifier := func(ctx context.Context, token string, r *http.Request) (info *auth.TokenInfo, err error) {
		info, err = guarded(func() (*auth.TokenInfo, error) { return h.opts.Verifier(ctx, token, r) })
		failed = err
		return info, err
	}
	auth.RequireBearerToken(verifier, &auth.RequireBearerTokenOptions{Scopes: h.opts.Scopes})(
		http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { passed = r }),
	).ServeHTTP(&refused, q.http)
	switch {
	case passed != nil:
		q.http = passed
		return nil
	case refused.status == http.StatusForbidden:
		return h.errScope(q.http, h.opts.Scopes)
	case refused.status == http.StatusUnauthorized && q.http.Header.Get("Authorization") == "":
		return h.errToken(q.http, "")
	case refused.status == http.StatusUnauthorized:
		return h.errToken(q.http, "invalid_token")
	}
	return errVerifier(failed)
}

// admitTool checks the scopes that a tool needs.
func (q *request) admitTool(method, name string) *failure {
	if q.h.opts.ToolScopes == nil || method != "tools/call" {
		return nil
	}
	needed := q.h.opts.ToolScopes(name)
	for _, scope := range needed {
		if q.token == nil || !slices.Contains(q.token.Scopes, scope) {
			return q.h.errScope(q.http, needed)
		}
	}
	return nil
}

func (h *Handler) errToken(r *http.Request, problem string) *failure {
	return refuse(http.StatusUnauthorized, jsonrpc.CodeInvalidRequest, slog.LevelInfo, "a valid bearer token is needed").
		with("WWW-Authenticate", h.challenge(r, problem, h.opts.Scopes))
}

func (h *Handler) errScope(r *http.Request, needed []string) *failure {
	return refuse(http.StatusForbidden, jsonrpc.CodeInvalidRequest, slog.LevelInfo,
		"the token lacks a scope; needed: %s", strings.Join(needed, " ")).
		with("WWW-Authenticate", h.challenge(r, "insufficient_scope", needed))
}

func (h *Handler) challenge(r *http.Request, problem string, scopes []string) string {
	var params []string
	if problem != "" {
		params = append(params, `error="`+problem+`"`)
	}
	if len(scopes) > 0 {
		params = append(params, "scope="+strconv.Quote(strings.Join(scopes, " ")))
	}
	metadata := h.opts.ResourceMetadataURL
	if h.opts.ResourceMetadata != nil {
		metadata = h.opts.ResourceMetadata(r)
	}
	if metadata != "" {
		params = append(params, "resource_metadata="+strconv.Quote(metadata))
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
