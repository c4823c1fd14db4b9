package lambda

import (
	"os"
	"sync"
)

// drain knows what is under way, for the end of the process.
type drain struct {
	begun chan struct{} // closed on SIGTERM

	mu       sync.Mutex
	underWay int
	idle     chan struct{} // non-nil and open while somebody waits for the last to leave
}

func newDrain() *drain { return &drain{begun: make(chan struct{})} }

// enter counts an invocation, until leave is called for the first time.
func (d *drain) enter() (leave func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.underWay++
	return sync.OnceFunc(func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.underWay--; d.underWay == 0 && d.idle != nil {
			close(d.idle)
			d.idle = nil
		}
	})
}

// begin tells the handlers to come to an end, and returns what is closed when they have.
func (d *drain) begin() <-chan struct{} {
	close(d.begun)
	d.mu.Lock()
	defer d.mu.Unlock()
	idle := make(chan struct{})
	if d.underWay == 0 {
		close(idle)
	} else {
		d.idle = idle
	}
	return idle
}

// exitWhenIdle is called once, on SIGTERM. Without it the process would live until SIGKILL.
func (d *drain) exitWhenIdle() {
	<-d.begin()
	os.Exit(0)
}
