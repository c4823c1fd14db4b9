//lint:file-ignore SA1019 Logging is deprecated as of 2026-07-28 and stays in use.

package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/examples/everything/server"
)

// serve gives the URL of a stateless HTTP endpoint, for what the SDK's client would not send.
func serve(t *testing.T, wrap func(http.Handler) http.Handler) string {
	t.Helper()
	s := server.New(nil)
	var h http.Handler = mcp.NewStreamableHTTPHandler(
		func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true})
	if wrap != nil {
		h = wrap(h)
	}
	hs := httptest.NewServer(h)
	t.Cleanup(hs.Close)
	return hs.URL
}

// post calls a tool with exactly these arguments and returns the response.
func post(t *testing.T, url, tool, arguments, token string) (response struct {
	Result *struct {
		Content           []struct{ Text string }
		StructuredContent json.RawMessage
	}
	Error *jsonrpc.Error
}) {
	t.Helper()
	if arguments != "" {
		arguments = `"arguments":` + arguments + `,`
	}
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + tool + `",` + arguments +
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	require.NoError(t, err)
	for k, v := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"MCP-Protocol-Version": modern, "Mcp-Method": "tools/call", "Mcp-Name": tool,
	} {
		req.Header.Set(k, v)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	got, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(got, &response), "%s", got)
	return response
}

func TestEchoReturnsItsArgumentsByteForByte(t *testing.T) {
	url := serve(t, nil)
	for _, args := range []string{
		`{}`,
		`{"n":9007199254740993,"m":-9223372036854775808,"z":-0.0}`,
		`{ "b" : 1 ,` + "\t" + `"a":[ ] }`,
		`{"s":"<&>\u2028\/ \ud83d\ude00 中文字"}`,
	} {
		r := post(t, url, "echo", args, "")
		require.NotNil(t, r.Result, "%s: %v", args, r.Error)
		assert.Equal(t, args, r.Result.Content[0].Text)
		assert.Equal(t, numbers(t, args), numbers(t, string(r.Result.StructuredContent)))
	}
}

// numbers decodes JSON with its numbers as they are written.
func numbers(t *testing.T, s string) (v any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(s))
	d.UseNumber()
	require.NoError(t, d.Decode(&v))
	return v
}

func TestArgumentsMayBeAbsentAndMustBeAnObject(t *testing.T) {
	url := serve(t, nil)
	for _, tool := range []string{"whoami", "echo"} {
		for _, args := range []string{"", "null", "{}"} {
			r := post(t, url, tool, args, "")
			require.NotNil(t, r.Result, "%s %q", tool, args)
			assert.Equal(t, "{}", r.Result.Content[0].Text)
		}
		for _, args := range []string{"[1]", `"x"`, "5", "true"} {
			r := post(t, url, tool, args, "")
			require.NotNil(t, r.Error, "%s %s", tool, args)
			assert.EqualValues(t, jsonrpc.CodeInvalidParams, r.Error.Code)
		}
	}
}

func TestWhoamiNamesThePrincipal(t *testing.T) {
	verify := func(context.Context, string, *http.Request) (*auth.TokenInfo, error) {
		return &auth.TokenInfo{
			UserID: "ann", Scopes: []string{"read"}, Expiration: time.Now().Add(time.Hour),
			Extra: map[string]any{"iss": "https://issuer.example"},
		}, nil
	}
	r := post(t, serve(t, auth.RequireBearerToken(verify, nil)), "whoami", "", "token")
	require.NotNil(t, r.Result)
	assert.JSONEq(t, `{"issuer":"https://issuer.example","subject":"ann","scopes":["read"]}`, r.Result.Content[0].Text)
}

func TestAskReturnsActionAndContent(t *testing.T) {
	who := map[string]any{"message": "who?"}
	cs := connect(t, server.New(nil), legacy, accepts(map[string]any{"answer": "me"}))
	assert.JSONEq(t, `{"action":"accept","content":{"answer":"me"}}`, textOf(t, call(t, cs, "ask", who)))

	cs = connect(t, server.New(nil), legacy, &mcp.ClientOptions{
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "decline"}, nil
		},
	})
	assert.JSONEq(t, `{"action":"decline"}`, textOf(t, call(t, cs, "ask", who)))

	cs = connect(t, server.New(nil), modern, accepts(nil))
	assert.True(t, call(t, cs, "ask", who).IsError, "a modern client cannot be asked in the middle of a call")
}

func TestStrictChecksItsArguments(t *testing.T) {
	cs := connect(t, server.New(nil), modern, nil)
	for name, tc := range map[string]struct {
		args any
		ok   bool
	}{
		"right":      {map[string]any{"count": 3, "mode": "a"}, true},
		"fraction":   {map[string]any{"count": 1.5, "mode": "a"}, false},
		"string":     {map[string]any{"count": "3", "mode": "a"}, false},
		"wrong enum": {map[string]any{"count": 3, "mode": "c"}, false},
		"missing":    {map[string]any{"count": 3}, false},
		"extra":      {map[string]any{"count": 3, "mode": "a", "x": 1}, false},
		"none":       {nil, false},
	} {
		r := call(t, cs, "strict", tc.args)
		assert.Equal(t, tc.ok, !r.IsError, name)
		if tc.ok {
			assert.JSONEq(t, `{"count":3,"mode":"a"}`, textOf(t, r))
		}
	}
}

