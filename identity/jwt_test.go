package identity_test

import (
	"context"
	"crypto/hmac"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/identity"
)

func TestAGoodTokenSaysWhoIsAsking(t *testing.T) {
	for _, alg := range []string{"RS256", "ES256", "EdDSA", "PS256"} {
		k := newKey(t, "k1", alg)
		i := newIssuer(t, "", k)
		exp := time.Now().Add(time.Hour).Truncate(time.Second)
		info, err := newVerifier(t, i.options())(t.Context(),
			k.token(t, i.url, claims{"exp": exp.Unix(), "big": json.Number("9007199254740993")}), nil)
		require.NoError(t, err, alg)
		assert.Equal(t, "alice", info.UserID)
		assert.Equal(t, []string{"read", "write"}, info.Scopes)
		assert.Equal(t, i.url, info.Extra["iss"])
		assert.Equal(t, json.Number("9007199254740993"), info.Extra["big"], "claims are exact")
		assert.Equal(t, exp.Add(time.Minute), info.Expiration, "the SDK's middleware knows of no clock skew")
	}
}

func TestAlgorithmsThatAreAskedFor(t *testing.T) {
	for _, alg := range []string{"RS384", "RS512", "ES384", "ES512", "PS384", "PS512"} {
		k := newKey(t, "k1", alg)
		i := newIssuer(t, "", k)
		token := k.token(t, i.url, nil)
		assert.ErrorIs(t, check(newVerifier(t, i.options()), token), auth.ErrInvalidToken, "%s is not a default", alg)
		opts := i.options()
		opts.Algorithms = []string{alg}
		assert.NoError(t, check(newVerifier(t, opts), token), alg)
	}
}

func TestClaimsAreChecked(t *testing.T) {
	k := newKey(t, "k1", "EdDSA")
	i := newIssuer(t, "", k)
	v := newVerifier(t, i.options())
	now := time.Now()
	seconds := func(d time.Duration) int64 { return now.Add(d).Unix() }
	for name, good := range map[string]claims{
		"audiences":                    {"aud": []string{"other", audience}},
		"no scopes":                    {"scope": nil},
		"no iat":                       {"iat": nil},
		"a fraction":                   {"exp": float64(seconds(time.Hour)) + 0.5},
		"expired within the skew":      {"exp": seconds(-50 * time.Second)},
		"issued within the skew":       {"iat": seconds(50 * time.Second), "nbf": seconds(50 * time.Second)},
		"a claim that nobody asks for": {"SUB": "bob", "Iss": "https://evil.example"},
	} {
		info, err := v(t.Context(), k.token(t, i.url, good), nil)
		if assert.NoError(t, err, name) {
			assert.Equal(t, "alice", info.UserID, name)
		}
	}
	for name, bad := range map[string]claims{
		"another issuer":             {"iss": "https://evil.example"},
		"an issuer with a slash":     {"iss": i.url + "/"},
		"an issuer in other letters": {"iss": strings.ToUpper(i.url)},
		"no issuer":                  {"iss": nil},
		"two issuers":                {"iss": []string{i.url}},
		"another audience":           {"aud": "https://mcp.example/mcp/"},
		"a longer audience":          {"aud": audience + "2"},
		"no audience":                {"aud": nil},
		"no audiences":               {"aud": []string{}},
		"an audience and a number":   {"aud": []any{audience, 1}},
		"expired":                    {"exp": seconds(-70 * time.Second)},
		"no exp":                     {"exp": nil},
		"exp is text":                {"exp": fmt.Sprint(seconds(time.Hour))},
		"exp is huge":                {"exp": json.Number("1e300")},
		"exp is beyond floats":       {"exp": json.Number("1e400")},
		"exp is negative":            {"exp": -1},
		"not yet":                    {"nbf": seconds(70 * time.Second)},
		"nbf is text":                {"nbf": "now"},
		"issued in the future":       {"iat": seconds(70 * time.Second)},
		"iat is true":                {"iat": true},
		"no subject":                 {"sub": nil},
		"an empty subject":           {"sub": ""},
		"a subject that is a number": {"sub": 7},
	} {
		err := check(v, k.token(t, i.url, bad))
		assert.ErrorIs(t, err, auth.ErrInvalidToken, name)
	}
	for name, payload := range map[string]string{
		"an array":     `[]`,
		"null":         `null`,
		"nothing":      ``,
		"two values":   `{} {}`,
		"half a value": `{"iss":`,
		"not UTF-8":    "{\"sub\":\"\xff\"}",
	} {
		assert.ErrorIs(t, check(v, k.sign(t, []byte(payload), "JWT")), auth.ErrInvalidToken, name)
	}
}

