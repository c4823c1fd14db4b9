// Package server is the MCP server of the "everything" example: the tools, resources and prompts that the official
// conformance suite asks for, but those of the tasks extension, and diagnostic tools with which anyone can probe a
// deployment from outside.
//
// Nothing here outlives a call. Any number of processes behind a round-robin proxy behave as one: what a call must
// remember between two rounds travels in its request state, and what a server lists is the same everywhere.
package server

import (
	"context"
	"log/slog"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Name and Version identify the server to clients.
const (
	Name    = "hydrant-everything"
	Version = "0.1.0"
)

// Options configure [New]. The zero value is a server for local use.
type Options struct {
	// Keys authenticate the request state of the tools that ask in rounds. The first signs, all verify, so that keys
	// can be rotated. Empty: a constant that is good for development only.
	Keys [][]byte
	// Tally is the file that the diagnostic tools append their lines to. Several processes may share it. Empty: no file.
	Tally string
	// Logger gets the SDK's own log. Nil discards it.
	Logger *slog.Logger
}

// New builds the server. Nil options are the zero value.
func New(opts *Options) *mcp.Server {
	if opts == nil {
		opts = &Options{}
	}
	s := mcp.NewServer(&mcp.Implementation{Name: Name, Version: Version}, &mcp.ServerOptions{
		Logger:            opts.Logger,
		CompletionHandler: complete,
		// The SDK advertises resources.subscribe when both are set, and keeps the subscriptions itself.
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
	})
	states := newSigner(opts.Keys)
	addContentTools(s)
	addNotifyingTools(s)
	addAskingTools(s)
	addInputRequiredTools(s, states)
	addDiagnostics(s, tally{path: opts.Tally}, states)
	addResources(s)
	addPrompts(s)
	return s
}
