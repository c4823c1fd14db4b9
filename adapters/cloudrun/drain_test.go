package cloudrun

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/internal/harness"
)

// platformLimit is when Cloud Run kills a container after SIGTERM.
const platformLimit = 10 * time.Second

// A plainServer is a process of plainHandler.
type plainServer struct {
	*harness.Process
	url     string
	journal string
}

func startPlain(t *testing.T, env map[string]string) *plainServer {
	t.Helper()
	journal := filepath.Join(t.TempDir(), "journal")
	if env == nil {
		env = map[string]string{}
	}
	env[variableJournal] = journal
	c := startServer(t, serverPlain, harness.Config{Instances: 1, Store: harness.Memory, Env: env})
	return &plainServer{c.Processes[0], "http://" + c.Processes[0].Addr(), journal}
}

// began waits until so many calls have begun.
func (p *plainServer) began(t *testing.T, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(p.journal)
		return err == nil && strings.Count(string(text), "\n") >= n
	}, bound, time.Millisecond)
}

func TestACallInFlightFinishesAfterSIGTERM(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		p := startPlain(t, nil)
		got := make(chan string, 1)
		go func() {
			res, body := send(t, newClient(t, http2), http.MethodPost, p.url+"/call?ms=1500", "")
			got <- res.Status + " " + body
		}()
		p.began(t, 1)
		began := time.Now()
		code, err := p.Terminate(platformLimit)
		require.NoError(t, err)
		assert.Zero(t, code)
		assert.Equal(t, "200 OK done", <-got)
		assert.Less(t, time.Since(began), 4*time.Second, "it ends with the call, not with the grace")
	})
}

func TestOpenStreamsEndPolitelyAfterSIGTERM(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		const streams = 20
		p := startPlain(t, nil)
		var wg sync.WaitGroup
		ends := make([]string, streams)
		for i := range streams {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.url+"/stream", nil)
			require.NoError(t, err)
			res, err := newClient(t, http2).Do(req)
			require.NoError(t, err)
			body := bufio.NewReader(res.Body)
			line, err := body.ReadString('\n')
			require.NoError(t, err)
			require.Equal(t, ":\n", line)
			wg.Go(func() {
				defer res.Body.Close()
				rest, err := io.ReadAll(body)
				ends[i] = string(rest)
				assert.NoError(t, err)
			})
		}
		began := time.Now()
		code, err := p.Terminate(platformLimit)
		require.NoError(t, err)
		assert.Zero(t, code)
		assert.Less(t, time.Since(began), 3*time.Second)
		wg.Wait()
		for _, end := range ends {
			assert.Equal(t, "\nretry: 1000\n\n", end)
		}
	})
}

// A handler that listens to nothing cannot be stopped. The process ends in time and in order all the same.
func TestAHandlerThatNeverEndsDoesNotKeepTheProcess(t *testing.T) {
	p := startPlain(t, nil) // with the default grace
	failed := make(chan error, 1)
	go func() {
		res, err := newClient(t, false).Post(p.url+"/deaf", "", nil)
		if err == nil {
			_ = res.Body.Close()
		}
		failed <- err
	}()
	p.began(t, 1)
	began := time.Now()
	code, err := p.Terminate(platformLimit)
	require.NoError(t, err)
	assert.Zero(t, code)
	assert.Greater(t, time.Since(began), defaultGrace)
	t.Logf("the process ended %v after SIGTERM", time.Since(began).Round(time.Millisecond))
	assert.Error(t, <-failed)
	assert.Contains(t, p.Log(), "requests were cut off")
}

func TestSIGTERMUnderLoadLosesNothing(t *testing.T) {
	for _, load := range []struct {
		name      string
		http2     bool
		reconnect bool // for every call
	}{
		{name: "HTTP/1.1, connections kept"},
		{name: "HTTP/1.1, a connection for each call", reconnect: true},
		{name: "h2c", http2: true},
	} {
		t.Run(load.name, func(t *testing.T) {
			const clients = 24
			p := startPlain(t, nil)
			var served, lost, refused atomic.Int64
			var wg sync.WaitGroup
			stop := make(chan struct{}) // only for a test that fails
			defer close(stop)
			for range clients {
				client := newClient(t, load.http2)
				if load.reconnect {
					client.Transport.(*http.Transport).DisableKeepAlives = true
				}
				wg.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
						}
						res, err := client.Post(p.url+"/call?ms=3", "text/plain", strings.NewReader("x"))
						if err != nil {
							if dial := (*net.OpError)(nil); errors.As(err, &dial) && dial.Op == "dial" {
								refused.Add(1) // never sent: it goes to another instance
							} else {
								lost.Add(1)
								t.Errorf("lost: %v", err)
							}
							return
						}
						body, err := io.ReadAll(res.Body)
						_ = res.Body.Close()
						if err != nil || string(body) != "done" {
							lost.Add(1)
							t.Errorf("lost: %d %q %v", res.StatusCode, body, err)
							return
						}
						served.Add(1)
					}
				})
			}
			require.Eventually(t, func() bool { return served.Load() > 20*clients }, bound, time.Millisecond)
			began := time.Now()
			code, err := p.Terminate(platformLimit)
			require.NoError(t, err)
			assert.Zero(t, code)
			took := time.Since(began)
			wg.Wait()
			t.Logf("%d served, %d lost, %d refused; the process ended after %v", served.Load(), lost.Load(), refused.Load(),
				took.Round(time.Millisecond))
			assert.EqualValues(t, clients, refused.Load())
		})
	}
}