func TestScopesInAllTheirForms(t *testing.T) {
	k := newKey(t, "k1", "EdDSA")
	i := newIssuer(t, "", k)
	v := newVerifier(t, i.options())
	for _, c := range []struct {
		change claims
		want   []string
	}{
		{claims{"scope": "a  b"}, []string{"a", "b"}},
		{claims{"scope": []string{"a", "b"}}, []string{"a", "b"}},
		{claims{"scope": nil, "scp": []string{"a", "b"}}, []string{"a", "b"}},
		{claims{"scope": nil, "scp": "a b"}, []string{"a", "b"}},
		{claims{"scope": "a", "scp": "b"}, []string{"a"}},
		{claims{"scope": []any{"a", 1}}, nil},
		{claims{"scope": 1}, nil},
	} {
		info, err := v(t.Context(), k.token(t, i.url, c.change), nil)
		require.NoError(t, err)
		assert.Equal(t, c.want, info.Scopes, c.change)
	}
}

func TestTypesOfTokens(t *testing.T) {
	k := newKey(t, "k1", "EdDSA")
	i := newIssuer(t, "", k)
	v := newVerifier(t, i.options())
	payload := fmt.Appendf(nil, `{"iss":%q,"aud":%q,"sub":"alice","exp":%d}`,
		i.url, audience, time.Now().Add(time.Hour).Unix())
	for _, typ := range []string{"", "JWT", "jwt", "at+jwt", "application/at+jwt"} {
		assert.NoError(t, check(v, k.sign(t, payload, typ)), typ)
	}
	for _, typ := range []string{"logout+jwt", "secevent+jwt", "dpop+jwt", "JOSE", "application/"} {
		assert.ErrorIs(t, check(v, k.sign(t, payload, typ)), auth.ErrInvalidToken, typ)
	}
}

func encode(parts ...string) string {
	for i := range parts {
		parts[i] = base64.RawURLEncoding.EncodeToString([]byte(parts[i]))
	}
	return strings.Join(parts, ".")
}

