package identity_test

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/identity"
)

const (
	iapIssuer   = "https://cloud.google.com/iap"
	iapAudience = "/projects/123/locations/europe-west1/services/notes"
	iapHeader   = "X-Goog-IAP-JWT-Assertion"
)

func requestWith(header string, values ...string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/mcp", nil)
	for _, v := range values {
		r.Header.Add(header, v)
	}
	return r
}

func TestIAPSignsWhoIsAsking(t *testing.T) {
	k := newKey(t, "k1", "ES256")
	i := newIssuer(t, "", k)
	iap := func(i *issuer, audience string) (func(*http.Request) (*auth.TokenInfo, error), error) {
		return identity.IAP(t.Context(), identity.IAPOptions{
			Audience: audience, KeysURL: i.keysURL(), Logger: slog.New(slog.DiscardHandler),
		})
	}
	identify, err := iap(i, iapAudience)
	require.NoError(t, err)
	assertion := claims{"aud": iapAudience, "sub": "accounts.google.com:42", "email": "a@example.com", "scope": nil}
	info, err := identify(requestWith(iapHeader, k.token(t, iapIssuer, assertion)))
	require.NoError(t, err)
	assert.Equal(t, "accounts.google.com:42", info.UserID)
	assert.Equal(t, iapIssuer, info.Extra["iss"])
	assert.Equal(t, "a@example.com", info.Extra["email"])
	assert.Empty(t, info.Scopes)

	good := k.token(t, iapIssuer, assertion)
	old := claims{"exp": time.Now().Add(-time.Minute).Unix(), "aud": iapAudience}
	elsewhere, rsa := claims{"aud": "/projects/9/global/backendServices/1"}, newKey(t, "k2", "RS256")
	i.publish(k, rsa)
	for name, r := range map[string]*http.Request{
		"another service":    requestWith(iapHeader, k.token(t, iapIssuer, elsewhere)),
		"another issuer":     requestWith(iapHeader, k.token(t, "https://accounts.google.com", assertion)),
		"another algorithm":  requestWith(iapHeader, rsa.token(t, iapIssuer, assertion)),
		"expired":            requestWith(iapHeader, k.token(t, iapIssuer, old)),
		"a key of one's own": requestWith(iapHeader, newKey(t, "k1", "ES256").token(t, iapIssuer, assertion)),
		"two of them":        requestWith(iapHeader, good, good),
		"empty":              requestWith(iapHeader, ""),
	} {
		_, err := identify(r)
		assert.ErrorIs(t, err, auth.ErrInvalidToken, name)
		assert.NotErrorIs(t, err, identity.ErrNobody, name)
	}
	for name, r := range map[string]*http.Request{
		"nothing":            requestWith(iapHeader),
		"the unsigned email": requestWith("X-Goog-Authenticated-User-Email", "accounts.google.com:a@example.com"),
		"the unsigned id":    requestWith("X-Goog-Authenticated-User-Id", "accounts.google.com:42"),
		"a bearer token":     requestWith("Authorization", "Bearer "+good),
	} {
		_, err := identify(r)
		assert.ErrorIs(t, err, identity.ErrNobody, name)
		assert.ErrorIs(t, err, auth.ErrInvalidToken, "%s: it is refused unless somebody says otherwise", name)
	}

	_, err = iap(i, "")
	assert.Error(t, err, "without an audience")

	down := newIssuer(t, "", k)
	down.down.Store(true)
	identify, err = iap(down, iapAudience)
	require.NoError(t, err)
	_, err = identify(requestWith(iapHeader, good))
	assert.ErrorIs(t, err, identity.ErrUnavailable)
	assert.NotErrorIs(t, err, auth.ErrInvalidToken)
}

