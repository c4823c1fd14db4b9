package identity

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/oauthex"
)

// wellKnown is where clients look for the metadata (RFC 9728, section 3).
const wellKnown = "/.well-known/oauth-protected-resource"

// ResourceOptions of [ProtectedResource]. AuthorizationServers has no default.
type ResourceOptions struct {
	// Path is that of the MCP endpoint, as the handler sees it: without the stage of an API. Default: "/mcp".
	Path string
	// BaseURL is what clients have before Path: scheme, host, and whatever a proxy takes off the path on the way
	// here. It is https, or http on a loopback address. Set it wherever it is known; behind a CDN or a proxy of yours
	// there is no other way.
	BaseURL string
	// BaseURLOf finds it out for each request, where BaseURL is empty: [CloudRunBaseURL], or BaseURL of package
	// awsidentity. What it gives must come from the platform. "" says that there is none. Default: the scheme and the
	// host of the connection; headers that proxies set are not believed, because clients can set them too.
	BaseURLOf func(*http.Request) string

	// AuthorizationServers are the issuers whose tokens are taken, one or more.
	AuthorizationServers []string
	// Scopes are those that clients may ask for. Default: not said.
	Scopes []string
	// Name and Documentation are for people: what it is called, and the URL of a page about it. Default: not said.
	Name, Documentation string
}

// A Resource is an OAuth 2.0 protected resource: an MCP endpoint that takes bearer tokens. It tells clients where to
// get them. Make it with [ProtectedResource].
type Resource struct {
	options ResourceOptions
	prefix  string // of BaseURL's path
}

// ProtectedResource describes an MCP endpoint to clients that have no token yet (RFC 9728). Serve the description
// with [Resource.Wrap], in front of all authorization, and give [Resource.MetadataURL] to
// handler.Options.ResourceMetadata. The error says that an option is not usable.
func ProtectedResource(opts ResourceOptions) (*Resource, error) {
	fail := func(format string, args ...any) (*Resource, error) {
		return nil, fmt.Errorf("identity: ProtectedResource: "+format, args...)
	}
	if opts.Path == "" {
		opts.Path = "/mcp"
	}
	opts.Path = strings.TrimSuffix(opts.Path, "/") // "/" is the root itself
	if u, err := url.Parse(opts.Path); opts.Path != "" && (err != nil || !strings.HasPrefix(opts.Path, "/") ||
		u.EscapedPath() != opts.Path || u.RawQuery != "") {
		return fail("Path: %q is no path", opts.Path)
	}
	r := &Resource{options: opts}
	if opts.BaseURL != "" {
		u, err := url.Parse(opts.BaseURL)
		if err == nil {
			err = checkURL(opts.BaseURL)
		}
		if err == nil && (u.RawQuery != "" || u.ForceQuery) {
			err = errors.New("it has a query")
		}
		if err != nil {
			return fail("BaseURL: %w", err)
		}
		r.options.BaseURL = strings.TrimSuffix(opts.BaseURL, "/")
		r.prefix = strings.TrimSuffix(u.EscapedPath(), "/")
	}
	if r.options.BaseURLOf == nil {
		r.options.BaseURLOf = connectionBaseURL
	}
	if len(opts.AuthorizationServers) == 0 {
		return fail("there are no AuthorizationServers")
	}
	for _, server := range opts.AuthorizationServers {
		if err := checkURL(server); err != nil {
			return fail("AuthorizationServers: %w", err)
		}
	}
	return r, nil
}

// URL is the resource identifier: the endpoint's URL as the client of a request has it (RFC 8707, RFC 9728 section
// 1.2). "" says that it cannot be told.
func (m *Resource) URL(r *http.Request) string {
	base := m.base(r)
	if base == "" {
		return ""
	}
	return base + m.options.Path
}

