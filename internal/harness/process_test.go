package harness

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The test binary plays the server: with HARNESS_FAKE set it serves /healthz and ends on SIGTERM, or misbehaves as named.
func TestMain(m *testing.M) {
	switch os.Getenv("HARNESS_FAKE") {
	case "":
		os.Exit(m.Run())
	case "exits":
		fmt.Println("bad configuration")
		os.Exit(3)
	case "serves", "deaf":
		ctx := context.Background()
		if os.Getenv("HARNESS_FAKE") == "deaf" {
			signal.Ignore(syscall.SIGTERM)
		} else {
			ctx, _ = signal.NotifyContext(ctx, syscall.SIGTERM)
		}
		fmt.Println("serving with", os.Getenv("HYDRANT_STORE"))
		http.HandleFunc("/healthz", func(http.ResponseWriter, *http.Request) {})
		http.HandleFunc("/mcp", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, os.Getpid()) })
		go func() { _ = http.ListenAndServe(os.Getenv("HOST")+":"+os.Getenv("PORT"), nil) }()
		<-ctx.Done()
		os.Exit(7)
	}
}

// fakeCluster starts the test binary as the server.
func fakeCluster(t *testing.T, fake string) (*Cluster, error) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	t.Setenv("HARNESS_SERVER", self)
	c, err := Start(t.Context(), Config{
		Instances: 2, Store: DynamoDB, Endpoint: "http://127.0.0.1:1", Dir: t.TempDir(),
		Env: map[string]string{"HARNESS_FAKE": fake},
	})
	if err == nil {
		t.Cleanup(c.Stop)
	}
	return c, err
}

func TestProcessLivesThroughKillAndRestartOnItsPort(t *testing.T) {
	c, err := fakeCluster(t, "serves")
	require.NoError(t, err)
	_, first := post(t, c.URL(), "")
	_, second := post(t, c.URL(), "")
	assert.NotEqual(t, first, second, "two processes")
	assert.Equal(t, "serving with dynamodb\n", c.Processes[0].Log())

	c.Kill(0)
	assert.False(t, c.Processes[0].Running())
	for range 4 {
		_, text := post(t, c.URL(), "")
		assert.Equal(t, second, text, "only the other one is left")
	}

	addr := c.Processes[0].Addr()
	require.NoError(t, c.Processes[0].Start(t.Context()))
	assert.Equal(t, addr, c.Processes[0].Addr())
	seen := map[string]bool{}
	for range 4 {
		_, text := post(t, c.URL(), "")
		seen[text] = true
	}
	assert.Len(t, seen, 2)
	assert.NotContains(t, seen, first, "a new process")
	assert.Error(t, c.Processes[0].Start(t.Context()), "it runs already")
}

func TestTerminateReturnsTheExitCodeAndEndsTheDeaf(t *testing.T) {
	c, err := fakeCluster(t, "serves")
	require.NoError(t, err)
	code, err := c.Processes[1].Terminate(10 * time.Second)
	require.NoError(t, err)
	assert.Equal(t, 7, code)

	c, err = fakeCluster(t, "deaf")
	require.NoError(t, err)
	_, err = c.Processes[0].Terminate(50 * time.Millisecond)
	require.Error(t, err)
	assert.False(t, c.Processes[0].Running())
}

func TestServerThatDoesNotStartIsReportedWithItsLog(t *testing.T) {
	_, err := fakeCluster(t, "exits")
	require.ErrorIs(t, err, errExited)
	assert.ErrorContains(t, err, "bad configuration")
	assert.ErrorContains(t, err, "exit status 3")
}

func TestSurroundingsDoNotConfigureTheServer(t *testing.T) {
	t.Setenv("HYDRANT_ORIGINS", "https://evil.example")
	t.Setenv("AWS_PROFILE", "production")
	t.Setenv("PORT", "1")
	t.Setenv("FOR_ALL", "kept")
	env, err := Environment(Config{Store: Memory, Env: map[string]string{"HYDRANT_TABLE": "mine"}}, "tally")
	require.NoError(t, err)
	assert.Contains(t, env, "FOR_ALL=kept")
	assert.Contains(t, env, "HYDRANT_TABLE=mine")
	for _, entry := range env {
		assert.NotRegexp(t, "^(HYDRANT_ORIGINS|AWS_|PORT=)", entry)
	}
	_, err = Start(t.Context(), Config{Store: Memory, Instances: 2})
	assert.ErrorContains(t, err, "memory")
}

func TestStoreThatHasEndedIsNoticed(t *testing.T) {
	alive := backend(t, named("store"))
	for _, endpoint := range []string{"", alive, "http://" + alive} {
		assert.NoError(t, StoreReachable(endpoint), endpoint)
	}
	port, err := freePort()
	require.NoError(t, err)
	assert.ErrorContains(t, StoreReachable("http://127.0.0.1:"+strconv.Itoa(port)), "emulator has ended")
}

func TestFreePortsCanBeListenedOn(t *testing.T) {
	port, err := freePort()
	require.NoError(t, err)
	assert.Positive(t, port)
	assert.NotEmpty(t, tail(filepath.Join(t.TempDir(), "none"+strconv.Itoa(port)), 1))
}
