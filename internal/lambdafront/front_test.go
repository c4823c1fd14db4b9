package lambdafront_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hydrant-mcp/hydrant/adapters/lambda"
	"github.com/hydrant-mcp/hydrant/internal/lambdafront"
)

const testFunction = "LAMBDAFRONT_TEST_FUNCTION"

func TestMain(m *testing.M) {
	if os.Getenv(testFunction) != "" {
		var opts []lambda.Option
		if os.Getenv("HYDRANT_STREAMING") == "1" {
			opts = append(opts, lambda.WithStreaming())
		}
		lambda.Start(function(), opts...) // does not return
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(os.Exit))
}

// function is what the test binary is when it is started as one.
func function() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.SetCookie(w, &http.Cookie{Name: "a", Value: "1"})
		http.SetCookie(w, &http.Cookie{Name: "b", Value: "2"})
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(map[string]any{
			"pid": os.Getpid(), "method": r.Method, "path": r.URL.Path, "query": r.URL.Query(), "cookie": r.Header.Get("Cookie"),
			"two": r.Header.Values("X-Two"), "body": string(body), "base": lambda.RequestContext(r.Context()).BaseURL(),
		})
	})
	mux.HandleFunc("/hang", func(http.ResponseWriter, *http.Request) { select {} })
	mux.HandleFunc("/hold", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "held\n")
		<-r.Context().Done()
	})
	mux.HandleFunc("/cut", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "before\n")
		panic(http.ErrAbortHandler)
	})
	mux.HandleFunc("/exit", func(http.ResponseWriter, *http.Request) { os.Exit(3) })
	return mux
}

func start(t *testing.T, cfg lambdafront.Config) *lambdafront.Front {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cfg.Bootstrap, cfg.Dir = self, t.TempDir()
	cfg.Env = append(os.Environ(), testFunction+"=1")
	front, err := lambdafront.Start(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		front.Stop()
		if t.Failed() {
			t.Log(front.Log())
		}
	})
	return front
}

type echo struct {
	PID                              int
	Method, Path, Cookie, Body, Base string
	Query                            map[string][]string
	Two                              []string
}

func get(t *testing.T, url string) (*http.Response, echo) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url, strings.NewReader("\xff\x00ü"))
	require.NoError(t, err)
	req.Header.Set("Cookie", "s=1; theme=dark")
	req.Header.Add("X-Two", "one")
	req.Header.Add("X-Two", "two")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	var e echo
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	_ = json.Unmarshal(text, &e)
	return resp, e
}

func TestRequestsComeThroughAsTheyAre(t *testing.T) {
	for _, source := range lambdafront.Sources() {
		for _, streaming := range []bool{false, true} {
			if streaming && source != lambdafront.FunctionURL && source != lambdafront.REST {
				continue
			}
			t.Run(fmt.Sprintf("%s, streaming %t", source, streaming), func(t *testing.T) {
				front := start(t, lambdafront.Config{Source: source, Streaming: streaming, Instances: 2})
				resp, e := get(t, front.BaseURL()+"/echo?a=1&b=%C3%BC+x")
				assert.Equal(t, http.StatusCreated, resp.StatusCode)
				assert.ElementsMatch(t, []string{"a=1", "b=2"}, resp.Header.Values("Set-Cookie"))
				challenge := "WWW-Authenticate"
				if source == lambdafront.REST || source == lambdafront.HTTP {
					assert.Empty(t, resp.Header.Get(challenge))
					challenge = "X-Amzn-Remapped-" + challenge
				}
				assert.Equal(t, "Bearer", resp.Header.Get(challenge))
				assert.Equal(t, http.MethodPut, e.Method)
				assert.Equal(t, "/echo", e.Path)
				assert.Equal(t, map[string][]string{"a": {"1"}, "b": {"ü x"}}, e.Query)
				assert.Equal(t, "s=1; theme=dark", e.Cookie)
				assert.Equal(t, "\ufffd\x00ü", e.Body, "through JSON once, on the way back")
				assert.Contains(t, strings.Join(e.Two, ","), "two")
				_, again := get(t, front.BaseURL()+"/echo")
				assert.NotEqual(t, e.PID, again.PID, "processes take turns")
				_, again = get(t, front.BaseURL()+"/echo")
				assert.Equal(t, e.PID, again.PID)
			})
		}
	}
}

func TestAFunctionThatOverrunsIsKilledAndReplaced(t *testing.T) {
	front := start(t, lambdafront.Config{Instances: 1, Timeout: 500 * time.Millisecond})
	resp, _ := get(t, front.BaseURL()+"/hang")
	assert.Equal(t, http.StatusBadGateway, resp.StatusCode)
	assert.EqualValues(t, 1, front.Kills())
	resp, _ = get(t, front.BaseURL()+"/echo")
	assert.Equal(t, http.StatusCreated, resp.StatusCode)
	assert.Equal(t, 1, front.Instances())
}

func TestAFunctionThatEndsIsReplaced(t *testing.T) {
	front := start(t, lambdafront.Config{Instances: 1})
	resp, _ := get(t, front.BaseURL()+"/exit")
	assert.Equal(t, http.StatusBadGateway, resp.StatusCode)
	resp, _ = get(t, front.BaseURL()+"/echo")
	assert.Equal(t, http.StatusCreated, resp.StatusCode)
}

func TestAHeldStreamBringsAnotherProcess(t *testing.T) {
	front := start(t, lambdafront.Config{Instances: 1, Streaming: true, Timeout: 5 * time.Second})
	ctx, leave := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, front.BaseURL()+"/hold", nil)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	line, err := bufio.NewReader(resp.Body).ReadString('\n')
	require.NoError(t, err)
	assert.Equal(t, "held\n", line, "it is here while the function still writes")
	leave() // which the function is not told
	other, _ := get(t, front.BaseURL()+"/echo")
	assert.Equal(t, http.StatusCreated, other.StatusCode)
	assert.Equal(t, 2, front.Instances())
	assert.Zero(t, front.Kills())
}

func TestAnErrorInTheMiddleOfAStreamIsNotAnEnd(t *testing.T) {
	front := start(t, lambdafront.Config{Instances: 1, Streaming: true})
	resp, err := http.Get(front.BaseURL() + "/cut")
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
	assert.Equal(t, "before\n", string(text))
	again, _ := get(t, front.BaseURL()+"/echo")
	assert.Equal(t, http.StatusCreated, again.StatusCode)
}

func TestAFrontDoorThatIsSetUpOtherwiseThanTheFunctionShows(t *testing.T) {
	t.Setenv("HYDRANT_STREAMING", "1")
	front := start(t, lambdafront.Config{Instances: 1})
	resp, _ := get(t, front.BaseURL()+"/echo")
	assert.Equal(t, http.StatusBadGateway, resp.StatusCode)
	assert.Contains(t, front.Log(), "the function streams, and the front door does not")
}

func TestAStageIsPartOfTheURL(t *testing.T) {
	front := start(t, lambdafront.Config{Source: lambdafront.REST, Instances: 1})
	base, ok := strings.CutSuffix(front.BaseURL(), "/prod")
	require.True(t, ok)
	resp, _ := get(t, base+"/echo")
	assert.Equal(t, http.StatusForbidden, resp.StatusCode)
	_, e := get(t, front.BaseURL()+"/echo")
	assert.True(t, strings.HasSuffix(e.Base, "/prod"), e.Base)
}