// The attacks that JWT libraries have fallen to.
func TestForgeriesAreRefused(t *testing.T) {
	k, other := newKey(t, "k1", "RS256"), newKey(t, "k1", "ES256")
	i := newIssuer(t, "", k)
	opts := i.options()
	v := newVerifier(t, opts)
	good := k.token(t, i.url, nil)
	require.NoError(t, check(v, good))
	head, rest, _ := strings.Cut(good, ".")
	body, signature, _ := strings.Cut(rest, ".")
	decoded, err := base64.RawURLEncoding.DecodeString(body)
	require.NoError(t, err)

	// The public key as the secret of an HMAC.
	der, err := x509.MarshalPKIXPublicKey(k.private.Public())
	require.NoError(t, err)
	signed := encode(`{"alg":"HS256","kid":"k1"}`, string(decoded))
	mac := hmac.New(sha256.New, der)
	mac.Write([]byte(signed))

	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: other.private},
		&jose.SignerOptions{EmbedJWK: true})
	require.NoError(t, err)
	jws, err := signer.Sign(decoded)
	require.NoError(t, err)
	withKey, err := jws.CompactSerialize()
	require.NoError(t, err)

	altered := encode(strings.Replace(string(decoded), "alice", "admin", 1))
	for name, token := range map[string]string{
		"none":                          encode(`{"alg":"none","kid":"k1"}`, string(decoded)) + ".",
		"None":                          encode(`{"alg":"None"}`, string(decoded)) + ".",
		"no algorithm":                  encode(`{"kid":"k1"}`, string(decoded)) + "." + signature,
		"the public key as a secret":    signed + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil)),
		"a key of its own":              withKey,
		"another algorithm, same kid":   other.token(t, i.url, nil),
		"no signature":                  head + "." + body + ".",
		"another signature":             head + "." + body + "." + signature[:len(signature)-8] + "AAAAAAAA",
		"another body":                  head + "." + altered + "." + signature,
		"two signatures":                good + "." + signature,
		"JSON":                          fmt.Sprintf(`{"protected":%q,"payload":%q,"signature":%q}`, head, body, signature),
		"an unknown critical header":    k.withHeader(t, decoded, "crit", []string{"x"}),
		"a key id that is no text":      encode(`{"alg":"RS256","kid":7}`, string(decoded)) + "." + signature,
		"encrypted":                     "a.b.c.d.e",
		"text":                          "secret",
		"nothing":                       "",
		"dots":                          "..",
		"large":                         good + strings.Repeat("A", 17<<10),
		"another kid":                   newKey(t, "k2", "RS256").token(t, i.url, nil),
		"PS256 with a key for RS256":    key{"k1", "PS256", k.private}.token(t, i.url, nil),
		"a line break in the last part": good[:len(good)-4] + "\n" + good[len(good)-4:],
	} {
		err := check(v, token)
		if assert.ErrorIs(t, err, auth.ErrInvalidToken, name) && len(token) > 2 {
			assert.NotContains(t, err.Error(), token[:min(len(token), 12)], "errors do not quote tokens")
		}
	}
}

// withHeader signs with one more header.
func (k key) withHeader(t *testing.T, payload []byte, name jose.HeaderKey, value any) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{
		Algorithm: jose.SignatureAlgorithm(k.alg), Key: jose.JSONWebKey{Key: k.private, KeyID: k.id},
	}, (&jose.SignerOptions{}).WithHeader(name, value))
	require.NoError(t, err)
	jws, err := signer.Sign(payload)
	require.NoError(t, err)
	token, err := jws.CompactSerialize()
	require.NoError(t, err)
	return token
}

func TestATokenWithoutAKeyIDIsTriedWithAllKeys(t *testing.T) {
	one, two := newKey(t, "", "ES256"), newKey(t, "", "ES256")
	i := newIssuer(t, "", newKey(t, "x", "EdDSA"), one, two)
	v := newVerifier(t, i.options())
	assert.NoError(t, check(v, one.token(t, i.url, nil)))
	assert.NoError(t, check(v, two.token(t, i.url, nil)))
	assert.ErrorIs(t, check(v, newKey(t, "", "ES256").token(t, i.url, nil)), auth.ErrInvalidToken)
}

// RFC 7517, section 5: what is not understood in a set is passed over.
func TestKeysOfNoUseArePassedOver(t *testing.T) {
	k := newKey(t, "good", "ES256")
	encryption := newKey(t, "enc", "ES256").public()
	encryption.Use = "enc"
	small := jose.JSONWebKey{KeyID: "small", Key: &rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), 1023), E: 65537}}
	i := newIssuer(t, "")
	i.publishAny(map[string]any{"keys": []any{
		map[string]any{"kty": "new", "kid": "x"}, "no key", nil, 7, encryption, small,
		jose.JSONWebKey{KeyID: "secret", Key: []byte("0123456789abcdef0123456789abcdef")}, k.public(),
	}})
	v := newVerifier(t, i.options())
	assert.NoError(t, check(v, k.token(t, i.url, nil)))
	enc := newKey(t, "enc", "ES256")
	assert.ErrorIs(t, check(v, enc.token(t, i.url, nil)), auth.ErrInvalidToken)
}

