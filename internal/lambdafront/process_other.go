//go:build !unix

package lambdafront

import "syscall"

const freeze, thaw syscall.Signal = 0, 0
