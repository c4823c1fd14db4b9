package lambda

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	awslambda "github.com/aws/aws-lambda-go/lambda"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hydrant-mcp/hydrant/internal/lambdafront"
)

// A gate answers, once for each pass, whoever waits there. Close opens it for good.
type gate struct {
	url  string
	pass chan struct{}
}

func newGate(t *testing.T) gate {
	g := gate{pass: make(chan struct{})}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-g.pass:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(server.Close)
	g.url = server.URL
	return g
}

// at is an event for a path of the scripted function.
func at(t *testing.T, kind, path, gate string) []byte {
	return change(t, golden(t, kind), func(e map[string]any) {
		e["path"], e["rawPath"], e["body"] = path, path, "{}"
		e["rawQueryString"] = url.Values{"gate": {gate}}.Encode()
		e["multiValueQueryStringParameters"] = map[string]any{"gate": []any{gate}}
	})
}

func trailer(t *testing.T, a *lambdafront.Answer) (e lambdafront.FunctionError) {
	t.Helper()
	text, err := base64.StdEncoding.DecodeString(a.Trailer().Get(lambdafront.TrailerErrorBody))
	require.NoError(t, err)
	if len(text) > 0 {
		require.NoError(t, json.Unmarshal(text, &e))
		assert.Equal(t, a.Trailer().Get(lambdafront.TrailerErrorType), e.Type)
	}
	return e
}

// Each chunk is there while the function does not go on before the test says so: nothing waits for the next write.
func TestStreamsArriveChunkByChunk(t *testing.T) {
	for _, kind := range []string{"function-url", "rest"} {
		t.Run(kind, func(t *testing.T) {
			process, g := startProcess(t), newGate(t)
			a := begin(t, process, at(t, kind, "/chunks", g.url), time.Minute)
			require.Nil(t, a.Err)
			assert.Equal(t, "application/vnd.awslambda.http-integration-response", a.ContentType)
			in := bufio.NewReader(a.Body)
			head := readHead(t, in)
			assert.Equal(t, http.StatusOK, head.StatusCode)
			assert.Equal(t, "text/event-stream", head.header("Content-Type"))
			for _, want := range []string{"data: 0\n\n", "data: 1\n\n", "data: 2\n\n"} {
				chunk := make([]byte, len(want))
				_, err := io.ReadFull(in, chunk)
				require.NoError(t, err)
				assert.Equal(t, want, string(chunk))
				assert.Zero(t, in.Buffered())
				g.pass <- struct{}{}
			}
			rest, err := io.ReadAll(in)
			require.NoError(t, err)
			assert.Empty(t, rest)
			assert.Empty(t, trailer(t, a))
			requireHealthy(t, process)
		})
	}
}

func TestAPanicInTheMiddleOfAStreamShows(t *testing.T) {
	process := startProcess(t)
	for range 2 {
		a := begin(t, process, at(t, "function-url", "/panic-late", ""), time.Minute)
		in := bufio.NewReader(a.Body)
		assert.Equal(t, http.StatusOK, readHead(t, in).StatusCode)
		body, err := io.ReadAll(in)
		require.NoError(t, err)
		assert.Equal(t, "data: 0\n\n", string(body))
		assert.Equal(t, lambdafront.FunctionError{Type: "Hydrant.Handler", Message: "the handler panicked"}, trailer(t, a))
	}
	requireHealthy(t, process)
}

func TestAPanicBeforeAStreamIsAResponse(t *testing.T) {
	process := startProcess(t)
	a := begin(t, process, at(t, "rest", "/panic", ""), time.Minute)
	in := bufio.NewReader(a.Body)
	assert.Equal(t, http.StatusInternalServerError, readHead(t, in).StatusCode)
	body, err := io.ReadAll(in)
	require.NoError(t, err)
	assert.JSONEq(t, `{"jsonrpc":"2.0","error":{"code":-32603,"message":"the server failed"}}`, string(body))
	assert.Empty(t, trailer(t, a))
	requireHealthy(t, process)
}

// A handler that heeds its context ends its stream by itself, and in time.
func TestAStreamEndsBeforeTheDeadline(t *testing.T) {
	process := startProcess(t)
	deadline := time.Now().Add(time.Second)
	a, err := process.Invoke(t.Context(), at(t, "function-url", "/until-the-context-ends", ""), deadline)
	require.NoError(t, err)
	in := bufio.NewReader(a.Body)
	readHead(t, in)
	body, err := io.ReadAll(in)
	require.NoError(t, err)
	assert.Equal(t, "retry: 1000\n\n", string(body))
	assert.Empty(t, trailer(t, a))
	assert.True(t, time.Now().Before(deadline), "%v late", time.Since(deadline))
	requireHealthy(t, process)
}

