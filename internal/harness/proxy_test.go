package harness

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// backend starts a server that answers with its name, and returns host:port.
func backend(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

func named(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = io.WriteString(w, name+":"+string(body))
	}
}

func proxyOver(t *testing.T, backends ...string) *Proxy {
	t.Helper()
	p, err := StartProxy(backends)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

func post(t *testing.T, url, body string) (int, string) {
	t.Helper()
	resp, err := http.Post(url, "application/json", strings.NewReader(body))
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(text)
}

func TestEveryRequestGoesToTheNextBackendOnOneConnection(t *testing.T) {
	p := proxyOver(t, backend(t, named("a")), backend(t, named("b")), backend(t, named("c")))
	var seen []string
	for range 6 {
		_, text := post(t, p.URL(), "x")
		seen = append(seen, text)
	}
	assert.Equal(t, []string{"a:x", "b:x", "c:x", "a:x", "b:x", "c:x"}, seen)
	assert.Equal(t, []int64{2, 2, 2}, p.Hits())
	assert.Equal(t, 2, p.Last())
}

func TestRequestsAndResponsesPassUnchanged(t *testing.T) {
	var got *http.Request
	p := proxyOver(t, backend(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.Clone(r.Context())
		w.Header().Add("X-Twice", "1")
		w.Header().Add("X-Twice", "2")
		w.Header()["Date"] = nil
		w.WriteHeader(http.StatusTeapot)
	}))
	req, err := http.NewRequest(http.MethodDelete, p.URL()+"?a=1;b=%zz", nil)
	require.NoError(t, err)
	req.Host = "svc.example"
	req.Header["Mcp-Session-Id"] = []string{"one", "two"}
	req.Header["X-Forwarded-For"] = []string{"192.0.2.1"}
	req.Header["User-Agent"] = nil
	req.Header["Accept-Encoding"] = []string{"identity"}
	resp, err := http.DefaultTransport.RoundTrip(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())

	assert.Equal(t, http.MethodDelete, got.Method)
	assert.Equal(t, "/mcp?a=1;b=%zz", got.RequestURI)
	assert.Equal(t, "svc.example", got.Host)
	assert.Equal(t, http.Header{
		"Mcp-Session-Id":  {"one", "two"},
		"X-Forwarded-For": {"192.0.2.1"},
		"Accept-Encoding": {"identity"},
	}, got.Header)
	assert.Equal(t, http.StatusTeapot, resp.StatusCode)
	assert.Equal(t, []string{"1", "2"}, resp.Header["X-Twice"])
}

func TestStreamsPassEventByEvent(t *testing.T) {
	next := make(chan string, 1)
	p := proxyOver(t, backend(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for event := range next {
			_, _ = io.WriteString(w, event+"\n")
			_ = http.NewResponseController(w).Flush()
		}
	}))
	next <- "" // the header goes out with the first write
	resp, err := http.Get(p.URL())
	require.NoError(t, err)
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	_, err = lines.ReadString('\n')
	require.NoError(t, err)
	// Each event must arrive while the backend waits to be given the next one.
	for i := range 5 {
		next <- strconv.Itoa(i)
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		assert.Equal(t, strconv.Itoa(i)+"\n", line)
	}
	close(next)
}

func TestBackendThatIsGoneIsPassedOver(t *testing.T) {
	port, err := freePort()
	require.NoError(t, err)
	gone := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	p := proxyOver(t, gone, backend(t, named("alive")))
	for range 4 {
		status, text := post(t, p.URL(), "the body survives the failed attempt")
		assert.Equal(t, http.StatusOK, status)
		assert.Equal(t, "alive:the body survives the failed attempt", text)
	}
	assert.Equal(t, []int64{0, 4}, p.Hits())

	p = proxyOver(t, gone)
	status, _ := post(t, p.URL(), "")
	assert.Equal(t, http.StatusBadGateway, status)
}

func TestWhatWasSentIsNeverSentAgain(t *testing.T) {
	var calls atomic.Int64
	dies := func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		panic(http.ErrAbortHandler)
	}
	p := proxyOver(t, backend(t, dies), backend(t, dies))
	status, _ := post(t, p.URL(), "{}")
	assert.Equal(t, http.StatusBadGateway, status)
	assert.Equal(t, int64(1), calls.Load())
}

func TestClientThatGoesAwayIsSeenByTheBackend(t *testing.T) {
	gone := make(chan struct{})
	p := proxyOver(t, backend(t, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(gone)
	}))
	resp, err := http.Get(p.URL())
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	select {
	case <-gone:
	case <-time.After(5 * time.Second):
		t.Fatal("the backend was not told")
	}
}

// A response that is longer than one read of the proxy, to a request whose body the proxy has hardly finished sending.
func TestNoResponseIsCutOff(t *testing.T) {
	long := strings.Repeat("x", 64<<10)
	p := proxyOver(t, backend(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, long)
	}))
	for range 1000 {
		_, text := post(t, p.URL(), "{}")
		require.Len(t, text, len(long))
	}
}

func TestBackendThatDiesInAResponseCutsTheClientOff(t *testing.T) {
	p := proxyOver(t, backend(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "half")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	resp, err := http.Get(p.URL())
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	assert.Equal(t, "half", string(text))
	assert.Error(t, err)
}
