package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// issuer publishes a key on loopback, and gives a function that makes tokens.
func issuer(t *testing.T) (url string, token func(subject, scope string, life time.Duration) string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/.well-known/openid-configuration":
			_ = json.NewEncoder(w).Encode(map[string]string{"issuer": url, "jwks_uri": url + "/keys"})
		case "/keys":
			_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: private.Public(), KeyID: "1"}}})
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(srv.Close)
	url = srv.URL
	signer, err := jose.NewSigner(jose.SigningKey{
		Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: private, KeyID: "1"},
	}, nil)
	require.NoError(t, err)
	return url, func(subject, scope string, life time.Duration) string {
		payload, err := json.Marshal(map[string]any{
			"iss": url, "aud": "https://mcp.example/mcp", "sub": subject, "scope": scope,
			"exp": time.Now().Add(life).Unix(),
		})
		require.NoError(t, err)
		jws, err := signer.Sign(payload)
		require.NoError(t, err)
		text, err := jws.CompactSerialize()
		require.NoError(t, err)
		return text
	}
}

// withToken sends a bearer token along.
type withToken string

func (token withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(token))
	return http.DefaultTransport.RoundTrip(r)
}

func TestTokensAreRequiredWhereAnIssuerIsSet(t *testing.T) {
	issuerURL, token := issuer(t)
	url, stop := start(t, map[string]string{
		"PORT": "0", "HYDRANT_JWT_ISSUER": issuerURL, "HYDRANT_JWT_AUDIENCE": "https://mcp.example/mcp",
		"HYDRANT_SCOPES": "tally=write",
	})
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
		cs, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{
			Endpoint: url, DisableStandaloneSSE: true, MaxRetries: -1,
			HTTPClient: &http.Client{Transport: withToken(token("alice", "read", time.Hour))},
		}, &mcp.ClientSessionOptions{ProtocolVersion: version})
		require.NoError(t, err, version)
		r, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "whoami"})
		require.NoError(t, err, version)
		assert.JSONEq(t, `{"issuer":"`+issuerURL+`","subject":"alice","scopes":["read"]}`,
			r.Content[0].(*mcp.TextContent).Text, version)
		_, err = cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "tally", Arguments: map[string]any{"key": "k"}})
		assert.Error(t, err, "%s: without its scope", version)
		_ = cs.Close()
	}

	for what, bad := range map[string]string{"none": "", "expired": "Bearer " + token("alice", "", -time.Hour)} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url,
			strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/json")
		if bad != "" {
			req.Header.Set("Authorization", bad)
		}
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		assert.Equal(t, http.StatusUnauthorized, res.StatusCode, what)
		all, err := oauthex.ParseWWWAuthenticate(res.Header.Values("WWW-Authenticate"))
		require.NoError(t, err)
		require.Len(t, all, 1)
		at := all[0].Params["resource_metadata"]
		doc, err := oauthex.GetProtectedResourceMetadata(t.Context(), at, url, http.DefaultClient)
		require.NoError(t, err, what)
		assert.Equal(t, []string{issuerURL}, doc.AuthorizationServers)
		assert.Equal(t, []string{"write"}, doc.ScopesSupported)
	}
	base := strings.TrimSuffix(url, "/mcp")
	for path, want := range map[string]int{
		"/healthz": 200, "/.well-known/oauth-protected-resource": 200, "/": 404, "/mcpx": 404, "//mcp": 404,
	} {
		res, err := http.Get(base + path)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		assert.Equal(t, want, res.StatusCode, path)
	}
	assert.NoError(t, stop())
}

func TestThePublicURLIsWhatIsAdvertised(t *testing.T) {
	issuerURL, _ := issuer(t)
	url, stop := start(t, map[string]string{
		"PORT": "0", "HYDRANT_JWT_ISSUER": issuerURL, "HYDRANT_PUBLIC_URL": "https://mcp.example",
	})
	res, err := http.Get(url)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	assert.Contains(t, res.Header.Get("WWW-Authenticate"),
		`resource_metadata="https://mcp.example/.well-known/oauth-protected-resource/mcp"`)
	assert.NoError(t, stop())
}

func TestAnIssuerThatIsNotOneDoesNotStart(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	defer srv.Close()
	env := map[string]string{"PORT": "0", "HYDRANT_JWT_ISSUER": srv.URL, "HYDRANT_JWT_AUDIENCE": "me"}
	err := run(t.Context(), func(name string) string { return env[name] }, io.Discard)
	require.ErrorContains(t, err, "HYDRANT_JWT_ISSUER")
	assert.NotContains(t, err.Error(), "\n")
}
