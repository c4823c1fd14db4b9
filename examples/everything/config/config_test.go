package config_test

import (
	"bytes"
	"encoding/base64"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/examples/everything/config"
	"github.com/hydrant-mcp/hydrant/handler"
	"github.com/hydrant-mcp/hydrant/store/memory"
)

func load(env map[string]string) (*config.Config, error) {
	return config.Load(func(name string) string { return env[name] })
}

// key gives a key of 32 equal bytes, as HYDRANT_KEYS has it.
func key(b byte) string { return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, 32)) }

func TestAnEmptyEnvironmentIsAServerForLocalUse(t *testing.T) {
	c, err := load(nil)
	require.NoError(t, err)
	assert.Equal(t, &config.Config{
		Addr:       "127.0.0.1:8080",
		Store:      config.Memory,
		Table:      "hydrant",
		SessionTTL: 24 * time.Hour,
		Legacy:     handler.LegacySessions,
	}, c)
}

func TestEveryVariableIsRead(t *testing.T) {
	c, err := load(map[string]string{
		"HOST":                      "::1",
		"PORT":                      "3501",
		"HYDRANT_STORE":             "dynamodb",
		"HYDRANT_TABLE":             "my-table",
		"AWS_ENDPOINT_URL_DYNAMODB": "http://127.0.0.1:8000",
		"GOOGLE_CLOUD_PROJECT":      "my-project",
		"HYDRANT_KEYS":              key('a') + ", " + key('b'),
		"HYDRANT_TALLY":             "/tmp/tally",
		"HYDRANT_ORIGINS":           "https://app.example, http://localhost:6274",
		"HYDRANT_LEGACY":            "stateless",
		"HYDRANT_ASK":               "suspend",
		"HYDRANT_SESSION_TTL":       "90m",
		"HYDRANT_HOSTS":             "mcp.example, mcp2.example",
		"HYDRANT_PUBLIC_URL":        "https://mcp.example/v1/",
		"HYDRANT_JWT_ISSUER":        "https://issuer.example/",
		"HYDRANT_JWT_AUDIENCE":      "https://mcp.example/v1/mcp, api://mcp",
		"HYDRANT_JWKS_URL":          "http://127.0.0.1:9/jwks",
		"HYDRANT_SCOPES":            "echo=read, tally=write,tally=admin",
	})
	require.NoError(t, err)
	assert.Equal(t, &config.Config{
		Addr:        "[::1]:3501",
		Store:       config.DynamoDB,
		Table:       "my-table",
		CreateTable: true,
		Project:     "my-project",
		Keys:        [][]byte{bytes.Repeat([]byte{'a'}, 32), bytes.Repeat([]byte{'b'}, 32)},
		Tally:       "/tmp/tally",
		Origins:     []string{"https://app.example", "http://localhost:6274"},
		Legacy:      handler.LegacyStateless,
		Ask:         handler.AskSuspend,
		SessionTTL:  90 * time.Minute,
		Hosts:       []string{"mcp.example", "mcp2.example"},
		PublicURL:   "https://mcp.example/v1",
		Auth: &config.Auth{
			Issuer:    "https://issuer.example/",
			Audiences: []string{"https://mcp.example/v1/mcp", "api://mcp"},
			KeysURL:   "http://127.0.0.1:9/jwks",
			Scopes:    map[string][]string{"echo": {"read"}, "tally": {"write", "admin"}},
		},
	}, c)
}

func TestCloudRunListensOnTheNetwork(t *testing.T) {
	c, err := load(map[string]string{"K_SERVICE": "everything", "PORT": "8081"})
	require.NoError(t, err)
	assert.Equal(t, "0.0.0.0:8081", c.Addr)
}

// A table in an account is made by whoever owns the account, never by a server that starts.
func TestTablesAreCreatedOnThisMachineOnly(t *testing.T) {
	for endpoint, want := range map[string]bool{
		"http://127.0.0.1:8000":                       true,
		"http://[::1]:8000":                           true,
		"http://localhost:8000":                       true,
		"https://dynamodb.eu-central-1.amazonaws.com": false,
		"http://10.0.0.1:8000":                        false,
		"http://localhost.example.com":                false,
		"":                                            false,
	} {
		c, err := load(map[string]string{"AWS_ENDPOINT_URL_DYNAMODB": endpoint})
		require.NoError(t, err, endpoint)
		assert.Equal(t, want, c.CreateTable, endpoint)
	}
}

