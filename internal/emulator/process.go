//go:build unix

package emulator

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

const (
	startTimeout = time.Minute // a Java virtual machine on a busy machine
	stopTimeout  = 5 * time.Second
	pollEvery    = 50 * time.Millisecond
)

// supervisor runs a command in the shell's process group and ends the whole group when the command ends or when standard
// input does: that is, also when the process that holds the other end of it dies without a word.
const supervisor = `("$@" </dev/null; kill -TERM 0) & cat >/dev/null; kill -TERM 0`

// start runs a command until stop is called or this process ends, and returns once ready says so.
func start(ctx context.Context, ready func(context.Context) error, command ...string) (stop func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	cmd := exec.Command("sh", append([]string{"-c", supervisor, "sh"}, command...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var output tail
	cmd.Stdout, cmd.Stderr = &output, &output
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return func() {}, err
	}
	if err := cmd.Start(); err != nil {
		return func() {}, err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
	stop = sync.OnceFunc(func() {
		_ = stdin.Close()
		select {
		case <-ended:
		case <-time.After(stopTimeout):
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			<-ended
		}
	})
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return stop, nil
		}
		select {
		case <-tick.C:
		case <-ended:
			return stop, fmt.Errorf("emulator: %s ended: %s", command[0], output.String())
		case <-ctx.Done():
			stop()
			return stop, fmt.Errorf("emulator: %s does not answer: %w: %s", command[0], err, output.String())
		}
	}
}

// A tail keeps the last of what a command prints, for the message of an error.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

const tailSize = 4 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if over := len(t.buf) - tailSize; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.buf))
}
