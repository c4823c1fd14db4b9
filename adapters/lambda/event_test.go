package lambda

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/lambdacontext"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files of this test instead of comparing with them")

// describe writes down all that a handler is given.
func describe(r *http.Request) string {
	var out strings.Builder
	c := RequestContext(r.Context())
	body, _ := io.ReadAll(r.Body)
	fmt.Fprintf(&out, "%s %s %s\n", r.Method, r.RequestURI, r.Proto)
	fmt.Fprintf(&out, "path   %q, escaped %q\nquery  %v\n", r.URL.Path, r.URL.EscapedPath(), r.URL.Query())
	fmt.Fprintf(&out, "host   %s\nremote %s\nlength %d\n\n", r.Host, r.RemoteAddr, r.ContentLength)
	_ = r.Header.Write(&out)
	fmt.Fprintf(&out, "\n%s\n\nsource     %s\nbase URL   %s\n", body, c.SourceIP(), c.BaseURL())
	fmt.Fprintf(&out, "claims     %v\nauthorizer %v\n", c.Claims(), c.Authorizer())
	iam, ok := c.IAM()
	fmt.Fprintf(&out, "iam        %v %+v\n", ok, iam)
	return strings.ReplaceAll(out.String(), "\r\n", "\n")
}

var describer = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain")
	w.Header().Add("X-Two", "one")
	w.Header().Add("X-Two", "two")
	http.SetCookie(w, &http.Cookie{Name: "a", Value: "1"})
	http.SetCookie(w, &http.Cookie{Name: "b", Value: "2"})
	w.WriteHeader(http.StatusTeapot)
	_, _ = io.WriteString(w, describe(r))
})

// Each file of testdata is an event as AWS sends it; the file .want beside it is what the handler sees, and what comes
// back: run with -update to write them, and read the difference.
func TestEventsBecomeRequestsAndResponses(t *testing.T) {
	files, err := filepath.Glob("testdata/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		if strings.HasPrefix(name, "other-") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			r := buffered(t, invoke(t, describer, golden(t, name)))
			body := r.Body
			r.Body = ""
			head, err := json.MarshalIndent(r, "", "  ")
			require.NoError(t, err)
			got := fmt.Sprintf("%s\n%s\n", body, head)
			want := filepath.Join("testdata", name+".want")
			if *update {
				require.NoError(t, os.WriteFile(want, []byte(got), 0o644))
			}
			text, err := os.ReadFile(want)
			require.NoError(t, err)
			assert.Equal(t, string(text), got)
		})
	}
}

func TestOtherEventsAreRefused(t *testing.T) {
	never := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler was called") })
	for name, payload := range map[string]string{
		"WebSocket": string(golden(t, "other-websocket")),
		"SQS":       string(golden(t, "other-sqs")),
		"schedule":  string(golden(t, "other-schedule")),
		"empty":     `{}`,
		"null":      `null`,
		"array":     `[]`,
		"text":      `"warm"`,
		"method":    `{"requestContext":{"http":{}},"rawPath":"/"}`,
	} {
		_, err := NewHandler(never).Invoke(t.Context(), []byte(payload))
		assert.ErrorIs(t, err, errNotHTTP, name)
	}
}

// What AWS leaves out, or sends as null, is empty.
func TestSparseEvents(t *testing.T) {
	for name, payload := range map[string]string{
		"REST": `{"httpMethod":"GET","requestContext":{}}`,
		"REST, null": `{"httpMethod":"GET","path":null,"headers":null,"multiValueHeaders":null,"queryStringParameters":null,
			"multiValueQueryStringParameters":null,"requestContext":{"identity":null,"stage":null},
			"body":null,"isBase64Encoded":null}`,
		"HTTP API": `{"version":"2.0","requestContext":{"http":{"method":"GET"}}}`,
		"HTTP API, null": `{"version":"2.0","cookies":null,"headers":null,"rawPath":"",
			"requestContext":{"http":{"method":"GET"}},"body":null}`,
		"ALB":        `{"httpMethod":"GET","requestContext":{"elb":{}}}`,
		"ALB, empty": `{"httpMethod":"GET","path":"","multiValueHeaders":{},"requestContext":{"elb":{}}}`,
	} {
		var seen *http.Request
		h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = r })
		r := buffered(t, invoke(t, h, []byte(payload)))
		assert.Equal(t, http.StatusOK, r.StatusCode, name)
		require.NotNil(t, seen, name)
		assert.Equal(t, "/", seen.URL.Path, name)
		assert.Equal(t, "/", seen.RequestURI, name)
		assert.Empty(t, seen.RemoteAddr, name)
		assert.Equal(t, http.NoBody, seen.Body, name)
	}
}

