package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/hydrant-mcp/hydrant/handler"
	"github.com/hydrant-mcp/hydrant/store"
)

const version = "2025-11-25"

// An instance is one process of a server, as far as the store and the client can tell.
type instance struct {
	url     string
	handler *handler.Handler
	told    chan time.Time // when a question was answered
	server  *http.Server
}

// start starts an instance over a store.
func start(st store.Store) (*instance, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	in := &instance{url: "http://" + l.Addr().String(), told: make(chan time.Time, 1000)}
	server := mcp.NewServer(&mcp.Implementation{Name: "latency", Version: "1"}, &mcp.ServerOptions{
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
	})
	server.AddResource(&mcp.Resource{URI: "latency://0", Name: "0"},
		func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			return &mcp.ReadResourceResult{}, nil
		})
	server.AddTool(&mcp.Tool{Name: "ask", InputSchema: json.RawMessage(`{"type":"object"}`)}, in.ask)
	// The keys are given, so that reading them is no part of what is counted.
	in.handler = handler.New(server, st, &handler.Options{
		Keys: [][]byte{make([]byte, 32)}, Logger: slog.New(slog.DiscardHandler),
	})
	in.server = &http.Server{Handler: in.handler}
	go func() { _ = in.server.Serve(l) }()
	return in, nil
}

func (in *instance) ask(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	_, err := req.Session.Elicit(ctx, &mcp.ElicitParams{
		Message: "?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{}}`),
	})
	in.told <- time.Now()
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "answered"}}}, err
}

// stop ends the instance. Whoever waits on it has gone, or goes now.
func (in *instance) stop() { _ = in.server.Close() }

// A client is a legacy client with a session.
type client struct {
	http    *http.Client
	session string
}

const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"` + version +
	`","capabilities":{"elicitation":{}},"clientInfo":{"name":"latency","version":"1"}}}`

// connect opens a session on an instance.
func connect(ctx context.Context, in *instance) (*client, error) {
	c := &client{http: &http.Client{Transport: &http.Transport{}}}
	res, err := c.post(ctx, in, initialize)
	if err != nil {
		return nil, err
	}
	c.session = res.Header.Get("Mcp-Session-Id")
	if err := discard(res); err != nil {
		return nil, err
	}
	res, err = c.post(ctx, in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	if err != nil {
		return nil, err
	}
	return c, discard(res)
}

func (c *client) close() { c.http.CloseIdleConnections() }

func discard(res *http.Response) error {
	_, err := io.Copy(io.Discard, res.Body)
	return errors.Join(err, res.Body.Close())
}

func (c *client) post(ctx context.Context, in *instance, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, in.url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if c.session != "" {
		req.Header.Set("Mcp-Session-Id", c.session)
		req.Header.Set("MCP-Protocol-Version", version)
	}
	res, err := c.http.Do(req)
	if err == nil && res.StatusCode >= http.StatusBadRequest {
		text, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		err = fmt.Errorf("%s: %s", res.Status, text)
	}
	return res, err
}

// next reads an event stream up to the next message.
func next(in *bufio.Reader) (json.RawMessage, error) {
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return nil, err
		}
		if data := strings.TrimSpace(strings.TrimPrefix(line, "data:")); strings.HasPrefix(line, "data:") && data != "" {
			return json.RawMessage(data), nil
		}
	}
}
