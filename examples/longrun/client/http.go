package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const version = "2025-11-25"

// A client is one end of a session.
type client struct {
	session string
	retry   time.Duration // how long the server wants a client to stay away
}

// connect opens the session.
func (c *client) connect(ctx context.Context, url string) error {
	body, err := c.post(ctx, url, `{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "`+version+
		`", "capabilities": {}, "clientInfo": {"name": "longrun-client", "version": "1"}}}`)
	if err != nil {
		return err
	}
	if err := body.Close(); err != nil {
		return err
	}
	body, err = c.post(ctx, url, `{"jsonrpc": "2.0", "method": "notifications/initialized"}`)
	if err != nil {
		return err
	}
	return body.Close()
}

func (c *client) post(ctx context.Context, url, message string) (*stream, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(message))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	return c.do(req)
}

// resume asks for what follows an event.
func (c *client) resume(ctx context.Context, url, last string) (*stream, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Last-Event-ID", last)
	return c.do(req)
}

func (c *client) do(req *http.Request) (*stream, error) {
	if c.session != "" {
		req.Header.Set("Mcp-Session-Id", c.session)
		req.Header.Set("MCP-Protocol-Version", version)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode >= http.StatusMultipleChoices {
		text, _ := io.ReadAll(res.Body)
		return nil, errors.Join(fmt.Errorf("%s %s: %s: %s", req.Method, req.URL, res.Status, text), res.Body.Close())
	}
	if id := res.Header.Get("Mcp-Session-Id"); id != "" {
		c.session = id
	}
	return &stream{client: c, body: res.Body, lines: bufio.NewReader(res.Body)}, nil
}

// pause waits as long as the server wants.
func (c *client) pause(ctx context.Context) error {
	timer := time.NewTimer(c.retry)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A stream is the body of a response, as an event stream.
type stream struct {
	client *client
	body   io.ReadCloser
	lines  *bufio.Reader
}

func (s *stream) Close() error { return s.body.Close() }

// An event of a stream. One without data is only a place to come back to.
type event struct{ id, data string }

// next reads an event; io.EOF is the stream's end. A last event that is not complete is none.
func (s *stream) next() (e event, err error) {
	for {
		line, err := s.lines.ReadString('\n')
		if err != nil {
			return event{}, err
		}
		line = strings.TrimRight(line, "\r\n")
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "id":
			e.id = value
		case "data":
			e.data += value
		case "retry":
			if ms, err := strconv.Atoi(value); err == nil {
				s.client.retry = time.Duration(ms) * time.Millisecond
			}
		}
		if line == "" && e != (event{}) {
			return e, nil
		}
	}
}
