package handler

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// authenticate finds out who is asking.
func (h *Handler) authenticate(q *request) *failure {
	if values := q.http.Header.Values("Authorization"); len(values) > 1 { // two readers could pick different ones
		return errInvalid("the Authorization header comes %d times", len(values))
	}
	if f := h.identify(q); f != nil {
		return f
	}
	if q.token != nil && !q.token.Expiration.IsZero() && q.token.Expiration.Before(time.Now()) {
		return h.errToken(q.http, "invalid_token")
	}
	q.principal = principal(q.token)
	return nil
}

// identify fills in the token, nil for nobody.
func (h *Handler) identify(q *request) *failure {
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
		for _, scope := range h.opts.Scopes {
			if token == nil || !slices.Contains(token.Scopes, scope) {
				return h.errScope(q.http, h.opts.Scopes)
			}
		}
		q.token = token
		return nil
	}
	q.token = auth.TokenInfoFromContext(q.http.Context())
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
	case refused.status == http.StatusBadRequest: // auth.ErrOAuth
		return errInvalid("the credentials are not what OAuth allows").
			with("WWW-Authenticate", h.challenge(q.http, "invalid_request", nil))
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
		if q.token == nil { // not a token that lacks something
			return errUnauthorized().with("WWW-Authenticate", q.h.challenge(q.http, "", needed))
		}
		if !slices.Contains(q.token.Scopes, scope) {
			return q.h.errScope(q.http, needed)
		}
	}
	return nil
}

func errUnauthorized() *failure {
	return refuse(http.StatusUnauthorized, jsonrpc.CodeInvalidRequest, slog.LevelInfo, "a valid bearer token is needed")
}

func (h *Handler) errToken(r *http.Request, problem string) *failure {
	return errUnauthorized().with("WWW-Authenticate", h.challenge(r, problem, h.opts.Scopes))
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
