package identity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/go-jose/go-jose/v4"
)

const (
	// maxDocument is the size of the largest metadata or key set, in bytes.
	maxDocument  = 1 << 20
	maxRedirects = 3
)

// errMetadata says that an issuer has answered, and that what it says is not usable: no outage.
var errMetadata = errors.New("the issuer's metadata is not usable")

// A source is where an issuer's keys come from.
type source struct {
	issuer  string
	keysURL string // empty: what the metadata says
	client  *http.Client
}

func newSource(o JWTOptions) (source, error) {
	s := source{issuer: o.Issuer, keysURL: o.KeysURL, client: &http.Client{}}
	if o.Client != nil {
		*s.client = *o.Client
	}
	s.client.CheckRedirect = func(next *http.Request, via []*http.Request) error {
		if len(via) > maxRedirects {
			return errors.New("too many redirects")
		}
		return secure(next.URL, via[0].URL)
	}
	if s.keysURL != "" {
		if err := checkURL(s.keysURL); err != nil {
			return s, fmt.Errorf("KeysURL: %w", err)
		}
		return s, nil
	}
	u, err := url.Parse(s.issuer)
	if err == nil {
		err = checkURL(s.issuer)
	}
	if err != nil || u.RawQuery != "" {
		return s, errors.New("without a KeysURL the Issuer must be an https URL without a query (http on loopback only)")
	}
	return s, nil
}

// checkURL takes https, and http on this very machine.
func checkURL(raw string) error {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" || u.Opaque != "" {
		return fmt.Errorf("%q is no plain absolute URL", raw)
	}
	if u.Scheme != "https" && (u.Scheme != "http" || !onLoopback(u)) {
		return fmt.Errorf("%q is not https, and http is for loopback addresses only", raw)
	}
	return nil
}

func onLoopback(u *url.URL) bool {
	name := u.Hostname()
	return strings.EqualFold(name, "localhost") || net.ParseIP(name).IsLoopback()
}

// secure says whether one may go from one URL to another: a public server must not send anybody to this machine.
func secure(next, from *url.URL) error {
	if next.Scheme == "https" || next.Scheme == "http" && onLoopback(next) && onLoopback(from) {
		return nil
	}
	return errors.New("it points to a URL that is not https")
}

func (s source) fetch(ctx context.Context) (found []jose.JSONWebKey, err error) {
	at := s.keysURL
	if at == "" {
		if at, err = s.discover(ctx); err != nil {
			return nil, err
		}
	}
	body, _, err := s.get(ctx, at)
	if err != nil {
		return nil, err
	}
	return decodeKeys(body)
}

// discover finds the URL of the key set in the issuer's metadata, in the order that the MCP specification gives: RFC
// 8414, then OpenID Connect Discovery with the path after and before the well-known part.
func (s source) discover(ctx context.Context) (string, error) {
	issuer, err := url.Parse(s.issuer)
	if err != nil {
		return "", err
	}
	path := strings.TrimSuffix(issuer.EscapedPath(), "/")
	origin := issuer.Scheme + "://" + issuer.Host
	candidates := []string{
		origin + "/.well-known/oauth-authorization-server" + path,
		origin + "/.well-known/openid-configuration" + path,
	}
	if path != "" {
		candidates = append(candidates, origin+path+"/.well-known/openid-configuration")
	}
	var failures []string
	outage := false
	for _, at := range candidates {
		body, status, err := s.get(ctx, at)
		if err == nil {
			return s.readMetadata(issuer, body)
		}
		failures = append(failures, err.Error())
		outage = outage || status != http.StatusNotFound
	}
	all := errors.New(strings.Join(failures, "; "))
	if outage {
		return "", all
	}
	return "", fmt.Errorf("%w: %w", errMetadata, all)
}

// readMetadata compares the issuer to the byte (RFC 8414, section 3.3; OpenID Connect Discovery, section 4.3).
func (s source) readMetadata(issuer *url.URL, body []byte) (string, error) {
	var metadata struct {
		Issuer  string `json:"issuer"`
		KeysURL string `json:"jwks_uri"`
	}
	if err := json.Unmarshal(body, &metadata); err != nil {
		return "", fmt.Errorf("%w: it is not JSON of that form", errMetadata)
	}
	if metadata.Issuer != s.issuer {
		return "", fmt.Errorf("%w: it is of the issuer %q, not of %q", errMetadata, metadata.Issuer, s.issuer)
	}
	u, err := url.Parse(metadata.KeysURL)
	if err != nil || checkURL(metadata.KeysURL) != nil || secure(u, issuer) != nil {
		return "", fmt.Errorf("%w: its jwks_uri %q is no https URL", errMetadata, metadata.KeysURL)
	}
	return metadata.KeysURL, nil
}

// get reads a document. status is 0 without an answer.
func (s source) get(ctx context.Context, at string) (body []byte, status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, 0, err
	}
	req.Header.Set("Accept", "application/json")
	res, err := s.client.Do(req)
	if err != nil {
		return nil, 0, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, res.StatusCode, fmt.Errorf("%s answers %d", at, res.StatusCode)
	}
	body, err = io.ReadAll(io.LimitReader(res.Body, maxDocument+1))
	if err != nil {
		return nil, 0, fmt.Errorf("reading %s: %w", at, err)
	}
	if len(body) > maxDocument {
		return nil, res.StatusCode, fmt.Errorf("%s is larger than %d bytes", at, maxDocument)
	}
	return body, res.StatusCode, nil
}
