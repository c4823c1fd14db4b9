//go:build unix

package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/internal/emulator"
	"github.com/hydrant-mcp/hydrant/internal/harness"
	"github.com/hydrant-mcp/hydrant/internal/lambdafront"
)

func TestMain(m *testing.M) { os.Exit(emulator.Main(m)) }

// environment is that of a function on a table of its own.
func environment(t *testing.T, extra ...string) []string {
	t.Helper()
	var env []string
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "AWS_") && !strings.HasPrefix(entry, "HYDRANT_") {
			env = append(env, entry)
		}
	}
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	return append(append(env,
		"HYDRANT_STORE=dynamodb",
		"HYDRANT_TABLE=test-"+rand.Text(),
		"HYDRANT_KEYS="+base64.StdEncoding.EncodeToString(key),
		"AWS_ENDPOINT_URL_DYNAMODB="+emulator.DynamoDBForTest(t),
		"AWS_REGION=us-east-1",
		"AWS_ACCESS_KEY_ID=local",
		"AWS_SECRET_ACCESS_KEY=local",
	), extra...)
}

func bootstrap(t *testing.T) string {
	t.Helper()
	path, err := lambdafront.Build(t.Context(), "./examples/everything/lambda", false)
	require.NoError(t, err)
	return path
}

func TestBadConfigurationIsRefused(t *testing.T) {
	env := map[string]string{"HYDRANT_STREAMING": "yes"}
	_, _, err := load(t.Context(), func(name string) string { return env[name] })
	assert.EqualError(t, err, `HYDRANT_STREAMING: "yes" is neither 0 nor 1`)
	env = map[string]string{"HYDRANT_STORE": "redis"}
	_, _, err = load(t.Context(), func(name string) string { return env[name] })
	assert.ErrorContains(t, err, "HYDRANT_STORE")
	for value, want := range map[string]int{"": 0, "0": 0, "1": 1} {
		opts, err := options(func(string) string { return value })
		require.NoError(t, err)
		assert.Len(t, opts, want)
	}
}

// A real client works through every front door, with processes that are frozen between its requests and that take turns.
func TestClientsWorkThroughEveryFrontDoor(t *testing.T) {
	path := bootstrap(t)
	for _, c := range []struct {
		source    lambdafront.Source
		streaming bool
	}{
		{lambdafront.FunctionURL, false},
		{lambdafront.FunctionURL, true},
		{lambdafront.REST, false},
		{lambdafront.REST, true},
		{lambdafront.HTTP, false},
		{lambdafront.ALB, false},
		{lambdafront.ALBMulti, false},
	} {
		t.Run(fmt.Sprintf("%s, streaming %t", c.source, c.streaming), func(t *testing.T) {
			front, err := lambdafront.Start(t.Context(), lambdafront.Config{
				Bootstrap: path, Env: environment(t), Source: c.source, Streaming: c.streaming, Instances: 2, Dir: t.TempDir(),
			})
			require.NoError(t, err)
			t.Cleanup(func() {
				front.Stop()
				if t.Failed() {
					t.Log(front.Log())
				}
			})
			resp, err := http.Get(front.BaseURL() + "/healthz")
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			assert.Equal(t, http.StatusOK, resp.StatusCode)
			for _, version := range []string{"2025-11-25", "2026-07-28"} {
				story(t, front.URL(), version, c.streaming)
			}
			assert.Zero(t, front.Kills())
		})
	}
}

func story(t *testing.T, url, version string, streaming bool) {
	t.Helper()
	var progress atomic.Int32
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(context.Context, *mcp.ProgressNotificationClientRequest) { progress.Add(1) },
	})
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url, DisableStandaloneSSE: true},
		&mcp.ClientSessionOptions{ProtocolVersion: version})
	require.NoError(t, err, version)
	tools, err := session.ListTools(t.Context(), nil)
	require.NoError(t, err)
	assert.NotEmpty(t, tools.Tools)
	result, err := session.CallTool(t.Context(), &mcp.CallToolParams{
		Name: "echo", Arguments: map[string]any{"text": "\"<ü>\"\u2028"},
	})
	require.NoError(t, err)
	assert.JSONEq(t, `{"text":"\"<ü>\"\u2028"}`, result.Content[0].(*mcp.TextContent).Text)

	params := &mcp.CallToolParams{Name: "progress", Arguments: map[string]any{"n": 3, "ms": 1}}
	params.SetProgressToken("p")
	_, err = session.CallTool(t.Context(), params)
	require.NoError(t, err)
	if streaming {
		assert.Eventually(t, func() bool { return progress.Load() == 3 }, 5*time.Second, time.Millisecond, version)
	}
	// Over the limits of what is buffered.
	_, err = session.CallTool(t.Context(), &mcp.CallToolParams{Name: "large", Arguments: map[string]any{"bytes": 7 << 20}})
	if streaming {
		assert.NoError(t, err)
	} else {
		assert.ErrorContains(t, err, "can return")
	}
	_, err = session.ListTools(t.Context(), nil)
	require.NoError(t, err, "the next call is healthy")
	assert.NoError(t, session.Close())
}

// An emulated is a function under Amazon's own runtime emulator.
type emulated struct {
	url string
	cmd *exec.Cmd
	log string
}

const (
	emulatorVersion = "v0.0.0-20261030222936-bef5c4ba774d"
	howToGet        = "run `make test`, or: GOBIN=$PWD/bin CGO_ENABLED=0 go install " +
		"github.com/aws/aws-lambda-runtime-interface-emulator/cmd/aws-lambda-rie@" + emulatorVersion
	emulatorStart = 30 * time.Second
)