func TestPathsKeepTheirEscapes(t *testing.T) {
	for raw, want := range map[string]struct{ path, escaped string }{
		"/a%2Fb/%C3%BC": {"/a/b/ü", "/a%2Fb/%C3%BC"},
		"/a b":          {"/a b", "/a%20b"},
		"/100%":         {"/100%", "/100%25"},
		"//evil/x":      {"//evil/x", "//evil/x"},
		"mcp":           {"/mcp", "/mcp"},
		"":              {"/", "/"},
	} {
		h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			assert.Equal(t, want.path, r.URL.Path, raw)
			assert.Equal(t, want.escaped, r.URL.EscapedPath(), raw)
			assert.Empty(t, r.URL.Host)
		})
		invoke(t, h, change(t, golden(t, "function-url"), func(e map[string]any) { e["rawPath"] = raw }))
	}
}

func TestStagesAndBasePathsComeOff(t *testing.T) {
	for _, c := range []struct {
		name, event, path, full, stage, base string
		want, prefix                         string
	}{
		{"no stage", "http", "/mcp", "", "$default", "", "/mcp", ""},
		{"stage in the path", "http", "/prod/mcp", "", "prod", "", "/mcp", "/prod"},
		{"stage not in the path", "http", "/mcp", "", "prod", "", "/mcp", ""},
		{"only the stage", "http", "/prod", "", "prod", "", "/", "/prod"},
		{"a longer word", "http", "/production/mcp", "", "prod", "", "/production/mcp", ""},
		{"twice", "http", "/prod/prod/mcp", "", "prod", "", "/prod/mcp", "/prod"},
		{"API mapping", "http", "/v1/mcp", "", "live", "/v1", "/mcp", "/v1"},
		{"API mapping, written loosely", "http", "/v1/mcp", "", "live", "v1/", "/mcp", "/v1"},
		{"stage and base path", "http", "/prod/v1/mcp", "", "prod", "/v1", "/mcp", "/prod/v1"},
		{"base path not there", "http", "/mcp", "", "prod", "/v1", "/mcp", ""},
		{"REST", "rest", "/mcp", "/prod/mcp", "prod", "", "/mcp", "/prod"},
		{"REST, a resource named as its stage", "rest", "/prod/mcp", "/prod/prod/mcp", "prod", "", "/prod/mcp", "/prod"},
		{"REST, base path", "rest", "/v1/mcp", "/v1/mcp", "prod", "/v1", "/mcp", "/v1"},
		{"payload format 1.0", "http-payload-1.0", "/prod/mcp", "/prod/mcp", "prod", "", "/mcp", "/prod"},
		{"Function URL", "function-url", "/prod/mcp", "", "prod", "", "/prod/mcp", ""},
		{"ALB", "alb", "/app/mcp", "", "", "/app", "/mcp", "/app"},
	} {
		called := false
		h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			called = true
			assert.Equal(t, c.want, r.URL.Path, c.name)
			assert.Equal(t, c.prefix, r.Header.Get("X-Forwarded-Prefix"), c.name)
			assert.True(t, strings.HasPrefix(RequestContext(r.Context()).BaseURL(), "https://"), c.name)
			assert.Equal(t, c.prefix, RequestContext(r.Context()).BaseURL()[len("https://"+r.Host):], c.name)
		})
		invoke(t, h, change(t, golden(t, c.event), func(e map[string]any) {
			e["path"], e["rawPath"] = c.path, c.path
			context := e["requestContext"].(map[string]any)
			context["path"], context["stage"] = c.full, c.stage
		}), WithBasePath(c.base))
		assert.True(t, called, c.name)
	}
}

func TestHeaderNamesInAnyCase(t *testing.T) {
	payload := change(t, golden(t, "rest"), func(e map[string]any) {
		e["headers"] = map[string]any{"MCP-SESSION-ID": "s", "accept": "b", "only-here": "1"}
		e["multiValueHeaders"] = map[string]any{"ACCEPT": []any{"a"}, "Accept": []any{"b"}, "mcp-session-id": []any{"s"}}
	})
	invoke(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		assert.Equal(t, []string{"a", "b"}, r.Header.Values("Accept"))
		assert.Equal(t, []string{"s"}, r.Header.Values("Mcp-Session-Id"))
		assert.Equal(t, []string{"1"}, r.Header.Values("Only-Here"))
	}), payload)
}