func TestIdentitiesOfSeveralKinds(t *testing.T) {
	byHeader := func(name string) func(*http.Request) (*auth.TokenInfo, error) {
		return func(r *http.Request) (*auth.TokenInfo, error) {
			switch v := r.Header.Get(name); v {
			case "":
				return nil, identity.ErrNobody
			case "down":
				return nil, errors.New("down")
			case "bad":
				return nil, auth.ErrInvalidToken
			default:
				return &auth.TokenInfo{UserID: v}, nil
			}
		}
	}
	both := identity.First(byHeader("A"), byHeader("B"))
	info, err := both(requestWith("B", "bob"))
	require.NoError(t, err)
	assert.Equal(t, "bob", info.UserID)
	bad := requestWith("B", "bob")
	bad.Header.Set("A", "bad")
	_, err = both(bad)
	assert.ErrorIs(t, err, auth.ErrInvalidToken, "bad credentials are not made good by others")
	_, err = both(requestWith("C", "carol"))
	assert.ErrorIs(t, err, identity.ErrNobody)
	_, err = identity.First()(requestWith("C"))
	assert.ErrorIs(t, err, identity.ErrNobody)

	anybody := identity.Optional(both)
	info, err = anybody(requestWith("C", "carol"))
	assert.NoError(t, err)
	assert.Nil(t, info)
	for _, v := range []string{"bad", "down"} {
		_, err = anybody(requestWith("A", v))
		assert.Error(t, err, v)
	}
	info, err = anybody(requestWith("A", "alice"))
	assert.NoError(t, err)
	assert.Equal(t, "alice", info.UserID)
}

// What a claim is must not depend on how it is written.
func FuzzClaims(f *testing.F) {
	k := newKey(f, "k1", "EdDSA")
	i := newIssuer(f, "", k)
	opts := i.options()
	opts.Issuer = "https://issuer.example"
	v := newVerifier(f, opts)
	for _, seed := range []string{
		`{"iss":"https://issuer.example","aud":"https://mcp.example/mcp","sub":"alice","exp":99999999999}`,
		`{"iss":"https://issuer.example","aud":["https://mcp.example/mcp"],"sub":"alice","exp":9e9,"nbf":0.5,"scp":["a"]}`,
		`{"iss":"x","iss":"https://issuer.example","aud":[],"exp":1e400}`, `[]`, `null`, `{}`, "{\"sub\":\"\xff\"}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		info, err := v(t.Context(), k.sign(t, payload, ""), nil)
		if err != nil {
			require.ErrorIs(t, err, auth.ErrInvalidToken)
			return
		}
		var got map[string]any
		require.NoError(t, json.Unmarshal(payload, &got))
		require.Equal(t, "https://issuer.example", got["iss"])
		require.Equal(t, info.UserID, got["sub"])
		require.NotEmpty(t, info.UserID)
		require.True(t, info.Expiration.After(time.Now()))
		if aud, ok := got["aud"].(string); ok {
			require.Equal(t, audience, aud)
		} else {
			require.Contains(t, got["aud"], audience)
		}
	})
}

// Nothing that a stranger sends is ever good, brings the process down or leads to more than a refusal.
func FuzzToken(f *testing.F) {
	k := newKey(f, "k1", "ES256")
	i := newIssuer(f, "", k, newKey(f, "", "RS256"), newKey(f, "k3", "EdDSA"))
	v := newVerifier(f, i.options())
	good := k.token(f, i.url, nil)
	for _, seed := range []string{
		good, newKey(f, "k1", "ES256").token(f, i.url, nil), newKey(f, "", "RS256").token(f, "https://evil.example", nil),
		encode(`{"alg":"none"}`, `{}`) + ".", encode(`{"alg":"HS256"}`, `{}`, `x`),
		encode(`{"alg":"ES256","kid":"k1","crit":["b64"],"b64":false}`, `{}`, `x`),
		`{"payload":"","signatures":[]}`, "a.b.c", "..", "", "a.b.c.d.e",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, token string) {
		info, err := v(t.Context(), token, nil)
		if err != nil {
			require.Nil(t, info)
			require.ErrorIs(t, err, auth.ErrInvalidToken)
			return
		}
		// Only those that it was signed for: ECDSA signatures, and the last bits of base64, can be written in several ways.
		require.Equal(t, "alice", info.UserID)
		require.Equal(t, i.url, info.Extra["iss"])
	})
}
