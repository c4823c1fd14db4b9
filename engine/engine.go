// Package engine runs one message against an MCP server.
//
// [Engine] is the seam between Hydrant's pipeline and whatever implements MCP; [New] makes one of the official SDK's
// server. An engine keeps nothing between two messages: what a legacy session has told the server comes in with the
// message, as a [State].
package engine

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// An Engine runs messages. Its methods may be called at the same time.
type Engine interface {
	// Call runs a request and gives its result, or the error that the client is to see. client receives what the server
	// sends before that. When ctx ends, the handler of the request is told through its own context; Call waits a
	// moment for it and then returns [ErrAbandoned] or the context's cause. Nothing reaches client after Call returned.
	Call(ctx context.Context, m *Message, client Client) (json.RawMessage, error)
	// Notify runs a notification. It returns when the server's handlers have, or when ctx ends.
	Notify(ctx context.Context, m *Message) error
	// ToolSchema gives the input schema of a tool, or false if the server lists no such tool. It may be some seconds old.
	ToolSchema(ctx context.Context, name string) (json.RawMessage, bool, error)
	// Discover gives what the server answers to server/discover: what it can do, whoever asks.
	Discover(ctx context.Context) (json.RawMessage, error)
}

// A Message is one request or notification of a client, with what belongs to it.
type Message struct {
	Method string
	// Params are the raw params; nil when there are none.
	Params json.RawMessage
	// State is what a legacy session has told the server before; nil in the modern era, where a message describes itself,
	// and for initialize.
	State *State
	// LogID stands for the session in the SDK's own logs: a hash, never the session id.
	LogID string
	// TokenInfo and Header reach the tool in its request's Extra.
	TokenInfo *auth.TokenInfo
	Header    http.Header
	// CloseStream, if not nil, takes the tool's wish to end the event stream and to have the client come back for the
	// response: RequestExtra.CloseSSEStream of the SDK.
	CloseStream func(mcp.CloseSSEStreamArgs)
}

// A State is what a legacy session carries from message to message.
type State struct {
	// ProtocolVersion is the negotiated version.
	ProtocolVersion string
	// InitializeParams are the params of the initialize request, as the client sent them.
	InitializeParams json.RawMessage
	// Initialized says that notifications/initialized has arrived.
	Initialized bool
	// LogLevel is the level set by logging/setLevel, or "".
	LogLevel string
}

// A Client receives what the server sends while a request runs. Its methods must not block: the SDK calls them from the
// goroutine of the tool, and from others.
type Client interface {
	// Notify is a notification of the server's.
	Notify(method string, params json.RawMessage)
	// Ask is a question of the server's: elicitation, sampling, roots. answer is to be called once, at any time and from
	// any goroutine, with a result or an error.
	Ask(method string, params json.RawMessage, answer func(result json.RawMessage, err *jsonrpc.Error))
}
