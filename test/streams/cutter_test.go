package streams

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// A cutter is a proxy whose connections to the client break in the middle of a streamed answer, where it is told to: so
// many bytes after the client holds an event id, because from there on nothing may be lost. Everything else passes.
type cutter struct {
	target string // the endpoint behind it
	addr   string
	client *http.Client

	mu   sync.Mutex
	plan []int // where to cut the answers to come, in their order; negative: not at all
	cuts int
	gets []string // that have come: what their Last-Event-ID was
	last []byte   // of the last streamed answer, what followed its first event
}

func startCutter(t testing.TB, target string) *cutter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c := &cutter{
		target: target, addr: l.Addr().String(),
		client: &http.Client{Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 8}},
	}
	server := &http.Server{Handler: c}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() {
		_ = server.Close()
		c.client.CloseIdleConnections()
	})
	return c
}

func (c *cutter) url() string { return "http://" + c.addr + "/mcp" }

// cutNext makes the next streamed answers break off, the first one after[0] bytes behind its first event that has an id; one
// to a GET that has brought an id, counted from its beginning.
func (c *cutter) cutNext(after ...int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.plan, c.cuts = after, 0
}

// count is how many answers were cut since cutNext.
func (c *cutter) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cuts
}

// rest is what followed the first event in the last streamed answer that was not cut.
func (c *cutter) rest() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// cameBack is how many GETs have asked for the stream on which announcements come, and how many for the rest of another.
func (c *cutter) cameBack() (announcements, rest int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range c.gets {
		if id == "" {
			announcements++
		} else {
			rest++
		}
	}
	return announcements, rest
}

func (c *cutter) next() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.plan) == 0 {
		return -1
	}
	after := c.plan[0]
	c.plan = c.plan[1:]
	return after
}

// ServeHTTP implements [http.Handler].
func (c *cutter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	out, err := http.NewRequestWithContext(r.Context(), r.Method, c.target, bytes.NewReader(body))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if r.Method == http.MethodGet {
		c.mu.Lock()
		c.gets = append(c.gets, r.Header.Get("Last-Event-ID"))
		c.mu.Unlock()
	}
	out.Header = r.Header.Clone()
	resp, err := c.client.Do(out)
	if err != nil {
		panic(http.ErrAbortHandler) // as a balancer does: whoever sees it cannot know more
	}
	defer resp.Body.Close()
	for name, values := range resp.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(resp.StatusCode)
	_ = http.NewResponseController(w).Flush()
	// The answer to a call, or the rest of one; not the stream on which nothing may ever come.
	call := bytes.Contains(body, []byte(`"tools/call"`)) || r.Header.Get("Last-Event-ID") != ""
	if !call || resp.Header.Get("Content-Type") != "text/event-stream" {
		c.pass(w, resp.Body, -1, -1)
		return
	}
	begin := -1
	if r.Method == http.MethodGet {
		begin = 0
	}
	if c.pass(w, resp.Body, c.next(), begin) {
		c.mu.Lock()
		c.cuts++
		c.mu.Unlock()
		panic(http.ErrAbortHandler)
	}
}

// pass copies a body, at most as far as the cut, which is so many bytes after begin; then it is true. A negative begin is
// the end of the first event that has an id.
func (c *cutter) pass(w http.ResponseWriter, body io.Reader, after, begin int) bool {
	var seen []byte
	chunk := make([]byte, 32<<10)
	for {
		n, err := body.Read(chunk)
		upTo := n
		if begin < 0 {
			seen = append(seen, chunk[:n]...)
			begin = endOfFirstID(seen)
		} else {
			seen = append(seen, chunk[:n]...)
		}
		cut := after >= 0 && begin >= 0 && len(seen) >= begin+after
		if cut {
			upTo = n - (len(seen) - begin - after)
		}
		if n > 0 {
			if _, err := w.Write(chunk[:upTo]); err != nil {
				panic(http.ErrAbortHandler)
			}
			_ = http.NewResponseController(w).Flush()
		}
		if cut {
			return true
		}
		if err == io.EOF {
			if begin >= 0 {
				c.mu.Lock()
				c.last = seen[begin:]
				c.mu.Unlock()
			}
			return false
		}
		if err != nil {
			panic(http.ErrAbortHandler) // what is behind has broken off: so do we
		}
	}
}

// endOfFirstID is where the first event with an id ends, negative if it is not there yet.
func endOfFirstID(stream []byte) int {
	for at := 0; ; {
		end := bytes.Index(stream[at:], []byte("\n\n"))
		if end < 0 {
			return -1
		}
		block := stream[at : at+end+2]
		at += end + 2
		if bytes.HasPrefix(block, []byte("id:")) || bytes.Contains(block, []byte("\nid:")) {
			return at
		}
	}
}
