package clients

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/internal/emulator"
	"github.com/hydrant-mcp/hydrant/internal/harness"
)

func TestMain(m *testing.M) { os.Exit(emulator.Main(m)) }

const (
	legacy = "2025-11-25"
	modern = "2026-07-28"

	// clientLimit bounds what one client may take: a client that waits for what never comes must not take the whole
	// run with it.
	clientLimit = 60 * time.Second
)

// echoArguments is what every client sends to the echo tool: characters of two, three and four bytes, and a nested object.
const echoArguments = `{"text": "grüße 你好 🚀", "nested": {"list": [1, "two", null]}}`

// seen is what a client saw while it played the story: connect, list, call tools, read resources, get a prompt, close.
// The scripts in test/node and test/python print it as a line of JSON.
type seen struct {
	Server    string          `json:"server"`
	Protocol  string          `json:"protocol"`
	Session   *bool           `json:"session"`
	Tools     []string        `json:"tools"`
	Resources []string        `json:"resources"`
	Prompts   []string        `json:"prompts"`
	Echo      json.RawMessage `json:"echo"`
	// Structured is the structuredContent of the echo.
	Structured json.RawMessage `json:"structured"`
	// Failed says that the tool that always fails did.
	Failed    bool   `json:"failed"`
	Resource  string `json:"resource"`
	Templated string `json:"templated"`
	Prompt    string `json:"prompt"`
	// Progress is how many of the three notifications arrived, and Stepped what the call then returned.
	Progress *int   `json:"progress"`
	Stepped  string `json:"stepped"`
}

// A client plays the story against a URL.
type client struct {
	name     string
	protocol string // that it must end up with
	play     func(t *testing.T, url string) seen
	// unsaid are fields that this client has no way to tell.
	unsaid map[string]bool
}

func TestRealClientsGetWhatTheServerHas(t *testing.T) {
	cluster := harness.StartForTest(t, harness.Config{Store: harness.DynamoDB})
	for _, c := range allClients() {
		t.Run(fmt.Sprintf("%s speaking %s", c.name, c.protocol), func(t *testing.T) {
			before := cluster.Proxy.Hits()
			got := c.play(t, cluster.URL())
			requireStory(t, c, got)
			for i, hits := range cluster.Proxy.Hits() {
				assert.Greater(t, hits, before[i], "the story must have gone through process %d", i+1)
			}
		})
	}
}

func allClients() []client {
	all := append(goClients(), inspectorClients()...)
	return append(all, scriptClients()...)
}

// requireStory compares what a client saw with what examples/everything has.
func requireStory(t *testing.T, c client, got seen) {
	t.Helper()
	if !c.unsaid["protocol"] {
		assert.Equal(t, c.protocol, got.Protocol)
	}
	if !c.unsaid["server"] {
		assert.NotEmpty(t, got.Server)
	}
	if !c.unsaid["session"] && assert.NotNil(t, got.Session) {
		assert.Equal(t, c.protocol != modern, *got.Session, "sessions belong to the legacy era, and only to it")
	}
	assert.Subset(t, got.Tools, []string{"echo", "progress", "strict", "test_simple_text", "test_x_mcp_header"})
	assert.Subset(t, got.Resources, []string{"test://static-text", "test://static-binary", "test://watched-resource"})
	assert.Subset(t, got.Prompts, []string{"test_simple_prompt", "test_prompt_with_arguments"})
	require.NotEmpty(t, got.Echo)
	assert.JSONEq(t, echoArguments, string(got.Echo))
	require.NotEmpty(t, got.Structured)
	assert.JSONEq(t, echoArguments, string(got.Structured))
	assert.True(t, got.Failed, "the result of a failing tool is marked")
	assert.Equal(t, "This is the content of the static text resource.", got.Resource)
	assert.Contains(t, got.Templated, "42")
	assert.Contains(t, got.Prompt, "first")
	assert.Contains(t, got.Prompt, "zweites")
	if !c.unsaid["progress"] && assert.NotNil(t, got.Progress) {
		assert.Equal(t, 3, *got.Progress)
		assert.Equal(t, "done", got.Stepped)
	}
}
