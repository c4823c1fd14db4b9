package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A Proxy sends every HTTP request to the next of its backends, whatever connection it came on, as a load balancer without
// affinity does. It changes nothing on the way, passes every byte of a response on at once, and hands a request to another
// backend only when a connection could not be made: what may have been sent is never sent twice.
type Proxy struct {
	backends  []string // host:port
	transport *http.Transport
	server    *http.Server
	listener  net.Listener

	mu   sync.Mutex
	next int

	last atomic.Int64
	hits []atomic.Int64

	secrets map[string]bool
}

// mostSecrets is how many are remembered.
const mostSecrets = 1000

// note remembers what must not be in a log: session ids and bearer tokens.
func (p *Proxy) note(session, authorization string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, v := range []string{session, strings.TrimPrefix(authorization, "Bearer ")} {
		if len(v) >= 20 && len(p.secrets) < mostSecrets { // a shorter one is made up by a test, and may be in a log by chance
			p.secrets[v] = true
		}
	}
}

// Secrets gives session ids and bearer tokens that have gone through.
func (p *Proxy) Secrets() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.secrets))
}

// StartProxy starts a proxy on a free loopback port over backends, each host:port.
func StartProxy(backends []string) (*Proxy, error) {
	if len(backends) == 0 {
		return nil, errors.New("harness: a proxy needs a backend")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("harness: proxy: %w", err)
	}
	p := &Proxy{
		backends: backends,
		transport: &http.Transport{
			DisableCompression:  true, // would ask for gzip behind the client's back
			MaxIdleConnsPerHost: 64,
			DialContext:         (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		},
		listener: l,
		hits:     make([]atomic.Int64, len(backends)),
		secrets:  map[string]bool{},
	}
	p.last.Store(-1)
	quiet := log.New(io.Discard, "", 0) // clients that go away are part of the tests
	forward := &httputil.ReverseProxy{Rewrite: rewrite, Transport: p, FlushInterval: -1, ErrorLog: quiet}
	p.server = &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			// Otherwise the server closes the request's body when the response begins, while the transport may still look
			// whether there is more of it: that would cut the response off, once in a hundred requests.
			_ = http.NewResponseController(w).EnableFullDuplex()
			forward.ServeHTTP(w, r)
		}),
		ErrorLog: quiet,
	}
	go func() { _ = p.server.Serve(l) }()
	return p, nil
}

// rewrite undoes what httputil.ReverseProxy changes by itself; RoundTrip chooses the backend.
func rewrite(r *httputil.ProxyRequest) {
	r.Out.URL.Scheme = "http"
	r.Out.URL.RawQuery = r.In.URL.RawQuery
	r.Out.Host = r.In.Host
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if values, ok := r.In.Header[name]; ok {
			r.Out.Header[name] = values
		}
	}
}

// RoundTrip sends a request to the next backend that takes a connection.
func (p *Proxy) RoundTrip(req *http.Request) (*http.Response, error) {
	p.mu.Lock()
	first := p.next
	p.next = (p.next + 1) % len(p.backends)
	p.mu.Unlock()

	out := req.Clone(req.Context())
	if req.Body != nil && req.Body != http.NoBody {
		// The transport closes the body when it cannot connect; the next attempt still needs it. The server closes it.
		out.Body = io.NopCloser(req.Body)
	}
	var err error
	for i := range p.backends {
		chosen := (first + i) % len(p.backends)
		out.URL = cloneURL(req.URL, p.backends[chosen])
		var resp *http.Response
		resp, err = p.transport.RoundTrip(out)
		if err == nil {
			p.hits[chosen].Add(1)
			p.last.Store(int64(chosen))
			p.note(resp.Header.Get("Mcp-Session-Id"), req.Header.Get("Authorization"))
			return resp, nil
		}
		if dial := (*net.OpError)(nil); !errors.As(err, &dial) || dial.Op != "dial" {
			return nil, err
		}
	}
	return nil, err
}

func cloneURL(u *url.URL, host string) *url.URL {
	clone := *u
	clone.Host = host
	return &clone
}

// URL is the MCP endpoint behind the proxy.
func (p *Proxy) URL() string { return "http://" + p.listener.Addr().String() + "/mcp" }

// Hits is how many requests each backend has answered.
func (p *Proxy) Hits() []int64 {
	hits := make([]int64, len(p.hits))
	for i := range p.hits {
		hits[i] = p.hits[i].Load()
	}
	return hits
}

// Last is the index of the backend that answered last, -1 before the first answer.
func (p *Proxy) Last() int { return int(p.last.Load()) }

// Forget closes idle connections to the backends. After a backend was killed, the next request must see that nobody
// listens there, not a pooled connection that is half dead.
func (p *Proxy) Forget() { p.transport.CloseIdleConnections() }

// Close ends the proxy and everything that runs through it.
func (p *Proxy) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if p.server.Shutdown(ctx) != nil {
		_ = p.server.Close()
	}
	p.transport.CloseIdleConnections()
}
