package lambda

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func respondWith(f http.HandlerFunc) http.Handler { return f }

func TestBodiesThatAreNoTextGoAsBase64(t *testing.T) {
	binary := []byte{0xff, 0x00, 0xfe}
	for _, kind := range []string{"function-url", "http", "rest", "alb", "alb-multi"} {
		h := respondWith(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(binary) })
		r := buffered(t, invoke(t, h, golden(t, kind)))
		assert.True(t, r.IsBase64Encoded, kind)
		got, err := base64.StdEncoding.DecodeString(r.Body)
		require.NoError(t, err)
		assert.Equal(t, binary, got, kind)
		assert.Equal(t, "application/octet-stream", r.header("Content-Type"), "net/http says so too")
	}
}

func TestTextStaysAsItIs(t *testing.T) {
	body := "\"<ü>&\u2028\x00\"\r\n"
	r := buffered(t, invoke(t, respondWith(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }),
		golden(t, "http")))
	assert.False(t, r.IsBase64Encoded)
	assert.Equal(t, body, r.Body)
}

func TestHeadsAreAsOfTheFirstWrite(t *testing.T) {
	for name, c := range map[string]struct {
		h      http.HandlerFunc
		status int
		body   string
		header string
	}{
		"nothing":         {func(http.ResponseWriter, *http.Request) {}, 200, "", ""},
		"no content":      {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204); _, _ = w.Write([]byte("x")) }, 204, "", ""},
		"early hints":     {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(103); w.WriteHeader(404) }, 404, "", ""},
		"twice":           {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404); w.WriteHeader(200) }, 404, "", ""},
		"too late":        {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(202); w.Header().Set("X", "1") }, 202, "", ""},
		"a line break":    {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", "1\r\nY: 2") }, 200, "", "1  Y: 2"},
		"not ours to say": {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "9") }, 200, "", ""},
	} {
		r := buffered(t, invoke(t, c.h, golden(t, "function-url")))
		s := streamed(t, invoke(t, c.h, golden(t, "function-url"), WithStreaming()))
		for _, r := range []response{r, s} {
			assert.Equal(t, c.status, r.StatusCode, name)
			assert.Equal(t, c.body, r.Body, name)
			assert.Equal(t, c.header, r.header("X"), name)
			assert.Empty(t, r.header("Content-Length"), name)
		}
	}
	head := change(t, golden(t, "function-url"), func(e map[string]any) {
		e["requestContext"].(map[string]any)["http"].(map[string]any)["method"] = "HEAD"
	})
	assert.Empty(t, buffered(t, invoke(t, describer, head)).Body)
	assert.Empty(t, streamed(t, invoke(t, describer, head, WithStreaming())).Body)
}

func TestManyCookiesInAFormWithOneValueAName(t *testing.T) {
	r := buffered(t, invoke(t, respondWith(func(w http.ResponseWriter, _ *http.Request) {
		for i := range 20 {
			http.SetCookie(w, &http.Cookie{Name: string(rune('a' + i)), Value: "1"})
		}
	}), golden(t, "alb")))
	got := map[string]bool{}
	for name, v := range r.Headers {
		assert.True(t, strings.EqualFold(name, "Set-Cookie"))
		got[v] = true
	}
	assert.Len(t, got, 20)
}

func TestABufferedWriterDoesNotFlush(t *testing.T) {
	invoke(t, respondWith(func(w http.ResponseWriter, _ *http.Request) {
		assert.ErrorIs(t, http.NewResponseController(w).Flush(), http.ErrNotSupported)
	}), golden(t, "http"), WithStreaming())
}

func TestAPanicIsAnErrorOfThatRequestAlone(t *testing.T) {
	h := respondWith(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Half", "done")
		panic("secret")
	})
	for _, r := range []response{
		buffered(t, invoke(t, h, golden(t, "http"))),
		streamed(t, invoke(t, h, golden(t, "rest"), WithStreaming())),
	} {
		assert.Equal(t, http.StatusInternalServerError, r.StatusCode)
		assert.JSONEq(t, `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"the server failed"}}`, r.Body)
		assert.Equal(t, "application/json", r.header("Content-Type"))
		assert.Empty(t, r.header("X-Half"))
	}
}

