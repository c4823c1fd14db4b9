package cloudrun

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/hydrant-mcp/hydrant/examples/everything/config"
	"github.com/hydrant-mcp/hydrant/internal/emulator"
	"github.com/hydrant-mcp/hydrant/internal/harness"
)

// A test binary with this variable is a server, and no test runs: what SIGTERM does shows only in a process.
const (
	variableServer = "CLOUDRUN_TEST_SERVER"
	serverMCP      = "mcp"   // the everything example
	serverPlain    = "plain" // plainHandler

	variableGrace   = "CLOUDRUN_TEST_GRACE"
	variableJournal = "CLOUDRUN_TEST_JOURNAL" // a file that plainHandler notes calls in
)

func TestMain(m *testing.M) {
	if which := os.Getenv(variableServer); which != "" {
		if err := serveForTest(which); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(emulator.Main(m))
}

// serveForTest is the main of the server processes.
func serveForTest(which string) error {
	ctx := context.Background()
	logger := slog.New(NewLogHandler(os.Stderr, &LogOptions{Level: slog.LevelDebug}))
	opts := []Option{WithLogger(logger)}
	if grace := os.Getenv(variableGrace); grace != "" {
		d, err := time.ParseDuration(grace)
		if err != nil {
			return err
		}
		opts = append(opts, WithGrace(d))
	}
	if which == serverPlain {
		c, err := settle(opts)
		if err != nil {
			return err
		}
		s := newServer(c, nil)
		s.handler = plainHandler(os.Getenv(variableJournal), s.draining)
		return s.serve(ctx)
	}
	c, err := config.Load(os.Getenv)
	if err != nil {
		return err
	}
	st, shut, err := c.OpenStore(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = shut() }()
	h, err := c.Handler(ctx, st, logger, nil)
	if err != nil {
		return err
	}
	return Serve(ctx, h, opts...)
}

// plainHandler does what a test asks for. It notes each call that it begins in the journal, if there is one.
func plainHandler(journal string, draining <-chan struct{}) http.Handler {
	mux := http.NewServeMux()
	note := func(what string) {
		f, err := os.OpenFile(journal, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return
		}
		defer f.Close()
		_, _ = f.WriteString(what + "\n")
	}
	mux.HandleFunc("POST /call", func(w http.ResponseWriter, r *http.Request) {
		note("call")
		ms, _ := strconv.Atoi(r.URL.Query().Get("ms"))
		select {
		case <-time.After(time.Duration(ms) * time.Millisecond):
			_, _ = io.WriteString(w, "done")
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("GET /stream", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, ":\n\n")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-draining:
			_, _ = io.WriteString(w, "retry: 1000\n\n")
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("POST /deaf", func(http.ResponseWriter, *http.Request) {
		note("deaf")
		select {}
	})
	return mux
}

// startServer starts a server process and returns its harness.
func startServer(t *testing.T, which string, cfg harness.Config) *harness.Cluster {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("HARNESS_SERVER", self)
	if cfg.Env == nil {
		cfg.Env = map[string]string{}
	}
	cfg.Env[variableServer] = which
	cfg.Env["GORACE"] = "halt_on_error=1 atexit_sleep_ms=0" // the default is a second between the end and the exit
	return harness.StartForTest(t, cfg)
}