func TestLargeIsAsLargeAsAsked(t *testing.T) {
	cs := connect(t, server.New(nil), modern, nil)
	for _, n := range []int{0, 1, 1 << 20} {
		assert.Len(t, textOf(t, call(t, cs, "large", map[string]any{"bytes": n})), n)
	}
	for _, n := range []int{-1, 1 << 40} {
		assert.True(t, call(t, cs, "large", map[string]any{"bytes": n}).IsError, n)
	}
}

func TestProgressNeedsAToken(t *testing.T) {
	bothEras(t, func(t *testing.T, version string) {
		got := make(chan *mcp.ProgressNotificationParams, 10)
		cs := connect(t, server.New(nil), version, &mcp.ClientOptions{
			ProgressNotificationHandler: func(_ context.Context, req *mcp.ProgressNotificationClientRequest) {
				got <- req.Params
			},
		})
		args := map[string]any{"n": 3, "ms": 1}
		assert.Equal(t, "done", textOf(t, call(t, cs, "progress", args)))

		p := &mcp.CallToolParams{Name: "progress", Arguments: args}
		p.SetProgressToken("token")
		r, err := cs.CallTool(t.Context(), p)
		require.NoError(t, err)
		assert.Equal(t, "done", textOf(t, r))
		for i := range 3 {
			select {
			case n := <-got:
				assert.Equal(t, "token", n.ProgressToken, "the call without a token sent nothing")
				assert.EqualValues(t, i+1, n.Progress)
				assert.EqualValues(t, 3, n.Total)
			case <-time.After(patience):
				require.Fail(t, "a notification is missing", i)
			}
		}
	})
}

func TestLogSendsMessagesOfItsLevel(t *testing.T) {
	got := make(chan *mcp.LoggingMessageParams, 10)
	cs := connect(t, server.New(nil), legacy, &mcp.ClientOptions{
		LoggingMessageHandler: func(_ context.Context, req *mcp.LoggingMessageRequest) { got <- req.Params },
	})
	require.NoError(t, cs.SetLoggingLevel(t.Context(), &mcp.SetLoggingLevelParams{Level: "warning"}))
	assert.Equal(t, "done", textOf(t, call(t, cs, "log", map[string]any{"n": 5})), "info is below the level")
	assert.Equal(t, "done", textOf(t, call(t, cs, "log", map[string]any{"n": 2, "level": "error"})))
	for i := range 2 {
		select {
		case m := <-got:
			assert.EqualValues(t, "error", m.Level)
			assert.Equal(t, fmt.Sprintf("message %d of 2", i+1), m.Data)
		case <-time.After(patience):
			require.Fail(t, "a message is missing", i)
		}
	}
	assert.True(t, call(t, cs, "log", map[string]any{"n": 1, "level": "loud"}).IsError)
}

func TestTouchReachesSubscribers(t *testing.T) {
	const uri = "test://watched-resource"
	got := make(chan string, 10)
	cs := connect(t, server.New(nil), legacy, &mcp.ClientOptions{
		ResourceUpdatedHandler: func(_ context.Context, req *mcp.ResourceUpdatedNotificationRequest) {
			got <- req.Params.URI
		},
	})
	require.NoError(t, cs.Subscribe(t.Context(), &mcp.SubscribeParams{URI: uri}))
	assert.False(t, call(t, cs, "touch", map[string]any{"uri": uri}).IsError)
	select {
	case touched := <-got:
		assert.Equal(t, uri, touched)
	case <-time.After(patience):
		require.Fail(t, "the update was not announced")
	}
}

func TestTallyIsSharedByInstances(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tally")
	a := connect(t, server.New(&server.Options{Tally: file}), modern, nil)
	b := connect(t, server.New(&server.Options{Tally: file}), modern, nil)
	assert.Equal(t, "ran:one", textOf(t, call(t, a, "tally", map[string]any{"key": "one"})))
	assert.Equal(t, "ran:two", textOf(t, call(t, b, "tally", map[string]any{"key": "two"})))
	assert.False(t, call(t, a, "sleep", map[string]any{"ms": 1, "key": "three"}).IsError)
	assert.True(t, call(t, a, "tally", map[string]any{"key": "two\nlines"}).IsError)
	assert.Equal(t, "ran:one\nran:two\ndone:three\n", read(t, file))
}

func TestSleepTalliesItsCancellation(t *testing.T) {
	bothEras(t, func(t *testing.T, version string) {
		file := filepath.Join(t.TempDir(), "tally")
		s := server.New(&server.Options{Tally: file})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		// The SDK does not run what was cancelled before it began: wait until it has.
		s.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
			return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
				if method == "tools/call" {
					cancel()
				}
				return next(ctx, method, req)
			}
		})
		cs := connect(t, s, version, nil)
		_, err := cs.CallTool(ctx, &mcp.CallToolParams{
			Name: "sleep", Arguments: map[string]any{"ms": 60_000, "key": "k"},
		})
		require.Error(t, err)
		assert.Eventually(t, func() bool { return read(t, file) == "cancelled:k\n" }, patience, 10*time.Millisecond)
	})
}

// A tally that cannot be written must not look like a call that did not run.
func TestTallyThatCannotBeWrittenIsAnError(t *testing.T) {
	cs := connect(t, server.New(&server.Options{Tally: t.TempDir()}), modern, nil)
	assert.True(t, call(t, cs, "tally", map[string]any{"key": "k"}).IsError)
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return ""
	}
	require.NoError(t, err)
	return string(b)
}
