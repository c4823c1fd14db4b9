package cloudrun

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A call that has ended its response by itself, so that its client polls, has no connection any more. It is waited for all
// the same.
func TestACallThatHungUpIsWaitedFor(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	release, finished := make(chan struct{}), make(chan struct{})
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if !assert.NoError(t, err) {
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		_ = conn.Close()
		<-release
		close(finished)
	})
	served := make(chan error, 1)
	go func() {
		served <- Serve(ctx, h, WithListener(l), WithLogger(slog.New(slog.DiscardHandler)), WithGrace(20*time.Second))
	}()
	res, err := http.Get("http://" + l.Addr().String() + "/")
	require.NoError(t, err)
	res.Body.Close()
	stop()
	select {
	case <-served:
		assert.Fail(t, "the process would have ended with the call")
	case <-time.After(2 * time.Second): // far more than draining takes without a call
	}
	close(release)
	<-finished
	assert.NoError(t, <-served)
	http.DefaultClient.CloseIdleConnections()
}
