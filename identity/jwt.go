package identity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/modelcontextprotocol/go-sdk/auth"
)

// JWTOptions of [JWT]. Issuer and Audiences have no defaults.
type JWTOptions struct {
	// Issuer is what the token's "iss" must be, to the byte: a slash at the end counts (RFC 8414, section 3.3).
	Issuer string
	// Audiences are what the token may be for: one of its "aud" must be one of them, to the byte. By the MCP specification
	// it is the URL of the endpoint, without a slash at its end (RFC 8707).
	Audiences []string

	// KeysURL is where the issuer's key set is (RFC 7517). It is https, or http on a loopback address. Default: what the
	// issuer's metadata says, which is looked for where RFC 8414 and OpenID Connect Discovery have it.
	KeysURL string
	// Algorithms are those that a token may be signed with. Default: RS256, ES256, EdDSA (Ed25519) and PS256. RS384,
	// RS512, ES384, ES512, PS384 and PS512 may be asked for; "none" and those with a shared secret may not.
	Algorithms []string

	// ClockSkew is by how much the clocks of the issuer and of this machine may differ. A token is good until its
	// "exp" and this. Default: 1 minute. Negative: not at all. At most 10 minutes.
	ClockSkew time.Duration
	// MaxTokenSize is the size of the largest token, in bytes. Default: 16 KiB.
	MaxTokenSize int

	// KeysMaxAge is for how long keys are used before they are asked for again. A key that the issuer withdraws is
	// good for so long. Default: 1 hour; less than 24. While the issuer does not answer, known keys stay in use, for
	// 24 hours at most.
	KeysMaxAge time.Duration
	// RefreshInterval is the least time between two requests for the keys. A token with an unknown key leads to one
	// request, so that a new key works at once, and to no more than one in that time. Requests that fail are repeated
	// sooner: after 1 second, 2, 4 and so on, up to this. Default: 30 seconds.
	RefreshInterval time.Duration
	// FetchTimeout bounds one request for the keys, discovery included. Default: 5 seconds.
	FetchTimeout time.Duration
	// Client makes the requests for keys and metadata. Its CheckRedirect is not used: a redirect may go to https only.
	// Default: http.DefaultClient.
	Client *http.Client

	// Logger is told when the keys cannot be had: at warn while known keys are in use, at error when there are none.
	// Default: slog.Default().
	Logger *slog.Logger
}

const (
	defaultClockSkew       = time.Minute
	maxClockSkew           = 10 * time.Minute
	defaultMaxTokenSize    = 16 << 10
	defaultKeysMaxAge      = time.Hour
	defaultRefreshInterval = 30 * time.Second
	defaultFetchTimeout    = 5 * time.Second
)

// The signature algorithms of RFC 7518 and RFC 8037 whose keys are public.
var (
	defaultAlgorithms = []jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.EdDSA, jose.PS256}
	allAlgorithms     = append(slices.Clone(defaultAlgorithms),
		jose.RS384, jose.RS512, jose.ES384, jose.ES512, jose.PS384, jose.PS512)
)

// JWT makes a verifier for handler.Options.Verifier, and for the SDK's auth.RequireBearerToken, of access tokens that
// are signed JWTs (RFC 7519, RFC 9068). It checks type, signature, issuer, audience, "exp", and "nbf" and "iat" where
// they are. "exp" and "sub" must be there.
//
// The auth.TokenInfo has the subject as UserID; the scopes of "scope", or else of "scp", each a string or an array; all
// claims in Extra, "iss" among them, with numbers as json.Number; and as Expiration "exp" and the clock skew.
//
// The verifier's error is auth.ErrInvalidToken where the token is not good, and [ErrUnavailable] where its key is not
// known and the issuer does not answer.
//
// JWT asks for the keys, so that the first token does not wait for them. If the issuer does not answer, that is
// logged and tried again when a token comes. Its error says that the options, or the issuer's metadata, are not
// usable, or that ctx ended.
func JWT(ctx context.Context, opts JWTOptions) (auth.TokenVerifier, error) {
	v, err := newVerifier(ctx, opts)
	if err != nil {
		return nil, fmt.Errorf("identity: JWT: %w", err)
	}
	return func(ctx context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
		return v.verify(ctx, token)
	}, nil
}

type verifier struct {
	issuer     string
	audiences  []string
	algorithms []jose.SignatureAlgorithm
	skew       time.Duration
	maxSize    int
	keys       *keys
}

