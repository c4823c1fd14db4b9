package handler

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestAtNeverRedirects(t *testing.T) {
	h := At("/mcp", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) }))
	for path, want := range map[string]int{"/mcp": 202, "/mcp/": 202, "//mcp": 404, "/x/../mcp": 404, "/": 404, "/mcp/x": 404} {
		for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodDelete} {
			r := httptest.NewRequest(method, "/", nil)
			r.URL.Path = path
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			assert.Equal(t, want, w.Code, path)
		}
	}
}
