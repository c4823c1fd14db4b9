package main

import (
	"context"
	"math/rand/v2"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// cutBody is the share of responses whose connection breaks at a random byte of the body, and cutRaw the share of
// connections that break at a random byte of whatever they carry: a request, a response's head, a body.
const (
	cutBody = 0.05
	cutRaw  = 0.02
)

// bodyCut is for client.Client.Cut.
func bodyCut() int64 {
	if rand.Float64() >= cutBody {
		return -1
	}
	// Most responses are short: small numbers are as likely as large ones.
	return rand.Int64N(1 << (4 + rand.IntN(9)))
}

// newTransport gives connections that break.
func newTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	return &http.Transport{
		DisableCompression: true, MaxIdleConnsPerHost: 256,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if err != nil || rand.Float64() >= cutRaw*10 { // a connection carries about ten requests
				return conn, err
			}
			c := &frailConn{Conn: conn}
			c.left.Store(rand.Int64N(20_000))
			return c, nil
		},
	}
}

// frailConn breaks after so many bytes, sent and received together.
type frailConn struct {
	net.Conn
	left atomic.Int64
}

// Broke says whether it has broken by itself; a connection that the other side has closed has not.
func (c *frailConn) Broke() bool { return c.left.Load() < 0 }

func (c *frailConn) take(n int) int {
	left := c.left.Add(-int64(n))
	if left >= 0 {
		return n
	}
	return max(0, n+int(left))
}

func (c *frailConn) Write(p []byte) (int, error) {
	n := c.take(len(p))
	if n == len(p) {
		return c.Conn.Write(p)
	}
	_, _ = c.Conn.Write(p[:n])
	_ = c.Close()
	return n, net.ErrClosed
}

func (c *frailConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if m := c.take(n); m < n {
		_ = c.Close()
		return m, net.ErrClosed
	}
	return n, err
}