func newVerifier(ctx context.Context, o JWTOptions) (*verifier, error) {
	if o.Issuer == "" {
		return nil, errors.New("there is no Issuer")
	}
	if len(o.Audiences) == 0 || slices.Contains(o.Audiences, "") {
		return nil, errors.New("there are no Audiences, or one is empty, and tokens for others would be good too")
	}
	v := &verifier{
		issuer: o.Issuer, audiences: slices.Clone(o.Audiences), algorithms: defaultAlgorithms,
		skew: max(cmp.Or(o.ClockSkew, defaultClockSkew), 0), maxSize: cmp.Or(o.MaxTokenSize, defaultMaxTokenSize),
	}
	if len(o.Algorithms) > 0 {
		v.algorithms = nil
	}
	for _, name := range o.Algorithms {
		if !slices.Contains(allAlgorithms, jose.SignatureAlgorithm(name)) {
			return nil, fmt.Errorf("algorithm %q is none of %v", name, allAlgorithms)
		}
		v.algorithms = append(v.algorithms, jose.SignatureAlgorithm(name))
	}
	switch {
	case v.skew > maxClockSkew:
		return nil, fmt.Errorf("a ClockSkew of %v is more than %v", v.skew, maxClockSkew)
	case v.maxSize < 0 || o.KeysMaxAge < 0 || o.RefreshInterval < 0 || o.FetchTimeout < 0:
		return nil, errors.New("MaxTokenSize, KeysMaxAge, RefreshInterval and FetchTimeout cannot be negative")
	case o.KeysMaxAge >= maxStale:
		return nil, fmt.Errorf("a KeysMaxAge of %v is not less than %v", o.KeysMaxAge, maxStale)
	}
	var err error
	v.keys, err = newKeys(ctx, o)
	return v, err
}

// invalid never quotes the token: what a stranger sends stays out of logs.
func invalid(why string) error { return fmt.Errorf("identity: %s: %w", why, auth.ErrInvalidToken) }

func (v *verifier) verify(ctx context.Context, token string) (*auth.TokenInfo, error) {
	if len(token) > v.maxSize {
		return nil, invalid("the token is too large")
	}
	if strings.ContainsAny(token, "\r\n") { // which base64 decoders pass over
		return nil, invalid("this is no signed JWT")
	}
	// Compact only: the JSON form may have several signatures, and is no JWT.
	jws, err := jose.ParseSignedCompact(token, v.algorithms)
	if _, wrong := errors.AsType[*jose.ErrUnexpectedSignatureAlgorithm](err); wrong {
		return nil, invalid("the token's algorithm is not allowed")
	}
	if err != nil || len(jws.Signatures) != 1 {
		return nil, invalid("this is no signed JWT")
	}
	header := jws.Signatures[0].Protected
	if !isAccessToken(header) {
		return nil, invalid("a JWT of this type is no access token")
	}
	payload, err := v.payload(ctx, jws, header)
	if err != nil {
		return nil, err
	}
	return v.read(payload)
}

// isAccessToken keeps out what the same issuer signs for other purposes and types so: logout tokens, security events,
// proofs (RFC 8725, section 3.11). Issuers of access tokens write at+jwt (RFC 9068, section 4), JWT, or nothing.
func isAccessToken(h jose.Header) bool {
	typ, given := h.ExtraHeaders[jose.HeaderType]
	if !given {
		return true
	}
	s, _ := typ.(string)
	switch strings.TrimPrefix(strings.ToLower(s), "application/") {
	case "jwt", "at+jwt":
		return true
	}
	return false
}

// payload checks the signature. Keys that the token itself brings or points at (jwk, jku, x5c, x5u) are never looked
// at.
func (v *verifier) payload(ctx context.Context, jws *jose.JSONWebSignature, h jose.Header) ([]byte, error) {
	found, err := v.keys.find(ctx, func(key jose.JSONWebKey) bool {
		if !fits(key, h.Algorithm) {
			return false
		}
		if h.KeyID != "" {
			return key.KeyID == h.KeyID
		}
		_, err := jws.Verify(key.Key)
		return err == nil
	})
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, invalid("the token's key is not one of its issuer's")
	}
	for _, key := range found {
		if payload, err := jws.Verify(key.Key); err == nil {
			return payload, nil
		}
	}
	return nil, invalid("the token's signature is wrong")
}