// startEmulated starts a function with a time limit in seconds.
func startEmulated(t *testing.T, bootstrap string, env []string, timeout int) *emulated {
	t.Helper()
	root, err := harness.Root()
	require.NoError(t, err)
	rie := filepath.Join(root, "bin", "aws-lambda-rie")
	if _, err := os.Stat(rie); err != nil {
		harness.Missing(t, "Amazon's runtime emulator", howToGet)
	}
	api, front := freePort(t), freePort(t)
	e := &emulated{
		url: "http://" + front + "/2015-03-31/functions/function/invocations",
		cmd: exec.Command(rie, "--runtime-api-address", api, "--runtime-interface-emulator-address", front, bootstrap),
		log: filepath.Join(t.TempDir(), "log"),
	}
	log, err := os.Create(e.log)
	require.NoError(t, err)
	e.cmd.Stdout, e.cmd.Stderr = log, log
	e.cmd.Env = append(env[:len(env):len(env)], fmt.Sprintf("AWS_LAMBDA_FUNCTION_TIMEOUT=%d", timeout))
	e.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the function is its child
	require.NoError(t, e.cmd.Start())
	t.Cleanup(func() {
		_ = syscall.Kill(-e.cmd.Process.Pid, syscall.SIGKILL)
		_ = e.cmd.Wait()
		_ = log.Close()
		if t.Failed() {
			t.Log(e.output())
		}
	})
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", front)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}, emulatorStart, 10*time.Millisecond)
	return e
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

func (e *emulated) output() string {
	text, _ := os.ReadFile(e.log)
	return string(text)
}

// post sends a message in the event of a Function URL. raw is what the emulator says where that is no response.
func (e *emulated) post(t *testing.T, session, body string) (r events.LambdaFunctionURLResponse, raw string) {
	t.Helper()
	const domain = "xmplid5x2bjyuqj2q2ywfxmpl4.lambda-url.us-east-2.on.aws"
	headers := map[string]string{
		"accept": "application/json, text/event-stream", "content-type": "application/json", "host": domain,
		"mcp-protocol-version": "2025-11-25",
	}
	if session != "" {
		headers["mcp-session-id"] = session
	}
	id, _, _ := strings.Cut(domain, ".")
	payload, err := json.Marshal(events.LambdaFunctionURLRequest{
		Version: "2.0", RawPath: "/mcp", Headers: headers, Body: body,
		RequestContext: events.LambdaFunctionURLRequestContext{
			APIID: id, DomainName: domain, DomainPrefix: id,
			HTTP: events.LambdaFunctionURLRequestContextHTTPDescription{
				Method: "POST", Path: "/mcp", Protocol: "HTTP/1.1", SourceIP: "205.255.255.176",
			},
		},
	})
	require.NoError(t, err)
	resp, err := http.Post(e.url, "application/json", bytes.NewReader(payload))
	require.NoError(t, err)
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	_ = json.Unmarshal(out, &r)
	return r, string(out)
}

const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",` +
	`"capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`

func call(tool, arguments string) string {
	return `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"` + tool + `","arguments":` + arguments + `}}`
}

// The function runs in Amazon's own emulator of the runtime, in two environments that share nothing but the table.
func TestAmazonsRuntimeEmulator(t *testing.T) {
	path, env := bootstrap(t), environment(t)
	first, second := startEmulated(t, path, env, 3), startEmulated(t, path, env, 3)

	r, raw := first.post(t, "", initialize)
	require.Equal(t, http.StatusOK, r.StatusCode, raw)
	id := r.Headers["Mcp-Session-Id"]
	require.NotEmpty(t, id, raw)

	r, raw = second.post(t, id, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	assert.Equal(t, http.StatusAccepted, r.StatusCode, raw)
	r, raw = second.post(t, id, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	assert.Equal(t, http.StatusOK, r.StatusCode, raw)
	assert.Contains(t, r.Body, `"echo"`)

	r, raw = first.post(t, "00000000000000000000000000000000", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	assert.Equal(t, http.StatusNotFound, r.StatusCode, raw)

	r, raw = first.post(t, id, call("panic", `{}`))
	assert.Equal(t, http.StatusOK, r.StatusCode, raw)
	r, raw = first.post(t, id, call("echo", `{"after":"panic"}`))
	assert.Contains(t, r.Body, `after`, raw)

	start := time.Now()
	r, raw = first.post(t, id, call("sleep", `{"ms":60000,"key":"x"}`))
	assert.Less(t, time.Since(start), 3*time.Second, "the answer comes before the emulator's limit")
	assert.Equal(t, http.StatusOK, r.StatusCode, raw)
	assert.Contains(t, r.Body, "the runtime's limit")
	r, raw = first.post(t, id, call("echo", `{"after":"timeout"}`))
	assert.Contains(t, r.Body, `after`, raw)

	for _, e := range []*emulated{first, second} {
		assert.NotContains(t, e.output(), "Runtime exited", "the process has lived through it all")
		t.Log("init time of examples/everything:", initTime(e.output()))
	}
}

func initTime(log string) string {
	m := regexp.MustCompile(`INIT REPORT\(durationMs: ([0-9.]+)`).FindStringSubmatch(log)
	if m == nil {
		return "not reported"
	}
	return cmp.Or(m[1], "?") + " ms"
}