func TestHealthChecksDoNotReachTheHandler(t *testing.T) {
	never := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler was called") })
	at := func(kind, path, method string) []byte {
		return change(t, golden(t, kind), func(e map[string]any) {
			e["rawPath"], e["path"], e["httpMethod"] = path, path, method
			if http, ok := e["requestContext"].(map[string]any)["http"].(map[string]any); ok {
				http["method"] = method
			}
		})
	}
	for name, c := range map[string]struct {
		payload []byte
		opts    []Option
	}{
		"ALB":              {payload: golden(t, "alb-health")},
		"ALB, multi":       {payload: golden(t, "alb-multi-health")},
		"Function URL":     {payload: at("function-url", "/healthz", "GET")},
		"HEAD":             {payload: at("http", "/healthz", "HEAD")},
		"behind a stage":   {payload: at("http-stage", "/prod/healthz", "GET")},
		"at another path":  {payload: at("rest", "/up", "GET"), opts: []Option{WithHealthPath("/up")}},
		"where it streams": {payload: at("rest", "/healthz", "GET"), opts: []Option{WithStreaming()}},
	} {
		out := invoke(t, never, c.payload, c.opts...)
		if len(c.opts) > 0 && name == "where it streams" {
			assert.Equal(t, http.StatusOK, streamed(t, out).StatusCode, name)
			continue
		}
		assert.Equal(t, http.StatusOK, buffered(t, out).StatusCode, name)
	}
	teapot := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	for name, c := range map[string]struct {
		payload []byte
		opts    []Option
	}{
		"POST":         {payload: at("function-url", "/healthz", "POST")},
		"turned off":   {payload: at("function-url", "/healthz", "GET"), opts: []Option{WithHealthPath("")}},
		"another path": {payload: at("function-url", "/healthz/x", "GET")},
		"a user agent that anyone can have": {payload: post(t, "function-url-get", "",
			map[string]string{"user-agent": "ELB-HealthChecker/2.0"})},
	} {
		assert.Equal(t, http.StatusTeapot, buffered(t, invoke(t, teapot, c.payload, c.opts...)).StatusCode, name)
	}
}

// whereabouts is what a tool can find out about the event that it runs for.
func whereabouts(ctx context.Context) string {
	c := RequestContext(ctx)
	out := fmt.Sprintf("%s %s", c.SourceIP(), c.Claims()["sub"])
	if lc, ok := lambdacontext.FromContext(ctx); ok {
		out += " " + lc.AwsRequestID
	}
	if h, ok := c.HTTP(); ok {
		out += " " + h.RouteKey
	}
	return out
}

func TestToolsSeeTheEvent(t *testing.T) {
	h := newMCP(nil)
	header := session(t, h, "http")
	ctx := lambdacontext.NewContext(t.Context(), &lambdacontext.LambdaContext{AwsRequestID: "request-1"})
	out, err := NewHandler(h).Invoke(ctx, post(t, "http", call("where", "{}"), header))
	require.NoError(t, err)
	assert.Contains(t, buffered(t, out).Body, "205.255.255.176 user-1 request-1 POST /mcp")
}

func TestWithoutAnEventThereIsNothingToKnow(t *testing.T) {
	c := RequestContext(t.Context())
	assert.Nil(t, c)
	assert.Empty(t, c.SourceIP()+c.BaseURL())
	assert.Nil(t, c.Claims())
	assert.Nil(t, c.Authorizer())
	for _, ok := range []bool{second(c.FunctionURL()), second(c.REST()), second(c.HTTP()), second(c.ALB()), second(c.IAM())} {
		assert.False(t, ok)
	}
}

func second[T any](_ T, ok bool) bool { return ok }

func TestEachKindHasItsContext(t *testing.T) {
	for event, want := range map[string]string{
		"function-url": "url", "rest": "rest", "http-payload-1.0": "rest", "http": "http", "alb": "alb", "alb-multi": "alb",
	} {
		invoke(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			c := RequestContext(r.Context())
			u, isURL := c.FunctionURL()
			rest, isREST := c.REST()
			h, isHTTP := c.HTTP()
			alb, isALB := c.ALB()
			assert.Equal(t, want == "url", isURL, event)
			assert.Equal(t, want == "rest", isREST, event)
			assert.Equal(t, want == "http", isHTTP, event)
			assert.Equal(t, want == "alb", isALB, event)
			assert.Equal(t, 1, strings.Count(fmt.Sprint(u.RequestID != "", rest.RequestID != "", h.RequestID != "",
				alb.ELB.TargetGroupArn != ""), "true"), event)
		}), golden(t, event))
	}
}

