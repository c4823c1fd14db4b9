package identity_test

import (
	"crypto/tls"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/identity"
)

var teapot = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })

func newResource(t *testing.T, o identity.ResourceOptions) *identity.Resource {
	t.Helper()
	if o.AuthorizationServers == nil {
		o.AuthorizationServers = []string{"https://issuer.example"}
	}
	m, err := identity.ProtectedResource(o)
	require.NoError(t, err)
	return m
}

func ask(h http.Handler, method, url string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, url, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestTheMetadataSaysWhereTokensComeFrom(t *testing.T) {
	m := newResource(t, identity.ResourceOptions{
		BaseURL: "https://mcp.example/", AuthorizationServers: []string{"https://a.example", "https://b.example/t"},
		Scopes: []string{"read", "write"}, Name: "Notes & more", Documentation: "https://docs.example",
	})
	w := ask(m.Wrap(teapot), http.MethodGet, "http://10.0.0.1/.well-known/oauth-protected-resource/mcp")
	require.Equal(t, http.StatusOK, w.Code)
	assert.JSONEq(t, `{
		"resource": "https://mcp.example/mcp",
		"authorization_servers": ["https://a.example", "https://b.example/t"],
		"scopes_supported": ["read", "write"],
		"bearer_methods_supported": ["header"],
		"resource_name": "Notes & more",
		"resource_documentation": "https://docs.example"
	}`, w.Body.String())
	assert.Equal(t, "application/json", w.Header().Get("Content-Type"))
	assert.Equal(t, "*", w.Header().Get("Access-Control-Allow-Origin"))
	assert.Equal(t, "public, max-age=300", w.Header().Get("Cache-Control"))
	assert.Empty(t, ask(m.Wrap(teapot), http.MethodHead, "/.well-known/oauth-protected-resource").Header().Get("Location"))
}

func TestOnlyTheMetadataIsServed(t *testing.T) {
	h := newResource(t, identity.ResourceOptions{BaseURL: "https://mcp.example/v1"}).Wrap(teapot)
	for path, want := range map[string]int{
		"/.well-known/oauth-protected-resource":         200,
		"/.well-known/oauth-protected-resource/":        200,
		"/.well-known/oauth-protected-resource/mcp":     200,
		"/.well-known/oauth-protected-resource/mcp/":    200,
		"/.well-known/oauth-protected-resource/v1/mcp":  200, // RFC 9728, section 3.1, to the letter
		"/.well-known/oauth-protected-resource/other":   418,
		"/.well-known/oauth-protected-resourcemcp":      418,
		"/.well-known/oauth-protected-resource/mcp/mcp": 418,
		"/.well-known/oauth-protected-resource/%6dcp":   418,
		"/x/.well-known/oauth-protected-resource/mcp":   418,
		"/mcp": 418,
		"/.well-known/oauth-authorization-server":          418,
		"/.well-known/oauth-protected-resource/mcp?x=y":    200,
		"/.well-known//oauth-protected-resource":           418,
		"/.well-known/oauth-protected-resource/../../mcp/": 418,
	} {
		assert.Equal(t, want, ask(h, http.MethodGet, "http://h.example"+path).Code, path)
	}
	w := ask(h, http.MethodPost, "/.well-known/oauth-protected-resource")
	assert.Equal(t, http.StatusMethodNotAllowed, w.Code)
	assert.Equal(t, "GET, HEAD, OPTIONS", w.Header().Get("Allow"))
}

// A client in a browser sends MCP's header with everything.
func TestPagesMayReadTheMetadata(t *testing.T) {
	h := newResource(t, identity.ResourceOptions{}).Wrap(teapot)
	w := ask(h, http.MethodOptions, "/.well-known/oauth-protected-resource/mcp", "Origin", "https://app.example",
		"Access-Control-Request-Method", "GET", "Access-Control-Request-Headers", "mcp-protocol-version")
	assert.Equal(t, http.StatusNoContent, w.Code)
	assert.Equal(t, "*", w.Header().Get("Access-Control-Allow-Origin"))
	assert.Equal(t, "*", w.Header().Get("Access-Control-Allow-Headers"))
	assert.Contains(t, w.Header().Get("Access-Control-Allow-Methods"), "GET")
}

func TestTheResourceIsTheURLThatTheClientUsed(t *testing.T) {
	nothing := func(*http.Request) string { return "" }
	broken := func(*http.Request) string { return "ftp://x" }
	prod := func(*http.Request) string { return "https://x.example/prod" }
	for name, c := range map[string]struct {
		options   identity.ResourceOptions
		host      string
		tls       bool
		forwarded string
		resource  string
		metadata  string
	}{
		"a connection": {
			host: "127.0.0.1:8080", resource: "http://127.0.0.1:8080/mcp",
			metadata: "http://127.0.0.1:8080/.well-known/oauth-protected-resource/mcp",
		},
		"TLS": {
			host: "h.example", tls: true, resource: "https://h.example/mcp",
			metadata: "https://h.example/.well-known/oauth-protected-resource/mcp",
		},
		"IPv6": {
			host: "[::1]:8080", resource: "http://[::1]:8080/mcp",
			metadata: "http://[::1]:8080/.well-known/oauth-protected-resource/mcp",
		},
		"headers that anybody can send": {
			host: "h.example", forwarded: "https", resource: "http://h.example/mcp",
			metadata: "http://h.example/.well-known/oauth-protected-resource/mcp",
		},
		"Cloud Run": {
			options: identity.ResourceOptions{BaseURLOf: identity.CloudRunBaseURL},
			host:    "svc-abc-uc.a.run.app", forwarded: "https", resource: "https://svc-abc-uc.a.run.app/mcp",
			metadata: "https://svc-abc-uc.a.run.app/.well-known/oauth-protected-resource/mcp",
		},
		"Cloud Run without TLS": {
			options: identity.ResourceOptions{BaseURLOf: identity.CloudRunBaseURL},
			host:    "svc.example", forwarded: "http", resource: "http://svc.example/mcp",
			metadata: "http://svc.example/.well-known/oauth-protected-resource/mcp",
		},
		"Cloud Run and a header that makes no sense": {
			options: identity.ResourceOptions{BaseURLOf: identity.CloudRunBaseURL},
			host:    "svc.example", forwarded: "javascript", resource: "https://svc.example/mcp",
			metadata: "https://svc.example/.well-known/oauth-protected-resource/mcp",
		},
		"a stage": {
			options: identity.ResourceOptions{BaseURLOf: prod},
			host:    "x.example", resource: "https://x.example/prod/mcp",
			metadata: "https://x.example/prod/.well-known/oauth-protected-resource/mcp",
		},
		"configured": {
			options: identity.ResourceOptions{BaseURL: "https://mcp.example", BaseURLOf: prod},
			host:    "evil.example", forwarded: "http", resource: "https://mcp.example/mcp",
			metadata: "https://mcp.example/.well-known/oauth-protected-resource/mcp",
		},
		"at the root": {
			options: identity.ResourceOptions{BaseURL: "https://mcp.example", Path: "/"},
			host:    "h.example", resource: "https://mcp.example",
			metadata: "https://mcp.example/.well-known/oauth-protected-resource",
		},
		"a host that is none":   {host: `evil.example"><script>`},
		"a host with a user":    {host: "u@evil.example"},
		"a host with a query":   {host: "evil.example?x"},
		"no host":               {host: ""},
		"nothing is known":      {options: identity.ResourceOptions{BaseURLOf: nothing}, host: "h.example"},
		"a platform that fails": {options: identity.ResourceOptions{BaseURLOf: broken}, host: "h.example"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newResource(t, c.options)
			r := httptest.NewRequest(http.MethodGet, "/.well-known/oauth-protected-resource", nil)
			r.Host = c.host
			if c.tls {
				r.TLS = &tls.ConnectionState{}
			}
			r.Header.Set("X-Forwarded-Host", "evil.example")
			r.Header.Set("X-Forwarded-Prefix", "/evil")
			if c.forwarded != "" {
				r.Header.Set("X-Forwarded-Proto", c.forwarded)
			}
			assert.Equal(t, c.resource, m.URL(r))
			assert.Equal(t, c.metadata, m.MetadataURL(r))
			w := httptest.NewRecorder()
			m.Wrap(teapot).ServeHTTP(w, r)
			if c.resource == "" {
				assert.Equal(t, http.StatusNotFound, w.Code)
				return
			}
			var doc oauthex.ProtectedResourceMetadata
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &doc))
			assert.Equal(t, c.resource, doc.Resource)
			if c.options.BaseURL == "" {
				assert.Equal(t, "no-store", w.Header().Get("Cache-Control"))
			}
		})
	}
}

func TestResourceOptionsThatCannotBeMeant(t *testing.T) {
	good := identity.ResourceOptions{AuthorizationServers: []string{"https://issuer.example"}}
	for want, change := range map[string]func(*identity.ResourceOptions){
		"there are no AuthorizationServers": func(o *identity.ResourceOptions) { o.AuthorizationServers = nil },
		"AuthorizationServers: ":            func(o *identity.ResourceOptions) { o.AuthorizationServers = []string{"http://x"} },
		"BaseURL: ":                         func(o *identity.ResourceOptions) { o.BaseURL = "http://mcp.example" },
		"it has a query":                    func(o *identity.ResourceOptions) { o.BaseURL = "https://mcp.example?x" },
		"no plain absolute URL":             func(o *identity.ResourceOptions) { o.BaseURL = "mcp.example" },
		"Path: ":                            func(o *identity.ResourceOptions) { o.Path = "mcp" },
		`"/mcp?x" is no path`:               func(o *identity.ResourceOptions) { o.Path = "/mcp?x" },
	} {
		o := good
		change(&o)
		_, err := identity.ProtectedResource(o)
		assert.ErrorContains(t, err, want)
	}
}