// MetadataURL is where the client of a request finds the metadata, for the resource_metadata parameter of
// WWW-Authenticate (RFC 9728, section 5.1). "" says that it cannot be told.
//
// What stands before Path in the base URL stays in front: that is where requests reach this server. A stage of an API
// comes before "/.well-known", not after it.
func (m *Resource) MetadataURL(r *http.Request) string {
	base := m.base(r)
	if base == "" {
		return ""
	}
	return base + wellKnown + m.options.Path
}

// Wrap serves the metadata, to anybody, at /.well-known/oauth-protected-resource and at the same with the endpoint's
// path behind it, and leaves all other requests to next. Both name the same resource: there is one endpoint.
func (m *Resource) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if m.matches(r.URL.EscapedPath()) {
			m.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (m *Resource) matches(path string) bool {
	rest, ok := strings.CutPrefix(path, wellKnown)
	if !ok {
		return false
	}
	rest = strings.TrimSuffix(rest, "/")
	// Where the base URL has a path, clients that follow RFC 9728 section 3.1 by themselves put all of it behind.
	return slices.Contains([]string{"", m.options.Path, m.prefix + m.options.Path}, rest)
}

// ServeHTTP serves the metadata at whatever path it is mounted. Pages of any origin may read it: it is public, and a
// client in a browser needs it before it can have any credentials.
//
// It is not the SDK's auth.ProtectedResourceMetadataHandler, which has one resource for all requests, and which
// refuses the MCP-Protocol-Version header that MCP clients in browsers send.
func (m *Resource) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*")
	switch r.Method {
	case http.MethodGet, http.MethodHead:
	case http.MethodOptions:
		h.Set("Access-Control-Allow-Methods", "GET, HEAD")
		h.Set("Access-Control-Allow-Headers", "*")
		h.Set("Access-Control-Max-Age", "7200") // the most that browsers keep
		w.WriteHeader(http.StatusNoContent)
		return
	default:
		h.Set("Allow", "GET, HEAD, OPTIONS")
		http.Error(w, "the metadata can only be read", http.StatusMethodNotAllowed)
		return
	}
	resource := m.URL(r)
	if resource == "" {
		http.Error(w, "the URL of this server is not known", http.StatusNotFound)
		return
	}
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(&oauthex.ProtectedResourceMetadata{ // strings only
		Resource:               resource,
		AuthorizationServers:   m.options.AuthorizationServers,
		ScopesSupported:        m.options.Scopes,
		BearerMethodsSupported: []string{"header"},
		ResourceName:           m.options.Name,
		ResourceDocumentation:  m.options.Documentation,
	})
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store") // what depends on the request's host must not be kept for others
	if m.options.BaseURL != "" {
		h.Set("Cache-Control", "public, max-age=300")
	}
	_, _ = w.Write(body.Bytes())
}

// base is the configured base URL, or the one that the request shows, if it is one.
func (m *Resource) base(r *http.Request) string {
	if m.options.BaseURL != "" {
		return m.options.BaseURL
	}
	base := strings.TrimSuffix(m.options.BaseURLOf(r), "/")
	if !plainURL.MatchString(base) {
		return ""
	}
	return base
}

// plainURL is a scheme, a host and perhaps a path, of characters that mean nothing special in a header, in JSON or in
// HTML.
var plainURL = regexp.MustCompile(`^https?://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?(/[A-Za-z0-9._~%/-]*)?$`)

// connectionBaseURL is how the client reached this process, if there is nothing in between.
func connectionBaseURL(r *http.Request) string {
	if r.TLS != nil {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// CloudRunBaseURL is for [ResourceOptions].BaseURLOf on Cloud Run, and only there. Google's front end sets
// X-Forwarded-Proto, whatever the client sent, and hands over only what is for a host of the service. Behind a proxy
// that reaches the container past that front end, both are the client's.
func CloudRunBaseURL(r *http.Request) string {
	if r.Header.Get("X-Forwarded-Proto") == "http" {
		return "http://" + r.Host
	}
	return "https://" + r.Host
}