func TestTheRuntimeTravelsWithTheRequest(t *testing.T) {
	f := newFunction(describer, []Option{WithStreaming()})
	buffering := newFunction(describer, nil)
	patient := newFunction(describer, []Option{WithGatewayTimeout(2 * time.Minute)})
	in := func(d time.Duration) context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		t.Cleanup(cancel)
		return ctx
	}
	for _, c := range []struct {
		f        *function
		event    string
		lambda   time.Duration
		buffered bool
		max      int64
		left     time.Duration
	}{
		{f, "function-url", time.Minute, false, 200 << 20, time.Minute},
		{f, "rest", 20 * time.Minute, false, 200 << 20, 15 * time.Minute},
		{f, "http", time.Minute, true, 6<<20 - headRoom, 30 * time.Second},
		{f, "http-payload-1.0", time.Minute, true, 6<<20 - headRoom, 30 * time.Second},
		{f, "alb", time.Minute, true, 1<<20 - headRoom, time.Minute},
		{buffering, "function-url", time.Minute, true, 6<<20 - headRoom, time.Minute},
		{buffering, "rest", time.Minute, true, 6<<20 - headRoom, 29 * time.Second},
		{buffering, "rest", time.Second, true, 6<<20 - headRoom, time.Second},
		{patient, "rest", time.Hour, true, 6<<20 - headRoom, 2 * time.Minute},
	} {
		e, err := decodeEvent(golden(t, c.event))
		require.NoError(t, err)
		r := c.f.runtime(in(c.lambda), e, c.f.streaming && e.kind.canStream())
		assert.Equal(t, c.buffered, r.Buffered, c.event)
		assert.Equal(t, c.max, r.MaxResponse, c.event)
		assert.WithinDuration(t, time.Now().Add(c.left), r.Deadline, time.Second, c.event)
		assert.NotNil(t, r.Draining)
	}
}

// A gateway waits from the moment at which it has taken the request: a cold start comes off.
func TestTheGatewaysTimeRunsFromItsOwnStart(t *testing.T) {
	f := newFunction(describer, nil)
	for ago, left := range map[time.Duration]time.Duration{
		10 * time.Second: 20 * time.Second, // a cold start
		-time.Hour:       30 * time.Second, // a clock that is off
		24 * time.Hour:   30 * time.Second, // a recorded event
	} {
		e, err := decodeEvent(change(t, golden(t, "http"), func(e map[string]any) {
			e["requestContext"].(map[string]any)["timeEpoch"] = time.Now().Add(-ago).UnixMilli()
		}))
		require.NoError(t, err)
		assert.WithinDuration(t, time.Now().Add(left), f.runtime(context.Background(), e, false).Deadline, time.Second)
	}
}

// Whatever comes in: an error that says that it is no HTTP event, or a well-formed answer in both modes.
func FuzzEvent(f *testing.F) {
	files, err := filepath.Glob("testdata/*.json")
	require.NoError(f, err)
	for _, file := range files {
		payload, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(payload)
	}
	f.Add([]byte(`{"httpMethod":"POST","path":"/%zz","isBase64Encoded":true,"body":"%%%","requestContext":{"elb":{}}}`))
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, values := range r.Header {
			w.Header()[name] = values
		}
		_, _ = io.WriteString(w, describe(r))
	})
	f.Fuzz(func(t *testing.T, payload []byte) {
		out, err := NewHandler(echo).Invoke(t.Context(), payload)
		again, errAgain := NewHandler(echo, WithStreaming(), WithBasePath("/v1")).Invoke(t.Context(), payload)
		require.Equal(t, err == nil, errAgain == nil)
		if err != nil {
			if json.Valid(payload) { // else aws-lambda-go has refused it
				require.ErrorIs(t, err, errNotHTTP)
			}
			return
		}
		r := buffered(t, out)
		require.GreaterOrEqual(t, r.StatusCode, 200)
		if bytes.Contains(again, make([]byte, 8)) && !json.Valid(again) {
			require.Equal(t, r.StatusCode, streamed(t, again).StatusCode)
		} else {
			require.Equal(t, r.StatusCode, buffered(t, again).StatusCode)
		}
	})
}
