package config

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/hydrant-mcp/hydrant/examples/everything/server"
	"github.com/hydrant-mcp/hydrant/handler"
	"github.com/hydrant-mcp/hydrant/identity"
)

// Auth is which bearer tokens are good.
type Auth struct {
	// Issuer is HYDRANT_JWT_ISSUER.
	Issuer string
	// Audiences are those of HYDRANT_JWT_AUDIENCE, or else the endpoint's public URL.
	Audiences []string
	// KeysURL is where the issuer's keys are. Empty: its metadata says it.
	KeysURL string
	// Scopes are what tools need, by their names.
	Scopes map[string][]string
}

var errNoIssuer = errors.New("it is set without HYDRANT_JWT_ISSUER, and no token would be checked")

func (c *Config) readIssuer(value string) error {
	c.Auth = &Auth{Issuer: value}
	return checkURL(value)
}

func (c *Config) readAudiences(value string) error {
	if c.Auth == nil {
		return errNoIssuer
	}
	c.Auth.Audiences = split(value)
	if slices.Contains(c.Auth.Audiences, "") {
		return errors.New("an audience is empty")
	}
	return nil
}

func (c *Config) readKeysURL(value string) error {
	if c.Auth == nil {
		return errNoIssuer
	}
	c.Auth.KeysURL = value
	return checkURL(value)
}

// scope is RFC 6749, section 3.3.
var scope = regexp.MustCompile(`^[\x21\x23-\x5B\x5D-\x7E]+$`)

// readScopes reads tool=scope pairs. A tool that is named twice needs both scopes.
func (c *Config) readScopes(value string) error {
	if c.Auth == nil {
		return errNoIssuer
	}
	c.Auth.Scopes = map[string][]string{}
	for _, pair := range split(value) {
		tool, needed, ok := strings.Cut(pair, "=")
		if !ok || tool == "" || !scope.MatchString(needed) {
			return fmt.Errorf("%q is not tool=scope", pair)
		}
		c.Auth.Scopes[tool] = append(c.Auth.Scopes[tool], needed)
	}
	return nil
}

func (c *Config) readPublicURL(value string) error {
	c.PublicURL = strings.TrimSuffix(value, "/")
	return checkURL(value)
}

// checkURL takes https, and http on this machine.
func checkURL(value string) error {
	u, err := url.Parse(value)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("%q is not a URL, or has a query, a fragment or a user", value)
	}
	if u.Scheme != "https" && (u.Scheme != "http" || !onLoopback(u)) {
		return fmt.Errorf("%q is not https, and http is for loopback addresses only", value)
	}
	return nil
}

// settleAudiences gives tokens the audience that clients ask for when they know nothing but the endpoint (RFC 8707).
func (c *Config) settleAudiences() error {
	if c.Auth == nil || len(c.Auth.Audiences) > 0 {
		return nil
	}
	if c.PublicURL == "" {
		return errors.New("HYDRANT_JWT_ISSUER is set and it is not known whom its tokens are to be for: " +
			"set HYDRANT_JWT_AUDIENCE or HYDRANT_PUBLIC_URL")
	}
	c.Auth.Audiences = []string{c.PublicURL + Path}
	return nil
}

// require adds to opts what makes every request need a token.
func (c *Config) require(
	ctx context.Context, s *mcp.Server, opts *handler.Options, logger *slog.Logger, baseURL func(*http.Request) string,
) (*identity.Resource, error) {
	if err := c.Auth.checkTools(ctx, s); err != nil {
		return nil, fmt.Errorf("HYDRANT_SCOPES: %w", err)
	}
	verifier, err := identity.JWT(ctx, identity.JWTOptions{
		Issuer: c.Auth.Issuer, Audiences: c.Auth.Audiences, KeysURL: c.Auth.KeysURL, Logger: logger,
	})
	if err != nil {
		return nil, fmt.Errorf("HYDRANT_JWT_ISSUER: %w", err)
	}
	resource, err := identity.ProtectedResource(identity.ResourceOptions{
		Path: Path, BaseURL: c.PublicURL, BaseURLOf: baseURL,
		AuthorizationServers: []string{c.Auth.Issuer}, Scopes: c.Auth.allScopes(), Name: server.Name,
	})
	if err != nil {
		return nil, err
	}
	opts.Verifier, opts.ResourceMetadata = verifier, resource.MetadataURL
	if scopes := c.Auth.Scopes; len(scopes) > 0 {
		opts.ToolScopes = func(tool string) []string { return scopes[tool] }
	}
	return resource, nil
}

func (a *Auth) allScopes() []string {
	all := slices.Concat(slices.Collect(maps.Values(a.Scopes))...)
	slices.Sort(all)
	return slices.Compact(all)
}

// checkTools finds names that no tool has: what was meant to need a scope would be open to all.
func (a *Auth) checkTools(ctx context.Context, s *mcp.Server) error {
	if len(a.Scopes) == 0 {
		return nil
	}
	here, there := mcp.NewInMemoryTransports()
	ss, err := s.Connect(ctx, there, nil)
	if err != nil {
		return err
	}
	defer ss.Close()
	cs, err := mcp.NewClient(&mcp.Implementation{Name: "config"}, nil).Connect(ctx, here, nil)
	if err != nil {
		return err
	}
	defer cs.Close()
	unknown := maps.Clone(a.Scopes)
	for tool, err := range cs.Tools(ctx, nil) {
		if err != nil {
			return err
		}
		delete(unknown, tool.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(unknown)) {
		return fmt.Errorf("there is no tool %q", name)
	}
	return nil
}
