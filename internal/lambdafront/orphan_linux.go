package lambdafront

import "syscall"

// childAttributes makes the kernel kill the function when this process dies, so that a test that times out leaves none
// behind.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
