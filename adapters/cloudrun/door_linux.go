package cloudrun

import (
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// lastCall accepts what is complete, and ends the listening in the next system call. There is no way to do both in one:
// what comes between the two, within a microsecond, is reset.
func lastCall(l net.Listener) (late []net.Conn) {
	sc, ok := l.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	var fds []int
	_ = raw.Control(func(listener uintptr) {
		for {
			fd, _, err := unix.Accept4(int(listener), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
			switch err {
			case nil:
				fds = append(fds, fd)
				continue
			case unix.EINTR, unix.ECONNABORTED:
				continue
			}
			_ = unix.Shutdown(int(listener), unix.SHUT_RD)
			return
		}
	})
	for _, fd := range fds {
		f := os.NewFile(uintptr(fd), "")
		if c, err := net.FileConn(f); err == nil {
			late = append(late, c)
		}
		_ = f.Close() // the connection has a copy
	}
	return late
}