// One that hangs is cut, and the caller can tell.
func TestAStreamThatHangsIsCutBeforeTheDeadline(t *testing.T) {
	process, g := startProcess(t), newGate(t)
	deadline := time.Now().Add(time.Second)
	a, err := process.Invoke(t.Context(), at(t, "function-url", "/deaf", g.url), deadline)
	require.NoError(t, err)
	in := bufio.NewReader(a.Body)
	readHead(t, in)
	body, err := io.ReadAll(in)
	require.NoError(t, err)
	assert.Equal(t, "data: 0\n\n", string(body))
	assert.Equal(t, "Hydrant.Deadline", trailer(t, a).Type)
	assert.True(t, time.Now().Before(deadline), "%v late", time.Since(deadline))
	// Lambda would kill it now. Where it is let go on, it is healthy.
	g.pass <- struct{}{}
	requireHealthy(t, process)
}

func TestSIGTERMEndsStreamsPolitelyAndThenTheProcess(t *testing.T) {
	process := startProcess(t)
	require.True(t, process.API.WantsSIGTERM(), "without an extension Lambda sends none")
	a := begin(t, process, at(t, "function-url", "/until-it-drains", ""), time.Minute)
	in := bufio.NewReader(a.Body)
	readHead(t, in)
	first := make([]byte, len("data: 0\n\n"))
	_, err := io.ReadFull(in, first)
	require.NoError(t, err)

	type end struct {
		code int
		err  error
	}
	ended := make(chan end)
	go func() {
		code, err := process.Terminate(10 * time.Second)
		ended <- end{code, err}
	}()
	rest, err := io.ReadAll(in)
	require.NoError(t, err)
	assert.Equal(t, "retry: 1000\n\n", string(rest))
	assert.Empty(t, trailer(t, a), "a polite end is no error")
	e := <-ended
	require.NoError(t, e.err)
	assert.Zero(t, e.code)
}

func TestSIGTERMEndsAnIdleProcess(t *testing.T) {
	process := startProcess(t)
	requireHealthy(t, process)
	code, err := process.Terminate(10 * time.Second)
	require.NoError(t, err)
	assert.Zero(t, code)
}

// A process may be told to serve several invocations at once.
func TestInvocationsAtOnce(t *testing.T) {
	process, g := startProcess(t, "AWS_LAMBDA_MAX_CONCURRENCY=2"), newGate(t)
	process.StayAwake()
	slow := begin(t, process, at(t, "function-url", "/chunks", g.url), time.Minute)
	requireHealthy(t, process)
	for range 3 {
		g.pass <- struct{}{}
	}
	_, err := io.ReadAll(slow.Body)
	require.NoError(t, err)
	assert.Empty(t, trailer(t, slow))
}

// When the runtime's client takes no more, the handler is told, and has ended when the answer is closed.
func TestAClosedStreamEndsItsHandler(t *testing.T) {
	before := goleak.IgnoreCurrent()
	wrote := make(chan error, 1)
	f := newFunction(respondWith(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		<-r.Context().Done()
		_, err := io.WriteString(w, "nobody reads this")
		wrote <- err
		assert.ErrorIs(t, http.NewResponseController(w).Flush(), io.ErrClosedPipe)
	}), []Option{WithStreaming()})
	out, err := f.invoke(t.Context(), golden(t, "function-url"))
	require.NoError(t, err)
	require.NoError(t, out.(io.Closer).Close())
	assert.ErrorIs(t, <-wrote, io.ErrClosedPipe)
	goleak.VerifyNone(t, before)
}

func TestNothingRunsAfterAnInvocation(t *testing.T) {
	before := goleak.IgnoreCurrent()
	h := newMCP(nil)
	header := session(t, h, "function-url")
	for _, opts := range [][]Option{nil, {WithStreaming()}} {
		for _, body := range []string{
			initialize, call("where", "{}"), `{"jsonrpc":"2.0","method":"notifications/initialized"}`, "%%",
		} {
			invoke(t, h, post(t, "function-url", body, header), opts...)
			goleak.VerifyNone(t, before)
		}
	}
}

var _ awslambda.Handler = NewHandler(http.NotFoundHandler())
