//go:build !linux

package lambdafront

import "syscall"

func childAttributes() *syscall.SysProcAttr { return nil }
