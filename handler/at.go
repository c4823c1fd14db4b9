package handler

import (
	"io"
	"net/http"
	"strings"
)

// At serves h at one path, like "/mcp", with or without a slash at its end; everything else is 404. Unlike [http.ServeMux] it
// never redirects: a POST to a path that is not clean, like "//mcp", would be lost, or arrive as a GET.
func At(path string, h http.Handler) http.Handler {
	path = strings.TrimSuffix(path, "/")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.TrimSuffix(r.URL.Path, "/") == path {
			h.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", typeJSON)
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","error":{"code":-32600,"message":"there is no MCP endpoint at this path"}}`)
	})
}
