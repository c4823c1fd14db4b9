package cloudrun

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// ErrShutdown is the cause of a request's context (see [context.Cause]) when the instance ends before the request has.
var ErrShutdown = errors.New("the instance is being shut down")

const (
	// readHeaderTimeout bounds what a client that says nothing holds. There is no limit on the rest of a request or on its
	// response: a stream takes as long as it takes, and Cloud Run ends what is over the service's request timeout.
	readHeaderTimeout = 10 * time.Second
	// idleTimeout is longer than the 600 s for which Google's front ends keep an idle connection: when they are the ones who
	// close it, no request meets a connection that is just being closed.
	idleTimeout = 620 * time.Second
	// maxStreams is how many requests one HTTP/2 connection carries at once: Cloud Run's largest concurrency.
	maxStreams = 1000

	// lameDuck is how long new requests are served after SIGTERM. Whoever sends them learns with the response that the
	// connection is at its end. Without it a request that is on its way on an idle connection would be lost.
	lameDuck = 500 * time.Millisecond
	// quiet is how long there must be no connection before that ends early: clients that were told to close theirs come back
	// on another one.
	quiet = 50 * time.Millisecond
	// silence is how long a new connection may say nothing before it counts as idle.
	silence = 500 * time.Millisecond
	// lastWords is what is left for an answer when the grace is over.
	lastWords = time.Second
	// goodbye bounds the end of idle connections. HTTP/2 takes a quarter of a second for it.
	goodbye = 400 * time.Millisecond

	poll = 5 * time.Millisecond
)

// Serve serves h on 0.0.0.0:$PORT, over HTTP/1.1 and cleartext HTTP/2, until SIGTERM or SIGINT arrives or ctx ends; then it
// drains as the package's documentation says, and returns nil. A second signal ends the process at once. Requests are
// never redirected. Each has a [handler.Runtime] in its context, with the deadline that the request timeout sets.
//
// An error says that an option or PORT is invalid, or that it cannot listen.
func Serve(ctx context.Context, h http.Handler, opts ...Option) error {
	c, err := settle(opts)
	if err != nil {
		return err
	}
	return newServer(c, h).serve(ctx)
}

// A server is one call of Serve.
type server struct {
	*settings
	handler  http.Handler
	http     *http.Server
	draining chan struct{}
	end      atomic.Pointer[time.Time] // of the grace, once it has begun
	requests context.Context
	cancel   context.CancelCauseFunc // of requests

	running atomic.Int64 // requests that have not returned, also those whose connection was taken over

	mu    sync.Mutex
	conns map[net.Conn]connection
}

// A connection is open; since is when it came into its state.
type connection struct {
	state http.ConnState
	since time.Time
}

func newServer(c *settings, h http.Handler) *server {
	s := &server{settings: c, handler: h, draining: make(chan struct{}), conns: map[net.Conn]connection{}}
	// Not the context of Serve, whose end is the beginning of the grace.
	s.requests, s.cancel = context.WithCancelCause(context.Background())
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	s.http = &http.Server{
		Handler:           http.HandlerFunc(s.route),
		Protocols:         protocols,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		BaseContext:       func(net.Listener) context.Context { return s.requests },
		ConnState:         s.note,
		ErrorLog:          slog.NewLogLogger(c.logger.Handler(), slog.LevelWarn),
	}
	return s
}

// note is told what becomes of a connection.
func (s *server) note(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch state {
	case http.StateClosed, http.StateHijacked:
		delete(s.conns, c)
	default:
		s.conns[c] = connection{state, time.Now()}
	}
}

// connections counts those that are open, and those of them on which a request is, or may be about to be.
func (s *server) connections() (open, busy int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		if c.state == http.StateActive || c.state == http.StateNew && time.Since(c.since) < silence {
			busy++
		}
	}
	// A call that has ended its response by itself, to have its client poll, has no connection any more, and goes on.
	return len(s.conns), max(busy, int(s.running.Load()))
}

// serve listens, and runs until a signal arrives or ctx ends.
func (s *server) serve(ctx context.Context) error {
	// Before it listens: from then on somebody may rely on it.
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
	defer stop()
	context.AfterFunc(ctx, stop)
	l, err := s.listen()
	if err != nil {
		return err
	}
	return s.run(ctx, l)
}

// run serves until ctx ends and the server has drained.
func (s *server) run(ctx context.Context, l net.Listener) error {
	defer s.cancel(nil)
	s.logger.Info("listening", "address", l.Addr().String(), "path", s.path)
	d := &door{Listener: l}
	failed := make(chan error, 1)
	go func() { failed <- s.http.Serve(d) }()
	select {
	case err := <-failed:
		s.cancel(ErrShutdown)
		_ = s.http.Close()
		return fmt.Errorf("cloudrun: %w", err)
	case <-ctx.Done():
	}
	s.drain(d, failed)
	return nil
}

// drain ends the server within the grace and lastWords.
//
// It is not [http.Server.Shutdown] that waits for the requests: that one drops a request which it reads while it waits,
// and resets a connection that it has not accepted yet.
func (s *server) drain(d *door, served <-chan error) {
	began := time.Now()
	end := began.Add(s.grace)
	s.end.Store(&end)
	open, busy := s.connections()
	s.logger.Info("draining", "grace", s.grace.String(), "connections", open, "busy", busy)
	close(s.draining)
	s.await(began.Add(min(lameDuck, s.grace)), quiet, func(open, _ int) bool { return open == 0 })
	d.shut()
	<-served // and so has noted all connections that there are
	finished := s.await(end, 0, idle)
	if !finished {
		s.cancel(ErrShutdown)
		finished = s.await(end.Add(lastWords), 0, idle)
	}
	if finished {
		ctx, cancel := context.WithTimeout(context.Background(), goodbye)
		defer cancel()
		_ = s.http.Shutdown(ctx)
	} else {
		_, busy := s.connections()
		s.logger.Warn("requests were cut off: they went on after the grace", "connections", busy)
	}
	_ = s.http.Close()
	s.logger.Info("drained", "took", time.Since(began).Round(time.Millisecond).String())
}

func idle(_, busy int) bool { return busy == 0 }

// await waits until the connections have been so for a while, at most until a time, and says whether they have.
func (s *server) await(until time.Time, while time.Duration, so func(open, busy int) bool) bool {
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	since := time.Now()
	for now := since; ; now = <-ticker.C {
		switch {
		case !so(s.connections()):
			since = now
		case now.Sub(since) >= while:
			return true
		}
		if !now.Before(until) {
			return false
		}
	}
}
