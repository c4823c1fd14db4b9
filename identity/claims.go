package identity

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/auth"
)

// read checks the claims of a token whose signature is good.
func (v *verifier) read(payload []byte) (*auth.TokenInfo, error) {
	claims, err := decodeClaims(payload)
	if err != nil {
		return nil, invalid("the token's claims are no JSON object")
	}
	if claims["iss"] != v.issuer {
		return nil, invalid("the token is of another issuer")
	}
	if !slices.ContainsFunc(stringsOf(claims["aud"]), func(aud string) bool { return slices.Contains(v.audiences, aud) }) {
		return nil, invalid("the token is for another audience")
	}
	subject, _ := claims["sub"].(string)
	if subject == "" {
		return nil, invalid("the token has no subject")
	}
	expires, ok := timeOf(claims["exp"])
	if !ok {
		return nil, invalid("the token has no expiry")
	}
	now := time.Now()
	if expires = expires.Add(v.skew); !now.Before(expires) {
		return nil, invalid("the token has expired")
	}
	for _, name := range []string{"nbf", "iat"} {
		claim, given := claims[name]
		if !given {
			continue
		}
		if t, ok := timeOf(claim); !ok || t.After(now.Add(v.skew)) {
			return nil, invalid("the token is not valid yet")
		}
	}
	return &auth.TokenInfo{
		// What the SDK's middleware compares with its own clock, without a skew.
		Expiration: expires,
		UserID:     subject,
		Scopes:     scopesOf(claims),
		Extra:      claims,
	}, nil
}

// decodeClaims takes UTF-8 only: the decoder would make one subject of two that differ in bytes that are none. Names
// are matched exactly, and the last of several counts (RFC 7519, section 4).
func decodeClaims(payload []byte) (claims map[string]any, err error) {
	if !utf8.Valid(payload) {
		return nil, errors.New("not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(payload))
	d.UseNumber()
	if err := d.Decode(&claims); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF || claims == nil {
		return nil, errors.New("not one object")
	}
	return claims, nil
}

// stringsOf is for claims that are a string or an array of them. An array with anything else in it is none.
func stringsOf(claim any) []string {
	switch c := claim.(type) {
	case string:
		return []string{c}
	case []any:
		all := make([]string, 0, len(c))
		for _, v := range c {
			s, ok := v.(string)
			if !ok {
				return nil
			}
			all = append(all, s)
		}
		return all
	}
	return nil
}

// scopesOf reads "scope" (RFC 9068, section 2.2.3), or else "scp", which some issuers write.
func scopesOf(claims map[string]any) []string {
	claim, ok := claims["scope"]
	if !ok {
		claim = claims["scp"]
	}
	if s, ok := claim.(string); ok {
		return strings.Fields(s)
	}
	return stringsOf(claim)
}

// maxSeconds is the last second of the year 9999.
const maxSeconds = 253402300799

// timeOf reads a NumericDate (RFC 7519, section 2), which may have a fraction.
func timeOf(claim any) (time.Time, bool) {
	n, ok := claim.(json.Number)
	if !ok {
		return time.Time{}, false
	}
	seconds, err := n.Float64()
	if err != nil || seconds < 0 || seconds > maxSeconds {
		return time.Time{}, false
	}
	return time.UnixMilli(int64(seconds * 1000)), true
}
