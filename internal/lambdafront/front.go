package lambdafront

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Config says what to start.
type Config struct {
	// Bootstrap is the function's binary, built for this machine.
	Bootstrap string
	// Env is the whole environment of its processes, but for what Lambda adds and HYDRANT_STREAMING.
	Env []string
	// Source is the front door. Default: FunctionURL.
	Source Source
	// Streaming sets the front door up for streams, and the function with HYDRANT_STREAMING=1.
	Streaming bool
	// Instances is how many processes there are from the start; requests go to each in turn. Default: 3.
	Instances int
	// MaxInstances is how many there may be when all are busy. Default: 32. At the limit a request waits.
	MaxInstances int
	// Timeout is the function's. Default: 30 s.
	Timeout time.Duration
	// Dir takes the processes' logs, in one file, function.log.
	Dir string
}

// A Front is a function behind its front door.
type Front struct {
	cfg      Config
	server   *http.Server
	listener net.Listener
	log      *os.File
	ctx      context.Context
	cancel   context.CancelFunc
	busy     sync.WaitGroup

	idle  chan *Instance // the one that has waited longest comes first
	mu    sync.Mutex
	all   map[*Instance]bool
	kills atomic.Int64
}

// Start starts a function and returns when all of its first processes are there.
func Start(ctx context.Context, cfg Config) (*Front, error) {
	if cfg.Source == "" {
		cfg.Source = FunctionURL
	}
	if cfg.Instances == 0 {
		cfg.Instances = 3
	}
	cfg.MaxInstances = max(cfg.MaxInstances, cfg.Instances, 32)
	if cfg.Timeout == 0 {
		cfg.Timeout = 30 * time.Second
	}
	if cfg.Streaming && !cfg.Source.canStream() {
		return nil, fmt.Errorf("lambdafront: %s cannot stream", cfg.Source)
	}
	if cfg.Streaming {
		cfg.Env = append(cfg.Env[:len(cfg.Env):len(cfg.Env)], "HYDRANT_STREAMING=1")
	}
	f := &Front{cfg: cfg, idle: make(chan *Instance, cfg.MaxInstances), all: map[*Instance]bool{}}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	var err error
	f.log, err = os.OpenFile(filepath.Join(cfg.Dir, "function.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	for range cfg.Instances {
		i, err := f.startInstance(ctx)
		if err != nil {
			f.Stop()
			return nil, err
		}
		f.idle <- i
	}
	if f.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		f.Stop()
		return nil, err
	}
	f.server = &http.Server{Handler: f, ErrorLog: log.New(io.Discard, "", 0)}
	go func() { _ = f.server.Serve(f.listener) }()
	return f, nil
}

// BaseURL is the URL of the function's "/", with the stage of an API Gateway.
func (f *Front) BaseURL() string {
	url := "http://" + f.listener.Addr().String()
	if stage := f.cfg.Source.stage(); stage != "" {
		url += "/" + stage
	}
	return url
}

// URL is the MCP endpoint.
func (f *Front) URL() string { return f.BaseURL() + "/mcp" }

// Instances is how many processes there are now.
func (f *Front) Instances() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.all)
}

// Kills is how many processes were killed because they overran their time.
func (f *Front) Kills() int64 { return f.kills.Load() }

// Log is what the processes have written so far.
func (f *Front) Log() string {
	text, err := os.ReadFile(f.log.Name())
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Stop ends everything.
func (f *Front) Stop() {
	f.cancel()
	if f.server != nil {
		_ = f.server.Close()
	}
	f.mu.Lock()
	for i := range f.all {
		i.Kill()
	}
	clear(f.all)
	f.mu.Unlock()
	f.busy.Wait()
	_ = f.log.Close()
}

func (f *Front) startInstance(ctx context.Context) (*Instance, error) {
	i, err := StartInstance(ctx, f.cfg.Bootstrap, f.cfg.Env, f.log)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ctx.Err() != nil {
		i.Kill()
		return nil, f.ctx.Err()
	}
	f.all[i] = true
	return i, nil
}

// take gives the process that has been idle longest, or a new one when none is.
func (f *Front) take(ctx context.Context) (*Instance, error) {
	for {
		select {
		case i := <-f.idle:
			if f.alive(i) {
				return i, nil
			}
			continue
		default:
		}
		if f.Instances() < f.cfg.MaxInstances {
			return f.startInstance(ctx)
		}
		select {
		case i := <-f.idle:
			if f.alive(i) {
				return i, nil
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (f *Front) alive(i *Instance) bool {
	select {
	case <-i.exited:
		f.forget(i)
		return false
	default:
		return true
	}
}

func (f *Front) forget(i *Instance) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all[i] {
		delete(f.all, i)
		i.Kill()
	}
}

// maxBody is what Lambda takes of an event, in bytes.
const maxBody = 6 << 20

// ServeHTTP is the front door.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if stage := f.cfg.Source.stage(); stage != "" {
		rest, ok := strings.CutPrefix(r.URL.Path, "/"+stage)
		if !ok || rest != "" && rest[0] != '/' {
			http.Error(w, `{"message":"Forbidden"}`, http.StatusForbidden)
			return
		}
		r.URL.Path, r.URL.RawPath = rest, strings.TrimPrefix(r.URL.RawPath, "/"+stage)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, `{"message":"Request Too Long"}`, http.StatusRequestEntityTooLarge)
		return
	}
	payload, err := f.cfg.Source.event(r, body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	f.busy.Add(1)
	defer f.busy.Done()
	// The client's context does not count from here: Lambda never hears of a client that goes.
	i, err := f.take(f.ctx)
	if err != nil {
		f.refuse(w, err)
		return
	}
	deadline := time.Now().Add(f.cfg.Timeout)
	overrun := time.AfterFunc(f.cfg.Timeout, func() {
		f.kills.Add(1)
		f.forget(i)
	})
	err = f.serve(w, i, payload, deadline)
	if overrun.Stop() && f.alive(i) {
		f.idle <- i
	}
	switch {
	case err == nil:
	case errors.Is(err, errCut):
		_, _ = fmt.Fprintln(f.log, err)
		panic(http.ErrAbortHandler) // so that the client sees a cut, not an end
	default:
		f.refuse(w, err)
	}
}

func (f *Front) serve(w http.ResponseWriter, i *Instance, payload []byte, deadline time.Time) error {
	answer, err := i.Invoke(f.ctx, payload, deadline)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	switch {
	case answer.Err != nil:
		return answer.Err
	case f.cfg.Streaming:
		return f.cfg.Source.writeStream(w, answer)
	default:
		return f.cfg.Source.writeBuffered(w, answer)
	}
}

// refuse is what clients get when a function fails; the reason is in the function's log.
func (f *Front) refuse(w http.ResponseWriter, err error) {
	_, _ = fmt.Fprintln(f.log, "lambdafront: 502:", err)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusBadGateway)
	_, _ = io.WriteString(w, `{"message":"Internal server error"}`)
}
