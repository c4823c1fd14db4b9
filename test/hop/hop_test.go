package hop

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/internal/emulator"
	"github.com/hydrant-mcp/hydrant/internal/harness"
)

func TestMain(m *testing.M) { os.Exit(emulator.Main(m)) }

const (
	legacy = "2025-11-25"
	modern = "2026-07-28"

	// storyLimit bounds a story: a message that is never answered must not take the run with it.
	storyLimit = 60 * time.Second
)

// faults are what happens between two messages of a session.
var faults = []struct {
	name string
	do   func(t *testing.T, c *harness.Cluster)
	// after puts things right before the next story.
	after func(t *testing.T, c *harness.Cluster)
}{
	{
		name: "the process that answered last is killed",
		do: func(t *testing.T, c *harness.Cluster) {
			require.GreaterOrEqual(t, c.Proxy.Last(), 0)
			c.Kill(c.Proxy.Last())
		},
		after: reviveAll,
	},
	{
		name: "all processes are killed and others start",
		do: func(t *testing.T, c *harness.Cluster) {
			for i := range c.Processes {
				c.Kill(i)
			}
			reviveAll(t, c)
		},
		after: func(*testing.T, *harness.Cluster) {},
	},
}

func reviveAll(t *testing.T, c *harness.Cluster) {
	t.Helper()
	for _, p := range c.Processes {
		if !p.Running() {
			require.NoError(t, p.Start(context.Background()))
		}
	}
}

// A step sends one message and checks its answer.
type step struct {
	name string
	send func(t *testing.T)
}

// tell plays a story once for every place between two of its messages, with the fault in that place. begin returns the
// story's steps with a fresh session behind them.
func tell(t *testing.T, c *harness.Cluster, begin func(t *testing.T) []step) {
	// The steps' names do not depend on the session: a first telling without a fault lists them and shows that it is sound.
	var names []string
	t.Run("without a fault", func(t *testing.T) {
		for _, s := range begin(t) {
			s.send(t)
			names = append(names, s.name)
		}
	})
	require.NotEmpty(t, names)
	for _, fault := range faults {
		for at := 1; at < len(names); at++ {
			t.Run(fmt.Sprintf("%s after %d %s", fault.name, at, names[at-1]), func(t *testing.T) {
				defer fault.after(t, c)
				for i, s := range begin(t) {
					if i == at {
						fault.do(t, c)
					}
					s.send(t)
				}
			})
		}
	}
}

func TestSessionOutlivesTheProcessesThatServeIt(t *testing.T) {
	cluster := harness.StartForTest(t, harness.Config{Store: harness.DynamoDB})
	t.Run("raw messages", func(t *testing.T) {
		tell(t, cluster, func(t *testing.T) []step { return rawStory(t, cluster.URL()) })
	})
	for _, version := range []string{legacy, modern} {
		t.Run("the Go SDK's client speaking "+version, func(t *testing.T) {
			tell(t, cluster, func(t *testing.T) []step { return sdkStory(t, cluster.URL(), version) })
		})
	}
}

