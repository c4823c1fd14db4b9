package notes

import (
	"net/http"

	"github.com/hydrant-mcp/hydrant/handler"
	"github.com/hydrant-mcp/hydrant/store"
)

// NewHandler serves some notes over HTTP, with the sessions of clients in a store. All commands have it in common; what
// differs is the database and the platform.
func NewHandler(storage Storage, sessions store.Store, opts *handler.Options) http.Handler {
	opts.Name = name
	return withoutIdleStreams(handler.New(NewServer(storage), sessions, opts))
}

// withoutIdleStreams refuses the stream on which clients of the older protocol versions wait for announcements. The notes
// announce nothing, and a stream is paid for as long as it is open, also when nothing is sent: on Lambda it holds a
// function, on Cloud Run it keeps an instance from going away. What a client asks for with Last-Event-ID is the rest of an
// answer, and it gets that.
func withoutIdleStreams(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && r.Header.Get("Last-Event-ID") == "" {
			// The handler itself refuses to wait where nothing can be sent before the end.
			r = r.WithContext(handler.WithRuntime(r.Context(), handler.Runtime{Buffered: true}))
		}
		h.ServeHTTP(w, r)
	})
}
