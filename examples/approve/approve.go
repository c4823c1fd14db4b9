// Package approve is an MCP server with a tool that asks a person before it does something: it pays money back only
// when somebody has said yes.
//
// The tool returns its question and is called again with the answer. Nothing of it waits in between, and so it works
// with clients of both protocol eras and on runtimes that cannot hold a call, such as AWS Lambda behind an HTTP API.
// The commands put it on a platform:
//
//	examples/approve/local      http://127.0.0.1:8080/mcp; in memory, or in DynamoDB
//	examples/approve/lambda     AWS Lambda with DynamoDB
//	examples/approve/cloudrun   Google Cloud Run with Firestore
package approve

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/hydrant-mcp/hydrant/handler"
	"github.com/hydrant-mcp/hydrant/store"
)

const name = "approve"

// A Refund is money that goes back to a customer.
type Refund struct {
	// ID names the refund. A client that has lost a response may repeat the last step of a call: whoever pays must pay
	// once for an ID. Payment providers take it as the idempotency key.
	ID     string `json:"id"`
	Order  string `json:"order"`
	Cents  int64  `json:"cents"`
	Reason string `json:"reason,omitempty"`
}

// A Pay pays a refund, once for an ID.
type Pay func(ctx context.Context, r Refund) error

// LogOnly is a [Pay] that only says what it would do.
func LogOnly(ctx context.Context, r Refund) error {
	slog.InfoContext(ctx, "refund", "id", r.ID, "order", r.Order, "cents", r.Cents, "reason", r.Reason)
	return nil
}

// NewHandler serves the tool over HTTP, with the sessions of clients in a store. All commands have it in common; what
// differs is the database and the platform.
func NewHandler(pay Pay, sessions store.Store, opts *handler.Options) http.Handler {
	opts.Name = name
	return handler.New(NewServer(pay), sessions, opts)
}

// NewServer returns the MCP server. It keeps nothing between two messages, so it may run in any number of processes.
func NewServer(pay Pay) *mcp.Server {
	m := mcp.NewServer(&mcp.Implementation{Name: name, Title: "Refunds", Version: "1.0.0"}, &mcp.ServerOptions{
		// The list of tools never changes, and a client that waits for news holds an instance.
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}},
	})
	mcp.AddTool(m, &mcp.Tool{
		Name: "refund", Title: "Refund an order",
		Description: "Pays money back for an order, after a person has approved it.",
		Annotations: &mcp.ToolAnnotations{DestructiveHint: new(true), OpenWorldHint: new(true)},
	}, server{pay}.refund)
	return m
}

type server struct{ pay Pay }

type refundInput struct {
	Order string `json:"order" jsonschema:"the number of the order"`
	Cents int64  `json:"cents" jsonschema:"how much to pay back, in cents"`
}

// The questions, by the keys under which the answers come back.
const (
	approval    = "approval"
	explanation = "explanation"
)

// state is what the tool needs to know when it is called again. Hydrant keeps it in the store, or gives it to the
// client under seal: nobody can read it, change it, or bring it with other arguments than those that the person was
// asked about.
type state struct {
	Asked  string `json:"asked"` // the question that the answer is to
	Refund Refund `json:"refund"`
}

// refund is the tool. It is called once with the arguments alone, and once more after each of its questions.
func (s server) refund(ctx context.Context, req *mcp.CallToolRequest, in refundInput) (*mcp.CallToolResult, any, error) {
	if in.Order = strings.TrimSpace(in.Order); in.Order == "" || in.Cents <= 0 {
		return nil, nil, errors.New("a refund has the number of an order, and an amount above zero")
	}
	if req.Params.RequestState == "" {
		// The ID is made before anything is paid: every repetition of what follows brings the same one.
		r := Refund{ID: rand.Text(), Order: in.Order, Cents: in.Cents}
		return ask(state{approval, r}, fmt.Sprintf("Pay back %s for order %s?", amount(r.Cents), r.Order), reasonForm), nil, nil
	}
	var st state
	if err := json.Unmarshal([]byte(req.Params.RequestState), &st); err != nil {
		return nil, nil, err // another version of this program has made it
	}
	answer, _ := req.Params.InputResponses[st.Asked].(*mcp.ElicitResult)
	switch {
	case answer == nil || answer.Action == "cancel":
		// The person has closed the form, or there was none: that is no decision.
		return text("Nothing was paid: nobody has decided. It can be asked again later."), nil, nil
	case answer.Action != "accept":
		return text("Nothing was paid: the refund was declined."), nil, nil
	}
	return s.approved(ctx, st, answer.Content)
}

// approved goes on with what the person has filled in.
func (s server) approved(ctx context.Context, st state, form map[string]any) (*mcp.CallToolResult, any, error) {
	// The form has a schema, but not every client keeps to it.
	reason, _ := form["reason"].(string)
	if reason = strings.TrimSpace(reason); reason == "" || len(reason) > maxReason {
		return nil, nil, fmt.Errorf("nothing was paid: a reason is needed, of %d bytes at most", maxReason)
	}
	if st.Asked == approval && reason == other {
		st.Asked = explanation
		return ask(st, "What is the reason?", explanationForm), nil, nil
	}
	st.Refund.Reason = reason
	if err := s.pay(ctx, st.Refund); err != nil {
		slog.ErrorContext(ctx, "a refund failed", "id", st.Refund.ID, "error", err)
		return nil, nil, errors.New("the payment failed; it may be tried again")
	}
	return text("Paid %s back for order %s (%s). Reference: %s.",
		amount(st.Refund.Cents), st.Refund.Order, reason, st.Refund.ID), nil, nil
}

const (
	other     = "other" // asks for more
	maxReason = 500
)

// The forms. A form is flat: clients show it as it is.
var (
	reasonForm = json.RawMessage(`{
		"type": "object",
		"properties": {"reason": {"type": "string", "title": "Reason", "enum": ["damaged", "late", "` + other + `"]}},
		"required": ["reason"]
	}`)
	explanationForm = json.RawMessage(`{
		"type": "object",
		"properties": {"reason": {"type": "string", "title": "Reason", "minLength": 1, "maxLength": 500}},
		"required": ["reason"]
	}`)
)

// ask ends this step of the call with a question. Hydrant puts it to the client in the way that its protocol version
// has for that, and calls the tool again with the answer.
func ask(st state, message string, form json.RawMessage) *mcp.CallToolResult {
	raw, err := json.Marshal(st)
	if err != nil {
		panic(err) // strings and a number
	}
	return &mcp.CallToolResult{
		InputRequests: mcp.InputRequestMap{st.Asked: &mcp.ElicitParams{Message: message, RequestedSchema: form}},
		RequestState:  string(raw),
	}
}

func amount(cents int64) string { return fmt.Sprintf("%d.%02d", cents/100, cents%100) }

func text(format string, args ...any) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprintf(format, args...)}}}
}
