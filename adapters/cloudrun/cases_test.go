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
				code, err := p.Terminate(platformLimit)
				require.NoError(t, err)
				assert.Zero(t, code, p.Log())
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

func TestCLOUDRUN54ACallInProgressAtSIGTERMFinishes(t *testing.T) {
	c := startServer(t, serverMCP, harness.Config{Instances: 2, Store: harness.DynamoDB})
	p := c.Processes[0]
	const legacyCall = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"progress",` +
		`"arguments":{"n":3,"ms":1000},"_meta":{"progressToken":1}}}`
	for _, era := range []struct {
		name, body string
		header     []string
	}{
		{"legacy", legacyCall, openSession(t, p.URL())},
		{"modern", modernCall("progress", `{"n":3,"ms":1000}`), modernHeaders("progress")},
	} {
		both(t, func(t *testing.T, http2 bool) {
			if !p.Running() {
				require.NoError(t, p.Start(t.Context()))
			}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.URL(), strings.NewReader(era.body))
			require.NoError(t, err)
			for i := 0; i < len(era.header); i += 2 {
				req.Header.Set(era.header[i], era.header[i+1])
			}
			res, err := newClient(t, http2).Do(req)
			require.NoError(t, err)
			defer res.Body.Close()
			stream := bufio.NewReader(res.Body)
			var text strings.Builder
			for !strings.Contains(text.String(), "notifications/progress") { // the tool runs
				line, err := stream.ReadString('\n')
				require.NoError(t, err)
				text.WriteString(line)
			}
			rest := make(chan string, 1)
			go func() {
				all, err := io.ReadAll(stream)
				assert.NoError(t, err)
				rest <- string(all)
			}()
			code, err := p.Terminate(platformLimit)
			require.NoError(t, err)
			assert.Zero(t, code)
			got := <-rest
			assert.Contains(t, got, `"done"`, era.name)
			assert.Contains(t, got, `"result"`, era.name)
		})
	}
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
