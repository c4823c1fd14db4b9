package cloudrun

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/internal/harness"
)

// The tests of this file are faults that users of other MCP servers have met in the field, numbered as in docs/failures.md.
// Each runs the everything example in processes that [Serve] serves.

const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",` +
	`"capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`

var jsonHeaders = []string{"Content-Type", "application/json", "Accept", "application/json, text/event-stream"}

// openSession initializes a session and returns the headers of its messages.
func openSession(t *testing.T, url string) []string {
	t.Helper()
	res, body := send(t, newClient(t, false), http.MethodPost, url, initialize, jsonHeaders...)
	require.Equal(t, 200, res.StatusCode, body)
	id := res.Header.Get("Mcp-Session-Id")
	require.NotEmpty(t, id)
	return append([]string{"Mcp-Session-Id", id}, jsonHeaders...)
}

func TestCLOUDRUN51SessionsSurviveScaleToZero(t *testing.T) {
	for _, st := range []harness.Store{harness.Firestore, harness.DynamoDB} {
		t.Run(string(st), func(t *testing.T) {
			c := startServer(t, serverMCP, harness.Config{Instances: 2, Store: st})
			session := openSession(t, c.Processes[0].URL())
			for _, p := range c.Processes {
				terminate(t, p)
			}
			require.NoError(t, c.Processes[1].Start(t.Context()))
			res, body := send(t, newClient(t, false), http.MethodPost, c.Processes[1].URL(),
				`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`, session...)
			assert.Equal(t, 200, res.StatusCode)
			assert.Contains(t, body, `"echo"`)
		})
	}
}

func TestCLOUDRUN52StatelessGetIs405AtOnce(t *testing.T) {
	c := startServer(t, serverMCP, harness.Config{
		Instances: 1, Store: harness.Memory, Env: map[string]string{"HYDRANT_LEGACY": "stateless"},
	})
	client := newClient(t, false)
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		began := time.Now()
		res, _ := send(t, client, method, c.Processes[0].URL(), "", "Accept", "text/event-stream")
		assert.Equal(t, 405, res.StatusCode)
		assert.Equal(t, "POST", res.Header.Get("Allow"))
		assert.Less(t, time.Since(began), 100*time.Millisecond)
	}
}

// A streamed is a response that is being received.
type streamed struct {
	body *bufio.Reader
	text strings.Builder
}

// stream sends a request and waits until its response contains a text.
func stream(t *testing.T, http2 bool, method, url, body string, header []string, first string) *streamed {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := newClient(t, http2).Do(req)
	require.NoError(t, err)
	t.Cleanup(func() { _ = res.Body.Close() })
	s := &streamed{body: bufio.NewReader(res.Body)}
	for !strings.Contains(s.text.String(), first) {
		line, err := s.body.ReadString('\n')
		require.NoError(t, err, s.text.String())
		s.text.WriteString(line)
	}
	return s
}

// rest gives what follows, to the response's proper end.
func (s *streamed) rest(t *testing.T) <-chan string {
	t.Helper()
	rest := make(chan string, 1)
	go func() {
		all, err := io.ReadAll(s.body)
		assert.NoError(t, err)
		rest <- string(all)
	}()
	return rest
}

// progressCall is a call in either era that says when it has begun.
func progressCall(t *testing.T, era, url, arguments string) (body string, header []string) {
	t.Helper()
	if era == "modern" {
		return modernCall("progress", arguments), modernHeaders("progress")
	}
	return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"progress","arguments":` + arguments +
		`,"_meta":{"progressToken":1}}}`, openSession(t, url)
}

func terminate(t *testing.T, p *harness.Process) {
	t.Helper()
	code, err := p.Terminate(platformLimit)
	require.NoError(t, err)
	assert.Zero(t, code, p.Log())
}

// runAgain starts a process again that an earlier part of a test has ended.
func runAgain(t *testing.T, p *harness.Process) {
	t.Helper()
	if !p.Running() {
		require.NoError(t, p.Start(t.Context()))
	}
}

func TestCLOUDRUN54ACallInProgressAtSIGTERMFinishes(t *testing.T) {
	c := startServer(t, serverMCP, harness.Config{Instances: 2, Store: harness.DynamoDB})
	p := c.Processes[0]
	for _, era := range []string{"legacy", "modern"} {
		t.Run(era, func(t *testing.T) {
			both(t, func(t *testing.T, http2 bool) {
				runAgain(t, p)
				body, header := progressCall(t, era, p.URL(), `{"n":3,"ms":1000}`)
				rest := stream(t, http2, http.MethodPost, p.URL(), body, header, "notifications/progress").rest(t)
				terminate(t, p)
				got := <-rest
				assert.Contains(t, got, `"result"`)
				assert.Contains(t, got, `"done"`)
			})
		})
	}
}

// A call that takes longer than the instance has is not cut without a word either.
func TestACallThatOutlivesTheGraceEndsInAnError(t *testing.T) {
	c := startServer(t, serverMCP, harness.Config{
		Instances: 2, Store: harness.DynamoDB, Env: map[string]string{variableGrace: "300ms"},
	})
	p := c.Processes[0]
	for _, era := range []string{"legacy", "modern"} {
		t.Run(era, func(t *testing.T) {
			both(t, func(t *testing.T, http2 bool) {
				runAgain(t, p)
				body, header := progressCall(t, era, p.URL(), `{"n":1000,"ms":3000}`)
				rest := stream(t, http2, http.MethodPost, p.URL(), body, header, "notifications/progress").rest(t)
				terminate(t, p)
				assert.Contains(t, <-rest, `{"jsonrpc":"2.0","id":1,"`)
			})
		})
	}
}

func TestOpenMCPStreamsEndPolitelyAfterSIGTERM(t *testing.T) {
	c := startServer(t, serverMCP, harness.Config{Instances: 2, Store: harness.DynamoDB})
	p := c.Processes[0]
	both(t, func(t *testing.T, http2 bool) {
		runAgain(t, p)
		legacy := stream(t, http2, http.MethodGet, p.URL(), "", openSession(t, p.URL()), ":\n").rest(t)
		header := append(modernHeaders("")[:6:6], "Mcp-Method", "subscriptions/listen")
		modern := stream(t, http2, http.MethodPost, p.URL(), `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen",`+
			`"params":{"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/clientCapabilities":{},`+
			`"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`, header, "subscriptions/acknowledged").rest(t)
		began := time.Now()
		terminate(t, p)
		assert.Less(t, time.Since(began), 3*time.Second)
		assert.Contains(t, <-legacy, "retry: ")
		assert.Contains(t, <-modern, `"id":1,"result"`)
	})
}

func TestCLOUDRUN56TheServicesHostIsAllowed(t *testing.T) {
	c := startServer(t, serverMCP, harness.Config{Instances: 1, Store: harness.Memory})
	both(t, func(t *testing.T, http2 bool) {
		res, body := send(t, newClient(t, http2), http.MethodPost, c.Processes[0].URL(), initialize,
			append([]string{"Host", "svc-abc-uc.a.run.app"}, jsonHeaders...)...)
		assert.Equal(t, 200, res.StatusCode, body)
	})
}

func TestORIGIN62HealthChecksComeUnderAnyName(t *testing.T) {
	c := startServer(t, serverMCP, harness.Config{Instances: 1, Store: harness.Memory})
	res, body := send(t, newClient(t, false), http.MethodGet, "http://"+c.Processes[0].Addr()+"/healthz", "",
		"Host", "10.0.3.7:8080", "Origin", "https://elsewhere.example")
	assert.Equal(t, 200, res.StatusCode)
	assert.Equal(t, "ok\n", body)
}
