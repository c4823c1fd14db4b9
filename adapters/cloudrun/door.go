package cloudrun

import (
	"net"
	"sync"
)

// A door is a listener that can be closed without a reset for those who stand before it: the kernel completes connections
// before they are accepted, and whoever has sent a request on one that is reset cannot tell whether it ran.
type door struct {
	net.Listener

	mu   sync.Mutex
	late []net.Conn // accepted at the last moment
}

// Accept implements [net.Listener].
func (d *door) Accept() (net.Conn, error) {
	c, err := d.Listener.Accept()
	if err == nil {
		return c, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.late) == 0 {
		return nil, err
	}
	c, d.late = d.late[0], d.late[1:]
	return c, nil
}

// shut closes the listener; Accept first gives what the kernel had completed until then.
func (d *door) shut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.late = lastCall(d.Listener)
	_ = d.Listener.Close()
}