func TestBadConfigurationIsOneClearLine(t *testing.T) {
	short := base64.StdEncoding.EncodeToString([]byte("too short"))
	for name, values := range map[string][]string{
		"PORT":                      {"http", "-1", "65536", "80.5"},
		"HYDRANT_STORE":             {"redis", "Memory"},
		"HYDRANT_TABLE":             {"ab", "my table", "a/b", strings.Repeat("x", 256)},
		"AWS_ENDPOINT_URL_DYNAMODB": {"localhost", "127.0.0.1:8000"},
		"HYDRANT_KEYS":              {"secret", short, key('a') + ",", key('a') + "," + short, key('a') + key('b')},
		"HYDRANT_ORIGINS":           {"*", "null", "app.example", "https://app.example/", "https://app.example/path", ","},
		"HYDRANT_LEGACY":            {"off", "Sessions"},
		"HYDRANT_ASK":               {"wait", "Hold"},
		"HYDRANT_SESSION_TTL":       {"1", "1d", "0s", "-1h", "10ms"},
		"HYDRANT_HOSTS":             {"https://mcp.example", "mcp.example:8080", ",", "a b"},
		"HYDRANT_JWT_ISSUER":        {"issuer", "http://issuer.example", "https://issuer.example"}, // the last: no audience
		"HYDRANT_JWT_AUDIENCE":      {"nobody's, there is no issuer"},
		"HYDRANT_JWKS_URL":          {"http://127.0.0.1/jwks"},
		"HYDRANT_SCOPES":            {"echo=read"},
		"HYDRANT_PUBLIC_URL":        {"mcp.example", "http://mcp.example", "https://mcp.example?x", "https://u@mcp.example"},
	} {
		for _, value := range values {
			_, err := load(map[string]string{name: value})
			if assert.Error(t, err, "%s=%s", name, value) {
				assert.Contains(t, err.Error(), name)
				assert.NotContains(t, err.Error(), "\n")
			}
		}
	}
}

func TestBadAuthIsOneClearLine(t *testing.T) {
	for name, values := range map[string][]string{
		"HYDRANT_JWT_AUDIENCE": {",", "a,"},
		"HYDRANT_JWKS_URL":     {"jwks", "http://keys.example/jwks"},
		"HYDRANT_SCOPES":       {"echo", "=read", "echo=", "echo=read write", "echo=\"", "echo=read,"},
	} {
		for _, value := range values {
			env := map[string]string{"HYDRANT_JWT_ISSUER": "https://issuer.example", "HYDRANT_JWT_AUDIENCE": "me", name: value}
			_, err := load(env)
			if assert.Error(t, err, "%s=%s", name, value) {
				assert.Contains(t, err.Error(), name)
				assert.NotContains(t, err.Error(), "\n")
			}
		}
	}
}

func TestTokensAreForTheEndpointUnlessTheyAreForSomethingElse(t *testing.T) {
	c, err := load(map[string]string{
		"HYDRANT_JWT_ISSUER": "https://issuer.example", "HYDRANT_PUBLIC_URL": "https://mcp.example",
	})
	require.NoError(t, err)
	assert.Equal(t, []string{"https://mcp.example/mcp"}, c.Auth.Audiences)
}

// A name with a typing error would leave a tool open that was meant not to be.
func TestAScopeForAToolThatIsNotThereDoesNotStart(t *testing.T) {
	c, err := load(map[string]string{
		"HYDRANT_JWT_ISSUER": "https://issuer.example", "HYDRANT_JWT_AUDIENCE": "me", "HYDRANT_SCOPES": "ecko=read",
	})
	require.NoError(t, err)
	_, err = c.Handler(t.Context(), memory.New(), slog.New(slog.DiscardHandler), nil)
	assert.ErrorContains(t, err, `HYDRANT_SCOPES: there is no tool "ecko"`)
}

func TestKeysStayOutOfErrors(t *testing.T) {
	secret := base64.StdEncoding.EncodeToString([]byte("a secret of the wrong size"))
	_, err := load(map[string]string{"HYDRANT_KEYS": key('a') + "," + secret})
	require.Error(t, err)
	assert.NotContains(t, err.Error(), secret)
	assert.Contains(t, err.Error(), "key 2")
}