// A session id is good on every process from the moment that its client has it.
func TestMULTI12EveryProcessKnowsAFreshSession(t *testing.T) {
	for _, kind := range []harness.Store{harness.DynamoDB, harness.Firestore} {
		t.Run(string(kind), func(t *testing.T) {
			cluster := harness.StartForTest(t, harness.Config{Store: kind})
			post := func(url, session, body string) *http.Response {
				ctx, cancel := context.WithTimeout(t.Context(), storyLimit)
				defer cancel()
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
				require.NoError(t, err)
				req.Header.Set("Content-Type", "application/json")
				req.Header.Set("Accept", "application/json, text/event-stream")
				if session != "" {
					req.Header.Set("Mcp-Session-Id", session)
				}
				resp, err := http.DefaultClient.Do(req)
				require.NoError(t, err)
				_, err = io.Copy(io.Discard, resp.Body)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				return resp
			}
			urls := cluster.URLs()
			resp := post(urls[0], "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{`+
				`"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"hop","version":"1"}}}`)
			require.Equal(t, http.StatusOK, resp.StatusCode)
			session := resp.Header.Get("Mcp-Session-Id")
			for i := range 20 {
				resp := post(urls[i%len(urls)], session, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/list"}`, i+2))
				assert.Equal(t, http.StatusOK, resp.StatusCode, "call %d, on process %d", i, i%len(urls))
			}
		})
	}
}

// rawStory is a legacy session message by message, as it is on the wire.
func rawStory(t *testing.T, url string) []step {
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	session := ""
	send := func(t *testing.T, method, body string, want int) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), storyLimit)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
		require.NoError(t, err)
		if body != "" {
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Accept", "application/json, text/event-stream")
		}
		if session != "" {
			req.Header.Set("Mcp-Session-Id", session)
			req.Header.Set("MCP-Protocol-Version", legacy)
		}
		resp, err := client.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err, "%s after %q", resp.Status, text)
		require.Equal(t, want, resp.StatusCode, "%s", text)
		if id := resp.Header.Get("Mcp-Session-Id"); session == "" {
			session = id
		}
		return string(response(text))
	}
	request := func(name, body, contains string) step {
		return step{name, func(t *testing.T) {
			t.Helper()
			assert.Contains(t, send(t, http.MethodPost, body, http.StatusOK), contains)
		}}
	}
	notification := func(name, body string) step {
		return step{name, func(t *testing.T) {
			t.Helper()
			assert.Empty(t, send(t, http.MethodPost, body, http.StatusAccepted))
		}}
	}
	return []step{
		{"initialize", func(t *testing.T) {
			t.Helper()
			text := send(t, http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{`+
				`"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"hop","version":"1"}}}`, http.StatusOK)
			assert.Contains(t, text, `"protocolVersion":"2025-11-25"`)
			require.NotEmpty(t, session)
		}},
		notification("notifications/initialized", `{"jsonrpc":"2.0","method":"notifications/initialized"}`),
		request("tools/list", `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`, `"test_simple_text"`),
		// What the session remembers must be remembered by whoever comes next: the level decides what the log tool's
		// answer is preceded by.
		request("logging/setLevel",
			`{"jsonrpc":"2.0","id":3,"method":"logging/setLevel","params":{"level":"warning"}}`, `"result"`),
		request("tools/call", `{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"echo",`+
			`"arguments":{"n":9007199254740993}}}`, `9007199254740993`),
		{"logs below the level", func(t *testing.T) {
			t.Helper()
			text := send(t, http.MethodPost, `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"log",`+
				`"arguments":{"n":2,"level":"info"}}}`, http.StatusOK)
			assert.Contains(t, text, `"done"`)
			assert.NotContains(t, text, "notifications/message")
		}},
		{"logs at the level", func(t *testing.T) {
			t.Helper()
			text := send(t, http.MethodPost, `{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"log",`+
				`"arguments":{"n":2,"level":"warning"}}}`, http.StatusOK)
			assert.Contains(t, text, `"done"`)
			assert.Equal(t, 2, strings.Count(text, "notifications/message"))
		}},
		request("resources/subscribe", `{"jsonrpc":"2.0","id":7,"method":"resources/subscribe","params":{`+
			`"uri":"test://watched-resource"}}`, `"result"`),
		request("resources/read", `{"jsonrpc":"2.0","id":8,"method":"resources/read","params":{`+
			`"uri":"test://static-text"}}`, "static text resource"),
		notification("an answer to nothing", `{"jsonrpc":"2.0","id":"none","result":{}}`),
		request("prompts/get", `{"jsonrpc":"2.0","id":9,"method":"prompts/get","params":{`+
			`"name":"test_simple_prompt"}}`, `"messages"`),
		request("ping", `{"jsonrpc":"2.0","id":10,"method":"ping"}`, `"result"`),
		{"DELETE", func(t *testing.T) {
			t.Helper()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, url, nil)
			require.NoError(t, err)
			req.Header.Set("Mcp-Session-Id", session)
			resp, err := client.Do(req)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			assert.Equal(t, 2, resp.StatusCode/100)
		}},
		{"a message after the end", func(t *testing.T) {
			t.Helper()
			text := send(t, http.MethodPost, `{"jsonrpc":"2.0","id":11,"method":"tools/list"}`, http.StatusNotFound)
			assert.Contains(t, text, "-32001")
		}},
	}
}

// response returns the JSON of a body, one or several messages: an event stream's data lines, or the body as it is.
func response(body []byte) []byte {
	if json.Valid(body) {
		return body
	}
	var all [][]byte
	for line := range bytes.Lines(body) {
		if data, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			all = append(all, bytes.TrimSpace(data))
		}
	}
	return bytes.Join(all, []byte("\n"))
}

// sdkStory is a session of the official Go SDK's client. One connect stands for several messages: with the legacy era
// initialize, its notification and the standalone stream.
func sdkStory(t *testing.T, url, version string) []step {
	ctx, cancel := context.WithTimeout(context.Background(), storyLimit)
	var cs *mcp.ClientSession
	t.Cleanup(func() {
		if cs != nil {
			_ = cs.Close()
		}
		cancel()
	})
	return []step{
		{"connect", func(t *testing.T) {
			t.Helper()
			c := mcp.NewClient(&mcp.Implementation{Name: "hop", Version: "1"}, nil)
			var err error
			cs, err = c.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: url},
				&mcp.ClientSessionOptions{ProtocolVersion: version})
			require.NoError(t, err)
			require.Equal(t, version, cs.InitializeResult().ProtocolVersion)
		}},
		{"tools/list", func(t *testing.T) {
			t.Helper()
			tools, err := cs.ListTools(ctx, nil)
			require.NoError(t, err)
			assert.NotEmpty(t, tools.Tools)
		}},
		{"tools/call", func(t *testing.T) {
			t.Helper()
			r, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"word": "hop"}})
			require.NoError(t, err)
			require.NotEmpty(t, r.Content)
			assert.Contains(t, r.Content[0].(*mcp.TextContent).Text, "hop")
		}},
		{"resources/read", func(t *testing.T) {
			t.Helper()
			r, err := cs.ReadResource(ctx, &mcp.ReadResourceParams{URI: "test://static-text"})
			require.NoError(t, err)
			assert.NotEmpty(t, r.Contents)
		}},
		{"prompts/get", func(t *testing.T) {
			t.Helper()
			r, err := cs.GetPrompt(ctx, &mcp.GetPromptParams{Name: "test_simple_prompt"})
			require.NoError(t, err)
			assert.NotEmpty(t, r.Messages)
		}},
		{"close", func(t *testing.T) {
			t.Helper()
			require.NoError(t, cs.Close())
			cs = nil
		}},
	}
}
