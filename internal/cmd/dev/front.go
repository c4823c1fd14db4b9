package main

import (
	"bytes"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"strings"
	"time"

	"github.com/hydrant-mcp/hydrant/internal/harness"
)

// servedBy is the response header that names the instance that answered.
const servedBy = "X-Served-By"

// maxBody is how much of a request is looked at. The server refuses less.
const maxBody = 16 << 20

// newFront returns the server of the one port that clients use: it sends every request to the next instance, and prints
// who answered.
func newFront(cluster *harness.Cluster, out *printer) *http.Server {
	quiet := log.New(io.Discard, "", 0)
	f := &front{cluster: cluster, out: out}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.Host = "http", r.In.Host
		},
		Transport:     f,
		FlushInterval: -1,
		ErrorLog:      quiet,
	}
	return &http.Server{Handler: proxy, ReadHeaderTimeout: 10 * time.Second, ErrorLog: quiet}
}

type front struct {
	cluster *harness.Cluster
	out     *printer
}

// RoundTrip sends a request to the next instance.
func (f *front) RoundTrip(r *http.Request) (*http.Response, error) {
	what := r.Method
	if r.Method == http.MethodPost {
		body, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
		if err != nil {
			return nil, err
		}
		r = r.Clone(r.Context())
		r.Body = io.NopCloser(bytes.NewReader(body))
		what = describe(body)
	}
	start := time.Now()
	resp, err := f.cluster.Proxy.RoundTrip(r)
	if err != nil {
		f.out.line("proxy", "%-36s %v", what, err)
		return nil, err
	}
	name := f.name(resp.Request.URL.Host)
	resp.Header.Set(servedBy, name)
	kind := ""
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		kind = " stream"
	}
	f.out.line("proxy", "%-36s %s  %d%s  %d ms", what, name, resp.StatusCode, kind, time.Since(start).Milliseconds())
	return resp, nil
}

// name is the instance that listens on an address.
func (f *front) name(addr string) string {
	for i, p := range f.cluster.Processes {
		if p.Addr() == addr {
			return names[i]
		}
	}
	return "?"
}

// describe says in a few words what a message is.
func describe(body []byte) string {
	var m struct {
		Method string `json:"method"`
		Params struct {
			Name string `json:"name"`
		} `json:"params"`
	}
	if err := json.Unmarshal(body, &m); err != nil {
		return "POST"
	}
	if m.Method == "" {
		return "a response"
	}
	return strings.TrimSpace(m.Method + " " + m.Params.Name)
}
