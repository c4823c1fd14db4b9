package identity_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/identity"
)

const audience = "https://mcp.example/mcp"

// A key is one of an issuer's, with what only the issuer has.
type key struct {
	id, alg string
	private crypto.Signer
}

var rsaKey = sync.OnceValue(func() *rsa.PrivateKey { // takes its time
	k, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return k
})

func newKey(t testing.TB, id, alg string) key {
	t.Helper()
	curves := map[string]elliptic.Curve{"ES256": elliptic.P256(), "ES384": elliptic.P384(), "ES512": elliptic.P521()}
	if curve, ok := curves[alg]; ok {
		private, err := ecdsa.GenerateKey(curve, rand.Reader)
		require.NoError(t, err)
		return key{id, alg, private}
	}
	if alg == "EdDSA" {
		_, private, err := ed25519.GenerateKey(rand.Reader)
		require.NoError(t, err)
		return key{id, alg, private}
	}
	return key{id, alg, rsaKey()}
}

func (k key) public() jose.JSONWebKey {
	return jose.JSONWebKey{Key: k.private.Public(), KeyID: k.id, Algorithm: k.alg, Use: "sig"}
}

// sign signs what it is given, whatever it is.
func (k key) sign(t testing.TB, payload []byte, typ string) string {
	t.Helper()
	opts := &jose.SignerOptions{}
	if typ != "" {
		opts.WithType(jose.ContentType(typ))
	}
	signer, err := jose.NewSigner(jose.SigningKey{
		Algorithm: jose.SignatureAlgorithm(k.alg), Key: jose.JSONWebKey{Key: k.private, KeyID: k.id},
	}, opts)
	require.NoError(t, err)
	jws, err := signer.Sign(payload)
	require.NoError(t, err)
	token, err := jws.CompactSerialize()
	require.NoError(t, err)
	return token
}

type claims map[string]any

// token signs the claims of a good token, changed by some; nil takes one away.
func (k key) token(t testing.TB, issuer string, change claims) string {
	t.Helper()
	all := claims{
		"iss": issuer, "aud": audience, "sub": "alice", "scope": "read write",
		"exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix(),
	}
	maps.Copy(all, change)
	maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil })
	payload, err := json.Marshal(all)
	require.NoError(t, err)
	return k.sign(t, payload, "JWT")
}

// An issuer publishes keys. It can be down.
type issuer struct {
	url      string
	requests atomic.Int64 // for the key set
	down     atomic.Bool

	mu       sync.Mutex
	keySet   any
	metadata map[string]any // by path
}

// newIssuer serves an issuer at a path of a loopback address.
func newIssuer(t testing.TB, path string, keys ...key) *issuer {
	t.Helper()
	i := &issuer{metadata: map[string]any{}}
	i.publish(keys...)
	srv := httptest.NewServer(i)
	t.Cleanup(srv.Close)
	i.url = srv.URL + path
	return i
}

func (i *issuer) publish(keys ...key) {
	set := jose.JSONWebKeySet{}
	for _, k := range keys {
		set.Keys = append(set.Keys, k.public())
	}
	i.publishAny(set)
}

func (i *issuer) publishAny(set any) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keySet = set
}

func (i *issuer) keysURL() string { return i.url + "/jwks" }

func (i *issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.down.Load() {
		i.requests.Add(1)
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	if doc, ok := i.metadata[r.URL.Path]; ok {
		_ = json.NewEncoder(w).Encode(doc)
		return
	}
	if len(r.URL.Path) < 5 || r.URL.Path[len(r.URL.Path)-5:] != "/jwks" {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	i.requests.Add(1)
	if raw, ok := i.keySet.([]byte); ok {
		_, _ = w.Write(raw)
		return
	}
	_ = json.NewEncoder(w).Encode(i.keySet)
}

// RoundTrip serves without a network, for tests in which time is not real.
func (i *issuer) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	w := httptest.NewRecorder()
	i.ServeHTTP(w, r)
	res := w.Result()
	res.Request = r
	return res, nil
}

// options are those for an issuer, quiet.
func (i *issuer) options() identity.JWTOptions {
	return identity.JWTOptions{
		Issuer: i.url, Audiences: []string{audience}, KeysURL: i.keysURL(), Logger: slog.New(slog.DiscardHandler),
	}
}

func newVerifier(t testing.TB, opts identity.JWTOptions) auth.TokenVerifier {
	t.Helper()
	v, err := identity.JWT(t.Context(), opts)
	require.NoError(t, err)
	return v
}

func check(v auth.TokenVerifier, token string) error {
	info, err := v(context.Background(), token, nil)
	if (info == nil) == (err == nil) {
		return errors.New("both, or none, of a token info and an error")
	}
	return err
}

// A logBuffer keeps what is logged.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

var _ io.Writer = (*logBuffer)(nil)

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
