package harness

import "syscall"

// childAttributes makes the kernel kill the server when this process dies, so that a test that times out leaves none behind.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
