package harness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"
)

const (
	// startLimit bounds the time from starting a process until it is healthy. It is generous: a race build with cold caches
	// on a busy machine takes seconds.
	startLimit = 30 * time.Second
	// startAttempts is how often another port is tried when the process ends before it is healthy: between finding a free
	// port and using it, someone else may take it.
	startAttempts = 3
	healthPoll    = 10 * time.Millisecond
)

// A Process is one running server. It keeps its port over restarts.
type Process struct {
	binary string
	env    []string // without PORT
	log    string   // path

	mu     sync.Mutex
	port   int
	cmd    *exec.Cmd
	exited chan struct{} // closed when cmd has ended and was waited for
}

// startProcess starts the binary and returns when its /healthz answers.
func startProcess(ctx context.Context, binary string, env []string, log string) (*Process, error) {
	p := &Process{binary: binary, env: env, log: log}
	var err error
	for range startAttempts {
		if p.port, err = freePort(); err != nil {
			return nil, err
		}
		if err = p.Start(ctx); err == nil {
			return p, nil
		}
		if !errors.Is(err, errExited) {
			break
		}
	}
	return nil, err
}

var errExited = errors.New("the process ended before it was healthy")

// Start starts the process again on the port that it had, and returns when it is healthy. Its log goes on in the same file.
func (p *Process) Start(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running() {
		return errors.New("harness: start of a process that runs")
	}
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.Command(p.binary)
	cmd.Env = append(append([]string{}, p.env...), "HOST=127.0.0.1", "PORT="+strconv.Itoa(p.port))
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = childAttributes()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("harness: start %s: %w", p.binary, err)
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	p.cmd, p.exited = cmd, exited
	if err := p.awaitHealthy(ctx); err != nil {
		_ = cmd.Process.Kill()
		<-exited
		return fmt.Errorf("harness: %s on port %d: %w; its log:\n%s", p.binary, p.port, err, tail(p.log, 4096))
	}
	return nil
}

func (p *Process) awaitHealthy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	poll := time.NewTicker(healthPoll)
	defer poll.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.addr()+"/healthz", nil)
		if err != nil {
			return err
		}
		if resp, err := client.Do(req); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK && p.running() {
				return nil
			}
		}
		select {
		case <-p.exited:
			return fmt.Errorf("%w (%v)", errExited, p.cmd.ProcessState)
		case <-ctx.Done():
			return fmt.Errorf("not healthy: %w", ctx.Err())
		case <-poll.C:
		}
	}
}

// Addr is host:port.
func (p *Process) Addr() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.addr()
}

func (p *Process) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)) }

// URL is the MCP endpoint of this process alone, past the proxy.
func (p *Process) URL() string { return "http://" + p.Addr() + "/mcp" }

// Running says whether the process has been started and has not ended.
func (p *Process) Running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running()
}

func (p *Process) running() bool {
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// Kill ends the process with SIGKILL, as a platform that takes an instance away without a word, and waits until it is gone.
func (p *Process) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// Terminate sends SIGTERM and waits for the process to end by itself. It returns the exit code, and an error when the
// process still runs after the limit; it is killed then.
func (p *Process) Terminate(limit time.Duration) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0, errors.New("harness: SIGTERM to a process that was never started")
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.exited:
		return p.cmd.ProcessState.ExitCode(), nil
	case <-timer.C:
		_ = p.cmd.Process.Kill()
		<-p.exited
		return -1, fmt.Errorf("harness: the process still ran %v after SIGTERM", limit)
	}
}

// Restart kills the process and starts it again on the same port.
func (p *Process) Restart(ctx context.Context) error {
	p.Kill()
	return p.Start(ctx)
}

// Log is what the process has written so far, over all its lives.
func (p *Process) Log() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// freePort asks the kernel for a port that nothing listens on.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("harness: find a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// tail returns the last bytes of a file, for messages.
func tail(path string, limit int) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	if len(text) > limit {
		text = text[len(text)-limit:]
	}
	return string(text)
}
