package lambdafront

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"time"
)

// startLimit bounds the time from starting a function until it asks for its first event. Lambda's is 10 seconds; a binary
// with the race detector on a busy machine may need more.
const startLimit = 30 * time.Second

// An Instance is one process of a function, with the Runtime API that it polls.
type Instance struct {
	API *API

	cmd     *exec.Cmd
	started chan struct{}
	exited  chan struct{}
	awake   atomic.Bool // it is not frozen any more
}

// StartInstance starts a function and returns when it asks for its first event. env is the process's whole environment,
// but for what Lambda adds. Between events the process is frozen where the system can do that.
func StartInstance(ctx context.Context, bootstrap string, env []string, log *os.File) (*Instance, error) {
	i := &Instance{cmd: exec.Command(bootstrap), started: make(chan struct{}), exited: make(chan struct{})}
	api, err := NewAPI(Hooks{
		Polls: func() {
			if !i.awake.Load() {
				i.signal(freeze)
			}
		},
		Event: func() { i.signal(thaw) },
	})
	if err != nil {
		return nil, err
	}
	i.API = api
	i.cmd.Env = append(append([]string{}, env...),
		"AWS_LAMBDA_RUNTIME_API="+api.Addr(),
		"AWS_LAMBDA_FUNCTION_NAME=hydrant",
		"AWS_LAMBDA_FUNCTION_VERSION=$LATEST",
		"AWS_LAMBDA_FUNCTION_MEMORY_SIZE=512",
		"AWS_LAMBDA_INITIALIZATION_TYPE=on-demand",
		"_HANDLER=bootstrap",
	)
	i.cmd.Stdout, i.cmd.Stderr = log, log
	i.cmd.SysProcAttr = childAttributes()
	if err := i.cmd.Start(); err != nil {
		api.Close()
		return nil, fmt.Errorf("lambdafront: start %s: %w", bootstrap, err)
	}
	close(i.started)
	go func() {
		_ = i.cmd.Wait()
		close(i.exited)
	}()
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	select {
	case <-api.Polled():
		return i, nil
	case <-i.exited:
		err = fmt.Errorf("it ended (%v)", i.cmd.ProcessState)
	case <-ctx.Done():
		err = fmt.Errorf("it asks for no event: %w", ctx.Err())
	}
	i.Kill()
	return nil, fmt.Errorf("lambdafront: start %s: %w %s", bootstrap, err, api.InitError())
}

// signal is best effort: the process may have ended.
func (i *Instance) signal(s syscall.Signal) {
	<-i.started
	if s != 0 {
		_ = i.cmd.Process.Signal(s)
	}
}

// Pid is the process's id.
func (i *Instance) Pid() int { return i.cmd.Process.Pid }

// Exited is closed when the process has ended.
func (i *Instance) Exited() <-chan struct{} { return i.exited }

// Kill ends the process with SIGKILL, as Lambda does with one that overruns its time, and waits until it is gone.
func (i *Instance) Kill() {
	_ = i.cmd.Process.Kill()
	<-i.exited
	i.API.Close()
}

// StayAwake lets the process run between events from now on, as Lambda does with one that serves several at once.
func (i *Instance) StayAwake() {
	i.awake.Store(true)
	i.signal(thaw)
}

// Terminate sends SIGTERM, thawing the process first, and waits for it to end by itself. It returns the exit code, and an
// error when the process still runs after the limit; it is killed then.
func (i *Instance) Terminate(limit time.Duration) (int, error) {
	i.StayAwake()
	i.signal(syscall.SIGTERM)
	timer := time.NewTimer(limit)
	defer timer.Stop()
	defer i.Kill()
	select {
	case <-i.exited:
		return i.cmd.ProcessState.ExitCode(), nil
	case <-timer.C:
		return -1, errors.New("lambdafront: the process still runs after SIGTERM")
	}
}

// Invoke is [API.Invoke], and ends also when the process does.
func (i *Instance) Invoke(ctx context.Context, payload []byte, deadline time.Time) (*Answer, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-i.exited:
			cancel(errExited)
		case <-ctx.Done():
		}
	}()
	return i.API.Invoke(ctx, payload, deadline)
}

var errExited = errors.New("lambdafront: the process ended")
