package deploy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/internal/harness"
)

// compose.yaml's proxy, with its own configuration: only the addresses are this machine's.
func TestProxyHopsStreamsAndPassesOverTheDead(t *testing.T) {
	nginx, err := exec.LookPath("nginx")
	if err != nil {
		harness.Missing(t, "nginx", "install the package nginx of your distribution")
	}
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	instance := func(name string) *httptest.Server {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, name)
			if r.URL.Path == "/stream" {
				_ = http.NewResponseController(w).Flush()
				select {
				case <-release:
				case <-r.Context().Done():
				}
			}
		}))
		t.Cleanup(s.Close)
		return s
	}
	one, two := instance("1"), instance("2")
	address := func(s *httptest.Server) string { return s.Listener.Addr().String() }
	front, other := freePort(t), freePort(t)

	text, err := os.ReadFile(filepath.Join(root(t), "deploy", "compose", "nginx.conf"))
	require.NoError(t, err)
	dir := t.TempDir()
	var temporary string
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		temporary += fmt.Sprintf("%s_temp_path %s;\n", kind, filepath.Join(dir, kind))
	}
	config := strings.NewReplacer(
		"lambda-1:8080", address(one), "lambda-2:8080", address(two),
		"cloudrun-1:8080", address(one), "cloudrun-2:8080", address(two),
		"listen 8080", "listen 127.0.0.1:"+front, "listen 8081", "listen 127.0.0.1:"+other,
		"http {", "http {\naccess_log off;\n"+temporary,
	).Replace(string(text))
	file := filepath.Join(dir, "nginx.conf")
	require.NoError(t, os.WriteFile(file, []byte(config), 0o600))

	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, nginx, "-p", dir, "-c", file, "-e", "stderr",
		"-g", "daemon off; master_process off; pid "+filepath.Join(dir, "pid")+";")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(output.String())
		}
	})
	url := "http://127.0.0.1:" + front
	get := func() (string, error) {
		res, err := http.Get(url)
		if err != nil {
			return "", err
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		return string(body), err
	}
	require.Eventually(t, func() bool { _, err := get(); return err == nil }, 10*time.Second, 20*time.Millisecond)

	seen := map[string]int{}
	for range 10 {
		body, err := get()
		require.NoError(t, err)
		seen[body]++
	}
	assert.Equal(t, map[string]int{"1": 5, "2": 5}, seen, "every request to the next instance")

	res, err := http.Get(url + "/stream")
	require.NoError(t, err)
	first := make([]byte, 1)
	_, err = io.ReadFull(res.Body, first)
	require.NoError(t, err, "what is written is there before the response has ended")
	require.NoError(t, res.Body.Close())

	two.Config.SetKeepAlivesEnabled(false)
	two.CloseClientConnections()
	require.NoError(t, two.Listener.Close())
	for range 4 {
		res, err := http.Post(url, "text/plain", strings.NewReader("x"))
		require.NoError(t, err)
		body, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		assert.Equal(t, "1", string(body), "a dead instance is passed over")
	}
}

// freePort returns a port of the loopback interface that nothing listens on.
func freePort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	return strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
}
