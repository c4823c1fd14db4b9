package cloudrun

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

const (
	defaultPort           = "8080"
	defaultPath           = "/"
	defaultHealthPath     = "/healthz"
	defaultGrace          = 8 * time.Second
	defaultRequestTimeout = 300 * time.Second // that of a Cloud Run service
)

// An Option of [Serve].
type Option func(*settings)

type settings struct {
	path           string
	healthPath     string
	grace          time.Duration
	requestTimeout time.Duration
	logger         *slog.Logger
	listener       net.Listener
}

// WithPath mounts the handler at one path, like "/mcp", with or without a slash at its end; everything else is 404 then.
// Default: "/", and the handler gets every request but those for the health path.
func WithPath(path string) Option { return func(c *settings) { c.path = path } }

// WithHealthPath is where health checks are answered: 200, and 503 once the instance drains. No rule about Host or Origin
// applies there. Default: "/healthz". Probes of Cloud Run come from inside and reach it; from outside, Google's front end
// keeps paths that end in z on run.app for itself, so choose another name for a check that comes over the internet.
func WithHealthPath(path string) Option { return func(c *settings) { c.healthPath = path } }

// WithGrace is how long calls may go on after SIGTERM. Default: 8 s. Serve returns within a second after it, and Cloud Run
// kills the container after 10 s.
func WithGrace(d time.Duration) Option { return func(c *settings) { c.grace = d } }

// WithRequestTimeout is the service's request timeout, after which Cloud Run ends a request; the handler answers before it
// (see [handler.Runtime]). Default: 300 s, which is that of a service where none is set. 0: no limit.
func WithRequestTimeout(d time.Duration) Option { return func(c *settings) { c.requestTimeout = d } }

// WithLogger takes what Serve has to say: the start and the end at info, a request that was answered with 400 or more at
// info and any other at debug (Cloud Run has a request log of its own), what was cut off at the end at warn, a panic at
// error. Session ids, tokens and query strings are never logged. Default: slog.Default().
func WithLogger(l *slog.Logger) Option { return func(c *settings) { c.logger = l } }

// WithListener serves on a listener of the caller's, which Serve closes, in place of 0.0.0.0 and the port of the
// environment variable PORT: for local use, and for tests.
func WithListener(l net.Listener) Option { return func(c *settings) { c.listener = l } }

// settle applies the options and refuses what cannot be meant.
func settle(opts []Option) (*settings, error) {
	c := &settings{
		path:           defaultPath,
		healthPath:     defaultHealthPath,
		grace:          defaultGrace,
		requestTimeout: defaultRequestTimeout,
	}
	for _, opt := range opts {
		opt(c)
	}
	if c.logger == nil {
		c.logger = slog.Default()
	}
	switch {
	case !strings.HasPrefix(c.path, "/"):
		return nil, fmt.Errorf("cloudrun: WithPath: %q does not begin with a slash", c.path)
	case !strings.HasPrefix(c.healthPath, "/"):
		return nil, fmt.Errorf("cloudrun: WithHealthPath: %q does not begin with a slash", c.healthPath)
	case c.path == c.healthPath:
		return nil, fmt.Errorf("cloudrun: WithPath and WithHealthPath are both %q", c.path)
	case c.grace < 0:
		return nil, fmt.Errorf("cloudrun: WithGrace: %v is negative", c.grace)
	case c.requestTimeout < 0:
		return nil, fmt.Errorf("cloudrun: WithRequestTimeout: %v is negative", c.requestTimeout)
	}
	return c, nil
}

// listen gives the listener that was set, or that of PORT.
func (c *settings) listen() (net.Listener, error) {
	if c.listener != nil {
		return c.listener, nil
	}
	port := os.Getenv("PORT")
	if port == "" {
		port = defaultPort
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return nil, fmt.Errorf("cloudrun: PORT is %q, which is no port number (1 to 65535)", port)
	}
	l, err := net.Listen("tcp", net.JoinHostPort("0.0.0.0", port))
	if err != nil {
		return nil, fmt.Errorf("cloudrun: %w", err)
	}
	return l, nil
}
