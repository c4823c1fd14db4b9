package engine

import (
	"context"
	"encoding/json"
	"io"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// conn is the connection of a throw-away server session: it carries one message of the client's and what follows from it.
//
// The SDK's reader decides the life of a connection. Its first Read waits until Connect has returned, or the session would
// race with its own construction. Its second Read means that the message was accepted; closing the session before that
// drops the message, closing it afterwards drains what is queued.
type conn struct {
	message  *jsonrpc.Request
	client   Client // nil for a notification: nobody can be asked then
	progress progressToken
	logID    string

	connected chan struct{} // closed when Connect has returned
	accepted  chan struct{} // closed by the second Read
	responded chan struct{} // closed when the response is there
	closed    chan struct{} // closed when the SDK, or fence, is done with the connection
	queued    chan struct{} // has an element while inbound may be non-empty

	closeOnce, acceptOnce sync.Once

	mu       sync.Mutex
	fed      bool
	inbound  []jsonrpc.Message // answers on their way to the SDK
	response *jsonrpc.Response
	fenced   bool // nothing may reach client any more
}

func newConn(message *jsonrpc.Request, client Client, logID string) *conn {
	c := &conn{
		message:   message,
		client:    client,
		logID:     logID,
		connected: make(chan struct{}),
		accepted:  make(chan struct{}),
		responded: make(chan struct{}),
		closed:    make(chan struct{}),
		queued:    make(chan struct{}, 1),
	}
	message.Params = c.progress.hide(message.Params)
	return c
}

// transport hands the connection to the SDK. SupportsProtocolVersion narrows what server/discover offers.
type transport struct {
	*conn
	versions func(string) bool
}

func (t transport) Connect(context.Context) (mcp.Connection, error) { return t.conn, nil }

func (t transport) SupportsProtocolVersion(v string) bool { return t.versions == nil || t.versions(v) }

// Read implements [mcp.Connection].
func (c *conn) Read(ctx context.Context) (jsonrpc.Message, error) {
	c.mu.Lock()
	first := !c.fed
	c.fed = true
	c.mu.Unlock()
	if first {
		select {
		case <-c.connected:
			return c.message, nil
		case <-c.closed:
			return nil, io.EOF
		}
	}
	c.acceptOnce.Do(func() { close(c.accepted) })
	for {
		if msg := c.next(); msg != nil {
			return msg, nil
		}
		select {
		case <-c.queued:
		case <-c.closed:
			return nil, io.EOF
		}
	}
}

func (c *conn) next() jsonrpc.Message {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.inbound) == 0 {
		return nil
	}
	msg := c.inbound[0]
	c.inbound = c.inbound[1:]
	return msg
}

// Write implements [mcp.Connection]. It never blocks, and never fails: an error here would make the SDK break the whole
// connection and swallow the response.
func (c *conn) Write(_ context.Context, msg jsonrpc.Message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch msg := msg.(type) {
	case *jsonrpc.Response:
		if msg.ID == c.message.ID && c.response == nil {
			c.response = msg
			close(c.responded)
		}
	case *jsonrpc.Request:
		over := c.fenced || c.response != nil || c.client == nil
		switch {
		case msg.Method == "ping" && msg.IsCall():
			// The SDK's keep-alive. The client is not on this connection, and it is alive: it has just sent a message.
			c.push(&jsonrpc.Response{ID: msg.ID, Result: json.RawMessage("{}")})
		case msg.IsCall() && over:
			c.push(&jsonrpc.Response{ID: msg.ID, Error: errNobodyToAsk})
		case msg.IsCall():
			id, once := msg.ID, sync.Once{}
			c.client.Ask(msg.Method, msg.Params, func(result json.RawMessage, err *jsonrpc.Error) {
				once.Do(func() { go c.answer(id, result, err) }) // Ask may answer at once, while we hold the lock
			})
		case msg.Method == "notifications/cancelled":
			// It names a question by the id that it has in here: the client knows none such.
		case !over:
			c.client.Notify(msg.Method, c.progress.restore(msg.Method, msg.Params))
		}
	}
	return nil
}

var errNobodyToAsk = &jsonrpc.Error{
	Code: jsonrpc.CodeInvalidRequest,
	Message: "the client cannot be asked here: questions can be sent only while a request of the client's is running, " +
		"not from a notification handler and not after the response",
}

func (c *conn) answer(id jsonrpc.ID, result json.RawMessage, err *jsonrpc.Error) {
	r := &jsonrpc.Response{ID: id, Result: result}
	if err != nil {
		r = &jsonrpc.Response{ID: id, Error: err}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.push(r)
}

func (c *conn) push(msg jsonrpc.Message) {
	c.inbound = append(c.inbound, msg)
	select {
	case c.queued <- struct{}{}:
	default:
	}
}

// Close implements [mcp.Connection]. The SDK calls it when nothing is in flight any more.
func (c *conn) Close() error {
	c.closeOnce.Do(func() { close(c.closed) })
	return nil
}

// SessionID implements [mcp.Connection]. The SDK logs it at info.
func (c *conn) SessionID() string { return c.logID }

// shut ends the session of a call that has its response, and waits for the SDK's goroutines. The connection goes first: what
// the handler may have left asking, in a goroutine of its own, would keep the session from ending.
func (c *conn) shut(ss *mcp.ServerSession) {
	c.Close()
	ss.Close()
}

// fence gives up on what is running: nothing of it reaches the client any more, and its session falls apart when it ends.
func (c *conn) fence() {
	c.mu.Lock()
	c.fenced = true
	c.mu.Unlock()
	c.Close()
}
