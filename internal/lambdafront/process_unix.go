//go:build unix

package lambdafront

import "syscall"

// Lambda freezes a process between events. A goroutine that was left to work after the answer does not.
const (
	freeze = syscall.SIGSTOP
	thaw   = syscall.SIGCONT
)
