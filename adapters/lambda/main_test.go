package lambda

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hydrant-mcp/hydrant/handler"
	"github.com/hydrant-mcp/hydrant/internal/emulator"
	"github.com/hydrant-mcp/hydrant/internal/lambdafront"
	"github.com/hydrant-mcp/hydrant/store"
	"github.com/hydrant-mcp/hydrant/store/memory"
)

// testFunction names what this test binary is when it is started as a function.
const testFunction = "HYDRANT_TEST_FUNCTION"

func TestMain(m *testing.M) {
	if os.Getenv(testFunction) != "" {
		scriptedFunction().start() // does not return
	}
	slog.SetDefault(slog.New(slog.DiscardHandler))
	code := emulator.Main(m)
	http.DefaultClient.CloseIdleConnections()
	if err := goleak.Find(); code == 0 && err != nil {
		_, _ = os.Stderr.WriteString(err.Error() + "\n")
		code = 1
	}
	os.Exit(code)
}

// invoke runs one event in this process, in which nothing is left of it afterwards.
func invoke(t testing.TB, h http.Handler, payload []byte, opts ...Option) []byte {
	t.Helper()
	out, err := NewHandler(h, opts...).Invoke(t.Context(), payload)
	require.NoError(t, err)
	return out
}

// A response is an answer in either form.
type response struct {
	StatusCode        int                 `json:"statusCode"`
	StatusDescription string              `json:"statusDescription"`
	Headers           map[string]string   `json:"headers"`
	MultiValueHeaders map[string][]string `json:"multiValueHeaders"`
	Cookies           []string            `json:"cookies"`
	Body              string              `json:"body"`
	IsBase64Encoded   bool                `json:"isBase64Encoded"`
}

func (r response) header(name string) string {
	if v, ok := r.Headers[name]; ok {
		return v
	}
	return strings.Join(r.MultiValueHeaders[name], ", ")
}

func buffered(t testing.TB, out []byte) (r response) {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(out))
	dec.DisallowUnknownFields()
	require.NoError(t, dec.Decode(&r), "%.1000s", out)
	return r
}

func streamed(t testing.TB, out []byte) response {
	t.Helper()
	in := bufio.NewReader(bytes.NewReader(out))
	r := readHead(t, in)
	body, err := io.ReadAll(in)
	require.NoError(t, err)
	r.Body = string(body)
	return r
}

// readHead reads what comes before the body of a stream.
func readHead(t testing.TB, in *bufio.Reader) (r response) {
	t.Helper()
	text, err := in.ReadBytes(0)
	require.NoError(t, err, "%q", text)
	require.NoError(t, json.Unmarshal(bytes.TrimSuffix(text, []byte{0}), &r), "%q", text)
	zeros := make([]byte, 7)
	_, err = io.ReadFull(in, zeros)
	require.NoError(t, err)
	require.Equal(t, make([]byte, 7), zeros)
	return r
}

func golden(t testing.TB, name string) []byte {
	t.Helper()
	payload, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	require.NoError(t, err)
	return payload
}

// change edits an event.
func change(t testing.TB, payload []byte, edit func(e map[string]any)) []byte {
	t.Helper()
	var e map[string]any
	require.NoError(t, json.Unmarshal(payload, &e))
	edit(e)
	out, err := json.Marshal(e)
	require.NoError(t, err)
	return out
}

// post is an event with another body, and with headers in the form of a Function URL's.
func post(t testing.TB, kind, body string, header map[string]string) []byte {
	t.Helper()
	return change(t, golden(t, kind), func(e map[string]any) {
		e["body"], e["isBase64Encoded"] = body, false
		single, _ := e["headers"].(map[string]any)
		multi, _ := e["multiValueHeaders"].(map[string]any)
		for name, v := range header {
			if single != nil {
				single[name] = v
			}
			if multi != nil {
				multi[name] = []any{v}
			}
		}
	})
}

const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",` +
	`"capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`

func call(name, arguments string) string {
	return `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"` + name + `","arguments":` + arguments + `}}`
}

// newMCP is an MCP endpoint at /mcp. A nil store is one of its own.
func newMCP(st store.Store) http.Handler {
	if st == nil {
		st = memory.New()
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	type large struct {
		Bytes int    `json:"bytes"`
		Char  string `json:"char,omitempty"`
	}
	mcp.AddTool(server, &mcp.Tool{Name: "large"},
		func(_ context.Context, _ *mcp.CallToolRequest, in large) (*mcp.CallToolResult, any, error) {
			if in.Char == "" {
				in.Char = "x"
			}
			return text(strings.Repeat(in.Char, in.Bytes)), nil, nil
		})
	mcp.AddTool(server, &mcp.Tool{Name: "where"},
		func(ctx context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
			return text(whereabouts(ctx)), nil, nil
		})
	mcp.AddTool(server, &mcp.Tool{Name: "wait"},
		func(ctx context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
			<-ctx.Done()
			return nil, nil, context.Cause(ctx)
		})
	mux := http.NewServeMux()
	mux.Handle("/mcp", handler.New(server, st, nil))
	return mux
}

func text(s string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}
}

// session initializes one, and gives the header for what follows.
func session(t testing.TB, h http.Handler, kind string) map[string]string {
	t.Helper()
	r := buffered(t, invoke(t, h, post(t, kind, initialize, nil)))
	require.Equal(t, http.StatusOK, r.StatusCode, r.Body)
	id := r.header("Mcp-Session-Id")
	require.NotEmpty(t, id)
	return map[string]string{"mcp-session-id": id}
}

// A process is this test binary, started as a function.
func startProcess(t testing.TB, env ...string) *lambdafront.Instance {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	env = append(append(os.Environ(), testFunction+"=1"), env...)
	i, err := lambdafront.StartInstance(t.Context(), self, env, log)
	require.NoError(t, err)
	t.Cleanup(func() {
		i.Kill()
		if t.Failed() {
			out, _ := os.ReadFile(log.Name())
			t.Logf("the function's log:\n%s", out)
		}
		_ = log.Close()
	})
	return i
}

// begin hands an event to a process.
func begin(t testing.TB, i *lambdafront.Instance, payload []byte, timeout time.Duration) *lambdafront.Answer {
	t.Helper()
	a, err := i.Invoke(t.Context(), payload, time.Now().Add(timeout))
	require.NoError(t, err)
	return a
}

// requireHealthy shows that a process takes the next event.
func requireHealthy(t testing.TB, i *lambdafront.Instance) {
	t.Helper()
	check := change(t, golden(t, "function-url-get"), func(e map[string]any) { e["rawPath"] = "/healthz" })
	a := begin(t, i, check, time.Minute)
	require.Nil(t, a.Err)
	out, err := io.ReadAll(a.Body)
	require.NoError(t, err)
	require.Contains(t, string(out), "ok\n")
}