// Text whose escapes are what makes it too large goes as base64, except where that could come out as such.
func TestWhatOnlyFitsInBase64GoesInBase64(t *testing.T) {
	body := strings.Repeat(`"`, 4<<20)
	h := respondWith(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) })
	r := buffered(t, invoke(t, h, golden(t, "function-url")))
	assert.True(t, r.IsBase64Encoded)
	got, err := base64.StdEncoding.DecodeString(r.Body)
	require.NoError(t, err)
	assert.Equal(t, body, string(got))

	r = buffered(t, invoke(t, h, golden(t, "rest")))
	assert.Equal(t, http.StatusOK, r.StatusCode)
	assert.Contains(t, r.Body, "it can return 6291456")
}

// The largest body that fits is passed, the next is not: what counts is the answer as it is encoded.
func TestTheLimitIsThatOfTheEncodedAnswer(t *testing.T) {
	body := 0
	h := respondWith(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(bytes.Repeat([]byte("x"), body))
	})
	for kind, limit := range map[string]int{
		"function-url": 6 << 20, "http": 6 << 20, "rest": 6 << 20, "alb": 1 << 20, "alb-multi": 1 << 20,
	} {
		body = 0
		around := len(invoke(t, h, golden(t, kind)))
		body = limit - around
		out := invoke(t, h, golden(t, kind))
		assert.Len(t, out, limit, kind)
		body++
		out = invoke(t, h, golden(t, kind))
		assert.Less(t, len(out), 1000, kind)
		var e struct {
			ID    int
			Error struct{ Code int }
		}
		require.NoError(t, json.Unmarshal([]byte(buffered(t, out).Body), &e))
		assert.Equal(t, -32603, e.Error.Code)
		assert.Equal(t, 1, e.ID)
	}
}

func TestFailuresAnswerWhatWasAsked(t *testing.T) {
	large := strings.Repeat("x", 7<<20)
	run := func(kind, body, contentType string) response {
		return buffered(t, invoke(t, respondWith(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			w.Header().Set("Mcp-Session-Id", "s")
			w.Header().Set("Content-Encoding", "identity")
			_, _ = io.WriteString(w, large)
		}), post(t, kind, body, nil)))
	}
	message := `{"code":-32603,"message":"the response has `
	for name, c := range map[string]struct{ body, contentType, want string }{
		"number":     {`{"id":9007199254740993,"method":"x"}`, "application/json", `{"jsonrpc":"2.0","id":9007199254740993,"error":` + message},
		"string":     {`{"id":"1","method":"x"}`, "application/json", `{"jsonrpc":"2.0","id":"1","error":` + message},
		"batch":      {`[{"id":1,"method":"x"},{"method":"n"},{"id":2,"method":"x"}]`, "application/json", `[{"jsonrpc":"2.0","id":1,"error":`},
		"stream":     {`{"id":1,"method":"x"}`, "text/event-stream", "event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,"},
		"no message": {`hello`, "application/json", `{"jsonrpc":"2.0","error":` + message},
		"null id":    {`{"id":null,"method":"x"}`, "application/json", `{"jsonrpc":"2.0","error":` + message},
	} {
		r := run("http", c.body, c.contentType)
		assert.True(t, strings.HasPrefix(r.Body, c.want), "%s: %s", name, r.Body)
		assert.Equal(t, c.contentType, r.header("Content-Type"))
		assert.Equal(t, "s", r.header("Mcp-Session-Id"), "the session is there all the same")
		assert.Empty(t, r.header("Content-Encoding"))
		want := http.StatusOK
		if !strings.Contains(r.Body, `"id":`) {
			want = http.StatusInternalServerError
		}
		assert.Equal(t, want, r.StatusCode, name)
	}
}