func TestOptionsThatCannotBeMeant(t *testing.T) {
	good := identity.JWTOptions{
		Issuer: "https://issuer.example", Audiences: []string{"me"}, KeysURL: "http://127.0.0.1:1/jwks",
	}
	for want, change := range map[string]func(*identity.JWTOptions){
		"Issuer":               func(o *identity.JWTOptions) { o.Issuer = "" },
		"there are no Audienc": func(o *identity.JWTOptions) { o.Audiences = nil },
		"one is empty":         func(o *identity.JWTOptions) { o.Audiences = []string{"me", ""} },
		"not https":            func(o *identity.JWTOptions) { o.KeysURL = "http://issuer.example/jwks" },
		"no plain":             func(o *identity.JWTOptions) { o.KeysURL = "jwks" },
		`"HS256" is none`:      func(o *identity.JWTOptions) { o.Algorithms = []string{"RS256", "HS256"} },
		`"none" is none`:       func(o *identity.JWTOptions) { o.Algorithms = []string{"none"} },
		"ClockSkew":            func(o *identity.JWTOptions) { o.ClockSkew = time.Hour },
		"negative":             func(o *identity.JWTOptions) { o.FetchTimeout = -1 },
		"KeysMaxAge":           func(o *identity.JWTOptions) { o.KeysMaxAge = 24 * time.Hour },
		"without a KeysURL":    func(o *identity.JWTOptions) { o.KeysURL, o.Issuer = "", "http://issuer.example" },
		"https URL":            func(o *identity.JWTOptions) { o.KeysURL, o.Issuer = "", "issuer" },
	} {
		o := good
		change(&o)
		_, err := identity.JWT(t.Context(), o)
		assert.ErrorContains(t, err, want)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := identity.JWT(ended, good)
	assert.ErrorIs(t, err, context.Canceled)
}

func TestTheKeySetIsDiscovered(t *testing.T) {
	k := newKey(t, "k1", "EdDSA")
	for _, c := range []struct{ path, metadata string }{
		{"", "/.well-known/oauth-authorization-server"},
		{"", "/.well-known/openid-configuration"},
		{"/", "/.well-known/openid-configuration"},
		{"/tenant", "/.well-known/oauth-authorization-server/tenant"},
		{"/tenant", "/.well-known/openid-configuration/tenant"},
		{"/tenant", "/tenant/.well-known/openid-configuration"},
	} {
		i := newIssuer(t, c.path, k)
		i.metadata[c.metadata] = map[string]any{"issuer": i.url, "jwks_uri": i.keysURL()}
		opts := i.options()
		opts.KeysURL = ""
		assert.NoError(t, check(newVerifier(t, opts), k.token(t, i.url, nil)), c)
	}
}

func TestMetadataThatIsNotTheIssuersDoesNotStart(t *testing.T) {
	for want, doc := range map[string]map[string]any{
		"it is of the issuer":    {"issuer": "https://evil.example"},
		"is no https URL":        {"jwks_uri": "http://keys.example"},
		`jwks_uri "" is no http`: {},
		"answers 404":            nil,
	} {
		i := newIssuer(t, "")
		if doc != nil {
			if doc["issuer"] == nil {
				doc["issuer"] = i.url
			}
			i.metadata["/.well-known/openid-configuration"] = doc
		}
		opts := i.options()
		opts.KeysURL = ""
		_, err := identity.JWT(t.Context(), opts)
		if assert.ErrorContains(t, err, want) {
			assert.NotContains(t, err.Error(), "\n")
		}
	}
}

// A public server must not make this one ask servers on its own machine.
func TestRedirectsStaySecure(t *testing.T) {
	k := newKey(t, "k1", "EdDSA")
	i := newIssuer(t, "", k)
	opts := i.options()
	opts.Issuer, opts.KeysURL = "https://issuer.example", "https://issuer.example/jwks"
	opts.Client = &http.Client{Transport: redirect(i.keysURL())}
	v := newVerifier(t, opts)
	err := check(v, k.token(t, opts.Issuer, nil))
	assert.ErrorIs(t, err, identity.ErrUnavailable)
	assert.Zero(t, i.requests.Load())
}

// redirect answers everything but loopback with a redirect.
type redirect string

func (to redirect) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Hostname() == "127.0.0.1" {
		return http.DefaultTransport.RoundTrip(r)
	}
	return &http.Response{
		StatusCode: http.StatusFound, Header: http.Header{"Location": {string(to)}}, Body: http.NoBody, Request: r,
	}, nil
}
