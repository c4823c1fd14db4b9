package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/hydrant-mcp/hydrant/internal/harness"
)

// A watch is how long streams are given to come to rest, and how long they are observed then.
type watch struct{ settle, observe time.Duration }

var carefully = watch{settle: 5 * time.Second, observe: 20 * time.Second}

// A crowd is streams that all wait for the same kind of thing.
type crowd struct {
	what string
	open func(ctx context.Context, c *client, i int) string // gives the HTTP request of a stream
	most int                                                // how many of them are opened; 0: as many as were asked for
	runs bool                                               // they go on when their connection has ended
}

var crowds = []crowd{
	{"listen to the list of tools (2026-07-28)", func(_ context.Context, _ *client, i int) string {
		return listenRequest(i, `{"toolsListChanged":true}`)
	}, 0, false},
	{"listen to one resource each (2026-07-28)", func(_ context.Context, _ *client, i int) string {
		return listenRequest(i, fmt.Sprintf(`{"resourceSubscriptions":["latency://%d"]}`, i))
	}, 0, false},
	{"GET streams of sessions (2025-11-25)", func(_ context.Context, c *client, _ int) string {
		return rawRequest("GET", c, "")
	}, 0, false},
	{"calls that wait for an answer (2025-11-25)", func(_ context.Context, c *client, _ int) string {
		return rawRequest("POST", c, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"ask"}}`)
	}, 200, true},
}

// listen opens many streams on one instance and says what they cost.
func listen(ctx context.Context, stdout io.Writer, kind harness.Store, st shared, streams int, how watch) error {
	out := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintf(stdout, "\n%s: streams on one instance, and what they cost the store a minute\n", kind)
	_, _ = fmt.Fprintln(out, "streams\twait for\treads\trecords read\twrites\twatches in all\ttold\t"+
		"KB a stream\t\toperations when they have ended")
	for _, cr := range crowds {
		n := streams
		if cr.most > 0 {
			n = min(n, cr.most)
		}
		if err := cr.measure(ctx, out, st, n, how); err != nil {
			return fmt.Errorf("%s: %w", cr.what, err)
		}
	}
	return out.Flush()
}

func (cr crowd) measure(ctx context.Context, out io.Writer, st shared, n int, how watch) error {
	own, stop, err := st()
	if err != nil {
		return err
	}
	defer stop()
	spent := &tally{}
	in, err := start(counted(own, spent))
	if err != nil {
		return err
	}
	defer in.stop()
	requests := make([]string, n)
	for i := range requests {
		c, err := connect(ctx, in)
		if err != nil {
			return err
		}
		requests[i] = cr.open(ctx, c, i)
		c.close()
	}
	before := footprint()
	conns := make([]net.Conn, 0, n)
	closeAll := func() {
		for _, conn := range conns {
			_ = conn.Close()
		}
		conns = nil
	}
	defer closeAll()
	for _, request := range requests {
		conn, err := dial(in, request)
		if err != nil {
			return err
		}
		conns = append(conns, conn)
	}
	if err := wait(ctx, how.settle); err != nil {
		return err
	}
	from := time.Now()
	if err := wait(ctx, how.observe); err != nil {
		return err
	}
	to := time.Now()
	each := float64(footprint()-before) / float64(n)
	minutes := to.Sub(from).Minutes()
	perMinute := func(k kind) (operations, units string) {
		ops, un := spent.between(k, from, to)
		return fmt.Sprintf("%.0f", float64(ops)/minutes), fmt.Sprintf("%.0f", float64(un)/minutes)
	}
	closeAll()
	if err := wait(ctx, how.settle); err != nil { // until the last of them has noticed
		return err
	}
	ended := time.Now()
	if err := wait(ctx, how.settle); err != nil {
		return err
	}
	idle := 0 // of a process that has no request any more
	for _, k := range []kind{read, write, watching, wasTold} {
		ops, _ := spent.between(k, ended, time.Now())
		idle += ops
	}
	after := strconv.Itoa(idle)
	if cr.runs {
		after = "-"
	}
	reads, records := perMinute(read)
	writes, _ := perMinute(write)
	told, _ := perMinute(wasTold)
	watches, _ := spent.between(watching, time.Time{}, to)
	_, err = fmt.Fprintf(out, "%d\t%s\t%s\t%s\t%s\t%d\t%s\t%.1f\t%s\t%s\n", n, cr.what, reads, records, writes, watches, told,
		each/1024, mark(each > heldStream), after)
	return err
}

// footprint is what the process holds, in bytes, when the garbage is gone.
func footprint() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// dial sends a request on a connection of its own and reads the beginning of the answer. The rest is left to the
// operating system: the client is to hold next to no memory of its own.
func dial(in *instance, request string) (net.Conn, error) {
	conn, err := net.Dial("tcp", strings.TrimPrefix(in.url, "http://"))
	if err != nil {
		return nil, err
	}
	if _, err := io.WriteString(conn, request); err != nil {
		return nil, err
	}
	const good = "HTTP/1.1 200"
	status := make([]byte, len(good))
	if _, err := io.ReadFull(conn, status); err != nil || string(status) != good {
		return nil, fmt.Errorf("a stream was answered %q: %w", status, errors.Join(err, conn.Close()))
	}
	return conn, nil
}

func rawRequest(method string, c *client, body string) string {
	var b strings.Builder
	_, _ = fmt.Fprintf(&b, "%s / HTTP/1.1\r\nHost: localhost\r\nAccept: application/json, text/event-stream\r\n", method)
	_, _ = fmt.Fprintf(&b, "Mcp-Session-Id: %s\r\nMCP-Protocol-Version: %s\r\n", c.session, version)
	if body != "" {
		_, _ = fmt.Fprintf(&b, "Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	return b.String() + "\r\n" + body
}

func listenRequest(i int, wanted string) string {
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"subscriptions/listen","params":{"notifications":%s,"_meta":{`+
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`, i, wanted)
	return fmt.Sprintf("POST / HTTP/1.1\r\nHost: localhost\r\nAccept: application/json, text/event-stream\r\n"+
		"MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: subscriptions/listen\r\nContent-Type: application/json\r\n"+
		"Content-Length: %d\r\n\r\n%s", len(body), body)
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
