package lambda

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/internal/emulator"
	"github.com/hydrant-mcp/hydrant/store"
	"github.com/hydrant-mcp/hydrant/store/dynamo"
	"github.com/hydrant-mcp/hydrant/store/memory"
)

const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`

// Behind a stage, the URL that is advertised has the stage in its right place: it can be fetched.
func TestLAMBDA41(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle("/mcp", newMCP(nil))
	const metadata = "/.well-known/oauth-protected-resource/mcp"
	mux.HandleFunc("GET "+metadata, func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]string{"resource": RequestContext(r.Context()).BaseURL() + "/mcp"})
	})
	mux.HandleFunc("/guarded", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Metadata", RequestContext(r.Context()).BaseURL()+metadata)
	})
	event := func(method, path, body string) []byte {
		return fmt.Appendf(nil, `{"version":"2.0","rawPath":%q,"body":%q,"headers":{"content-type":"application/json",
			"accept":"application/json, text/event-stream"},"requestContext":{"stage":"prod","domainName":"x.example",
			"http":{"method":%q}}}`, path, body, method)
	}
	r := buffered(t, invoke(t, mux, event("POST", "/prod/mcp", ping)))
	assert.Equal(t, http.StatusOK, r.StatusCode)
	assert.JSONEq(t, `{"jsonrpc":"2.0","id":1,"result":{}}`, r.Body)
	assert.Equal(t, http.StatusOK, buffered(t, invoke(t, mux, event("POST", "/mcp", ping))).StatusCode, "without the stage")

	advertised := buffered(t, invoke(t, mux, event("POST", "/prod/guarded", ""))).header("X-Metadata")
	path, ok := strings.CutPrefix(advertised, "https://x.example")
	require.True(t, ok, advertised)
	r = buffered(t, invoke(t, mux, event("GET", path, "")))
	assert.Equal(t, http.StatusOK, r.StatusCode, advertised)
	assert.JSONEq(t, `{"resource":"https://x.example/prod/mcp"}`, r.Body)
}

// Bodies in base64 are decoded before anything looks at them; what is no base64 is the client's error.
func TestLAMBDA42(t *testing.T) {
	h := newMCP(nil)
	for _, kind := range []string{"function-url", "http", "rest", "alb", "alb-multi"} {
		encoded := func(body string) []byte {
			return change(t, golden(t, kind), func(e map[string]any) { e["body"], e["isBase64Encoded"] = body, true })
		}
		r := buffered(t, invoke(t, h, encoded("eyJqc29ucnBjIjoiMi4wIiwiaWQiOjEsIm1ldGhvZCI6InBpbmcifQ==")))
		assert.Equal(t, http.StatusOK, r.StatusCode, kind)
		assert.JSONEq(t, `{"jsonrpc":"2.0","id":1,"result":{}}`, r.Body, kind)

		r = buffered(t, invoke(t, h, encoded("%%%")))
		assert.Equal(t, http.StatusBadRequest, r.StatusCode, kind)
		assert.JSONEq(t, `{"jsonrpc":"2.0","error":{"code":-32700,"message":"the body of the event is not base64"}}`, r.Body)

		if kind != "function-url" { // once is enough of what is large
			continue
		}
		// Size limits are for what the client sent.
		fits := ping + strings.Repeat(" ", 4<<20-len(ping))
		r = buffered(t, invoke(t, h, encoded(base64.StdEncoding.EncodeToString([]byte(fits)))))
		assert.Equal(t, http.StatusOK, r.StatusCode, kind)
		r = buffered(t, invoke(t, h, encoded(base64.StdEncoding.EncodeToString([]byte(fits+" ")))))
		assert.Equal(t, http.StatusRequestEntityTooLarge, r.StatusCode, kind)
	}
}

// A load balancer is answered in the form that it used.
func TestLAMBDA44(t *testing.T) {
	r := buffered(t, invoke(t, newMCP(nil), []byte(`{"httpMethod":"POST","path":"/mcp","headers":null,"multiValueHeaders":{
		"accept":["application/json","text/event-stream"],"content-type":["application/json"]},
		"body":"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}","isBase64Encoded":false,"requestContext":{"elb":{}}}`)))
	assert.Equal(t, http.StatusOK, r.StatusCode)
	assert.Equal(t, "200 OK", r.StatusDescription)
	assert.JSONEq(t, `{"jsonrpc":"2.0","id":1,"result":{}}`, r.Body)
	assert.Nil(t, r.Headers)
	assert.Equal(t, []string{"application/json"}, r.MultiValueHeaders["Content-Type"])

	r = buffered(t, invoke(t, newMCP(nil), golden(t, "alb")))
	assert.Equal(t, http.StatusOK, r.StatusCode)
	assert.Nil(t, r.MultiValueHeaders)
	assert.Equal(t, "application/json", r.Headers["Content-Type"])
}

// An answer that Lambda would refuse is an error of that one call, which says what the limit is.
func TestLAMBDA46(t *testing.T) {
	for _, c := range []struct {
		kind      string
		arguments string
	}{
		{"function-url", `{"bytes":7340032}`},
		{"http", `{"bytes":7340032}`},
		{"rest", `{"bytes":7340032}`},
		{"alb", `{"bytes":2097152}`},
		{"alb-multi", `{"bytes":2097152}`},
		{"rest", `{"bytes":2500000,"char":"\""}`}, // escaped twice it is four times as large
	} {
		h := newMCP(memory.New())
		header := session(t, h, c.kind)
		out := invoke(t, h, post(t, c.kind, call("large", c.arguments), header))
		assert.Less(t, len(out), 1000)
		r := buffered(t, out)
		assert.Equal(t, http.StatusOK, r.StatusCode, c.kind)
		var got struct {
			ID    int
			Error struct {
				Code    int
				Message string
			}
		}
		require.NoError(t, json.Unmarshal([]byte(r.Body), &got), r.Body)
		assert.Equal(t, 7, got.ID)
		assert.Equal(t, -32603, got.Error.Code)
		assert.Regexp(t, `can return \d{6,}`, got.Error.Message)
		r = buffered(t, invoke(t, h, post(t, c.kind, call("large", `{"bytes":3}`), header)))
		assert.Contains(t, r.Body, "xxx", "the next invocation is healthy")
	}
	// A stream takes it.
	h := newMCP(memory.New())
	header := session(t, h, "function-url")
	r := streamed(t, invoke(t, h, post(t, "function-url", call("large", `{"bytes":7340032}`), header), WithStreaming()))
	assert.Greater(t, len(r.Body), 7340032)
}

// What a notification says is safe when its invocation has returned: the process may be killed then, and another finds the
// session initialized. No environment is there to finish anything later.
func TestLAMBDA47(t *testing.T) {
	endpoint := emulator.DynamoDBForTest(t)
	table := newTable(t, endpoint)
	process := startProcess(t, testTable+"="+table, "AWS_ENDPOINT_URL_DYNAMODB="+endpoint)
	run := func(body string, header map[string]string) response {
		a := begin(t, process, post(t, "function-url", body, header), time.Minute)
		require.Nil(t, a.Err)
		out, err := io.ReadAll(a.Body)
		require.NoError(t, err)
		return streamed(t, out)
	}
	r := run(initialize, nil)
	header := map[string]string{"mcp-session-id": r.header("Mcp-Session-Id")}
	assert.Equal(t, http.StatusAccepted, run(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, header).StatusCode)
	process.Kill()

	seen := &sessionReader{Store: dynamo.New(newClient(t, endpoint), table)}
	r = buffered(t, invoke(t, newMCP(seen), post(t, "function-url", call("where", "{}"), header)))
	assert.Equal(t, http.StatusOK, r.StatusCode, r.Body)
	require.NotNil(t, seen.last)
	assert.True(t, seen.last.Initialized)
}

// A sessionReader shows the record that a handler has read.
type sessionReader struct {
	store.Store
	last *store.Session
}

func (s *sessionReader) Session(ctx context.Context, key string) (*store.Session, error) {
	found, err := s.Store.Session(ctx, key)
	s.last = found
	return found, err
}

// The status and the headers are the handler's where it streams, too.
func TestLAMBDA49(t *testing.T) {
	h := newMCP(nil)
	for _, kind := range []string{"function-url", "rest"} {
		run := func(body string, header map[string]string) response {
			return streamed(t, invoke(t, h, post(t, kind, body, header), WithStreaming()))
		}
		r := run(initialize, nil)
		assert.Equal(t, http.StatusOK, r.StatusCode)
		id := map[string]string{"mcp-session-id": r.header("Mcp-Session-Id")}
		require.NotEmpty(t, id["mcp-session-id"])
		assert.Equal(t, http.StatusAccepted, run(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, id).StatusCode)
		assert.Equal(t, http.StatusOK, run(ping, id).StatusCode)
		assert.Equal(t, http.StatusNotFound, run(ping, map[string]string{"mcp-session-id": "bad"}).StatusCode)
		assert.Equal(t, http.StatusBadRequest, run(`{`, id).StatusCode)

		unauthorized := respondWith(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			w.WriteHeader(http.StatusUnauthorized)
		})
		r = streamed(t, invoke(t, unauthorized, golden(t, kind), WithStreaming()))
		assert.Equal(t, http.StatusUnauthorized, r.StatusCode)
		assert.Equal(t, "Bearer", r.header("Www-Authenticate"))
	}
}

// A call that would overrun the function is answered before Lambda ends it.
func TestTheDeadlineOfTheInvocationBoundsACall(t *testing.T) {
	h := newMCP(nil)
	header := session(t, h, "function-url")
	deadline := time.Now().Add(1200 * time.Millisecond)
	ctx, cancel := context.WithDeadline(t.Context(), deadline)
	defer cancel()
	out, err := NewHandler(h).Invoke(ctx, post(t, "function-url", call("wait", "{}"), header))
	require.NoError(t, err)
	assert.True(t, time.Now().Before(deadline))
	r := buffered(t, out)
	assert.Equal(t, http.StatusOK, r.StatusCode)
	assert.Contains(t, r.Body, `"id":7`)
	assert.Contains(t, r.Body, "limit")
}
