// Package config reads the environment variables that configure the "everything" example, and builds what they ask for.
// The mains for local use, Lambda and Cloud Run share it.
package config

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/hydrant-mcp/hydrant/handler"
)

// The values of HYDRANT_STORE.
const (
	Memory    = "memory"
	DynamoDB  = "dynamodb"
	Firestore = "firestore"
)

// keySize is the size of a key of HYDRANT_KEYS, in bytes.
const keySize = 32

// A Config is what the environment says.
type Config struct {
	// Addr is where to listen: HOST and PORT. Port 0 is any free port.
	Addr string
	// Store is one of [Memory], [DynamoDB] and [Firestore].
	Store string
	// Table is the DynamoDB table, or the prefix of the Firestore collections.
	Table string
	// CreateTable says that DynamoDB is an emulator on this machine, where a missing table is created.
	CreateTable bool
	// Project is the Google Cloud project. Empty: the Google SDK finds it out.
	Project string
	// Keys are those of HYDRANT_KEYS, the one that seals first.
	Keys [][]byte
	// Tally is the file that the diagnostic tools append to. Empty: none.
	Tally string
	// Origins are where browsers may come from.
	Origins []string
	// Legacy is how clients of the legacy era are served.
	Legacy handler.LegacyMode
	// Ask is how the questions that tools return are put to clients of 2025-11-25.
	Ask handler.AskMode
	// SessionTTL is how long a session may be idle.
	SessionTTL time.Duration
	// Hosts are the host names that are allowed on loopback, beside the loopback names. Nil: all.
	Hosts []string
	// PublicURL is what clients have before the endpoint's path. Empty: what the request shows.
	PublicURL string
	// Auth says which bearer tokens are good. Nil: none is needed.
	Auth *Auth
}

// Load reads the configuration through getenv, which is [os.Getenv] but for tests. A variable that is empty counts as
// not set. The error is one line that names the variable.
func Load(getenv func(string) string) (*Config, error) {
	c := &Config{Project: getenv("GOOGLE_CLOUD_PROJECT"), Tally: getenv("HYDRANT_TALLY")}
	for _, v := range []struct {
		name string
		read func(string) error
		or   string // the value of a variable that is not set
	}{
		{"PORT", c.readPort(cmp.Or(getenv("HOST"), defaultHost(getenv))), "8080"},
		{"HYDRANT_STORE", c.readStore, Memory},
		{"HYDRANT_TABLE", c.readTable, "hydrant"},
		{"AWS_ENDPOINT_URL_DYNAMODB", c.readEndpoint, ""},
		{"HYDRANT_KEYS", c.readKeys, ""},
		{"HYDRANT_ORIGINS", c.readOrigins, ""},
		{"HYDRANT_LEGACY", c.readLegacy, "sessions"},
		{"HYDRANT_ASK", c.readAsk, "auto"},
		{"HYDRANT_SESSION_TTL", c.readSessionTTL, "24h"},
		{"HYDRANT_HOSTS", c.readHosts, ""},
		{"HYDRANT_PUBLIC_URL", c.readPublicURL, ""},
		{"HYDRANT_JWT_ISSUER", c.readIssuer, ""}, // before those that need it
		{"HYDRANT_JWT_AUDIENCE", c.readAudiences, ""},
		{"HYDRANT_JWKS_URL", c.readKeysURL, ""},
		{"HYDRANT_SCOPES", c.readScopes, ""},
	} {
		value := cmp.Or(getenv(v.name), v.or)
		if value == "" {
			continue
		}
		if err := v.read(value); err != nil {
			return nil, fmt.Errorf("%s: %w", v.name, err)
		}
	}
	if err := c.settleAudiences(); err != nil {
		return nil, err
	}
	return c, nil
}

// defaultHost is this machine alone, except on Cloud Run, which reaches its containers over the network and says that it
// is there with K_SERVICE.
func defaultHost(getenv func(string) string) string {
	if getenv("K_SERVICE") != "" {
		return "0.0.0.0"
	}
	return "127.0.0.1"
}

func (c *Config) readPort(host string) func(string) error {
	return func(value string) error {
		if _, err := strconv.ParseUint(value, 10, 16); err != nil {
			return fmt.Errorf("%q is not a port number", value)
		}
		c.Addr = net.JoinHostPort(host, value)
		return nil
	}
}

func (c *Config) readStore(value string) error {
	switch value {
	case Memory, DynamoDB, Firestore:
		c.Store = value
		return nil
	}
	return fmt.Errorf("%q is none of %s, %s and %s", value, Memory, DynamoDB, Firestore)
}

// tableName is what DynamoDB allows as the name of a table. It is all good in the name of a Firestore collection too.
var tableName = regexp.MustCompile(`^[A-Za-z0-9_.-]{3,255}$`)

func (c *Config) readTable(value string) error {
	if !tableName.MatchString(value) {
		return fmt.Errorf("%q is not 3 to 255 letters, digits, underscores, dots and hyphens", value)
	}
	c.Table = value
	return nil
}

func (c *Config) readEndpoint(value string) error {
	u, err := url.Parse(value)
	if err != nil || u.Scheme == "" || u.Host == "" {
		return fmt.Errorf("%q is not a URL", value)
	}
	c.CreateTable = onLoopback(u)
	return nil
}

func onLoopback(u *url.URL) bool {
	return u.Hostname() == "localhost" || net.ParseIP(u.Hostname()).IsLoopback()
}

// readKeys keeps the keys out of its errors: they end up in logs.
func (c *Config) readKeys(value string) error {
	for i, encoded := range split(value) {
		key, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil || len(key) != keySize {
			return fmt.Errorf("key %d is not %d bytes in base64; make one with: openssl rand -base64 %[2]d", i+1, keySize)
		}
		c.Keys = append(c.Keys, key)
	}
	return nil
}

func (c *Config) readOrigins(value string) error {
	for _, origin := range split(value) {
		u, err := url.Parse(origin)
		if err != nil || u.Host == "" || u.Scheme+"://"+u.Host != origin {
			return fmt.Errorf("%q is not an origin; write scheme://host or scheme://host:port", origin)
		}
		c.Origins = append(c.Origins, origin)
	}
	return nil
}

func (c *Config) readLegacy(value string) error {
	switch value {
	case "sessions":
		c.Legacy = handler.LegacySessions
	case "stateless":
		c.Legacy = handler.LegacyStateless
	default:
		return fmt.Errorf("%q is neither sessions nor stateless", value)
	}
	return nil
}

func (c *Config) readSessionTTL(value string) error {
	d, err := time.ParseDuration(value)
	if err != nil {
		return fmt.Errorf("%q is not a duration like 90s, 30m or 24h", value)
	}
	if d < time.Second {
		return errors.New("a session must live for a second at least")
	}
	c.SessionTTL = d
	return nil
}

var hostName = regexp.MustCompile(`^[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*$`)

func (c *Config) readHosts(value string) error {
	for _, name := range split(value) {
		if !hostName.MatchString(name) {
			return fmt.Errorf("%q is not a host name; write it without a scheme and a port", name)
		}
		c.Hosts = append(c.Hosts, name)
	}
	return nil
}

// split cuts a comma-separated list. Spaces around its parts do not count; an empty part stays, and is an error of
// whoever reads it.
func split(list string) []string {
	parts := strings.Split(list, ",")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return parts
}
