//lint:file-ignore SA1019 Logging is deprecated as of 2026-07-28 and stays in use.

package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/hydrant-mcp/hydrant/handler"
)

// maxLarge bounds the text of the tool large, in bytes: a probe should not take the server down.
const maxLarge = 64 << 20

// addDiagnostics adds the tools for probing a deployment from outside.
func addDiagnostics(s *mcp.Server, t tally, states signer) {
	d := diagnostics{server: s, tally: t, states: states}
	// These three see their arguments as they came: no schema stands between, no number is decoded.
	s.AddTool(&mcp.Tool{
		Name: "echo", Description: "Returns its arguments, byte for byte.", InputSchema: noInput,
	}, echo)
	s.AddTool(&mcp.Tool{
		Name: "whoami", Description: "Returns who is asking.", InputSchema: noInput,
	}, whoami)
	s.AddTool(&mcp.Tool{
		Name: "panic", Description: "Panics.", InputSchema: noInput,
	}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		panic("the tool panic was called")
	})
	mcp.AddTool(s, &mcp.Tool{
		Name: "sleep", Description: "Waits, and tallies done:KEY, or cancelled:KEY when it is cancelled.",
		InputSchema: json.RawMessage(`{
			"type": "object",
			"properties": {"ms": {"type": "integer", "minimum": 0, "maximum": 3600000}, "key": {"type": "string"}},
			"required": ["ms"]
		}`),
	}, d.sleep)
	mcp.AddTool(s, &mcp.Tool{
		Name: "large", Description: "Returns a text of so many bytes.",
		InputSchema: json.RawMessage(fmt.Sprintf(`{
			"type": "object",
			"properties": {"bytes": {"type": "integer", "minimum": 0, "maximum": %d}},
			"required": ["bytes"]
		}`, maxLarge)),
	}, large)
	mcp.AddTool(s, &mcp.Tool{
		Name: "tally", Description: "Tallies ran:KEY, so that a call that ran twice shows.",
		InputSchema: requiredString("key", "names the call"),
	}, d.count)
	mcp.AddTool(s, &mcp.Tool{
		Name: "ask", Description: "Asks the user and waits for the answer.",
		InputSchema: requiredString("message", "the question"),
	}, askAndWait)
	mcp.AddTool(s, &mcp.Tool{
		Name: "ask_mrtr", Description: "Asks the user by returning the question.",
		InputSchema: requiredString("message", "the question"),
	}, d.askInRounds)
	mcp.AddTool(s, &mcp.Tool{
		Name: "progress", Description: "Sends n progress notifications, ms milliseconds apart.",
		InputSchema: json.RawMessage(`{
			"type": "object",
			"properties": {
				"n": {"type": "integer", "minimum": 0, "maximum": 100000},
				"ms": {"type": "integer", "minimum": 0, "maximum": 3600000}
			},
			"required": ["n"]
		}`),
	}, progress)
	mcp.AddTool(s, &mcp.Tool{
		Name: "log", Description: "Sends n log messages.",
		InputSchema: json.RawMessage(`{
			"type": "object",
			"properties": {
				"n": {"type": "integer", "minimum": 0, "maximum": 100000},
				"level": {
					"enum": ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"],
					"default": "info"
				}
			},
			"required": ["n"]
		}`),
	}, logs)
	mcp.AddTool(s, &mcp.Tool{
		Name: "touch", Description: "Announces that a resource was updated.",
		InputSchema: requiredString("uri", "the resource's URI"),
	}, d.touch)
	mcp.AddTool(s, &mcp.Tool{
		Name: "strict", Description: "Takes exactly these arguments and returns them.",
		InputSchema: json.RawMessage(`{
			"type": "object",
			"properties": {"count": {"type": "integer"}, "mode": {"type": "string", "enum": ["a", "b"]}},
			"required": ["count", "mode"],
			"additionalProperties": false
		}`),
	}, strict)
}

type diagnostics struct {
	server *mcp.Server
	tally  tally
	states signer
}

func echo(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	args, err := object(req)
	if err != nil {
		return nil, err
	}
	r := content(&mcp.TextContent{Text: string(args)})
	r.StructuredContent = args
	return r, nil
}

func whoami(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	if _, err := object(req); err != nil {
		return nil, err
	}
	if req.Extra == nil || req.Extra.TokenInfo == nil {
		return text("{}"), nil
	}
	token := req.Extra.TokenInfo
	issuer, _ := token.Extra["iss"].(string)
	return jsonText(struct {
		Issuer  string   `json:"issuer"`
		Subject string   `json:"subject"`
		Scopes  []string `json:"scopes"`
	}{issuer, token.UserID, append([]string{}, token.Scopes...)})
}

type sleepInput struct {
	Ms  int    `json:"ms"`
	Key string `json:"key"`
}

func (d diagnostics) sleep(
	ctx context.Context, _ *mcp.CallToolRequest, in sleepInput,
) (*mcp.CallToolResult, any, error) {
	if err := checkKey(in.Key); err != nil {
		return nil, nil, err
	}
	if err := wait(ctx, time.Duration(in.Ms)*time.Millisecond); err != nil {
		if terr := d.tally.add("cancelled:" + in.Key); terr != nil {
			return nil, nil, terr
		}
		return nil, nil, err
	}
	return text("slept %d ms", in.Ms), nil, d.tally.add("done:" + in.Key)
}

type largeInput struct {
	Bytes int `json:"bytes"`
}

func large(_ context.Context, _ *mcp.CallToolRequest, in largeInput) (*mcp.CallToolResult, any, error) {
	return content(&mcp.TextContent{Text: strings.Repeat("x", in.Bytes)}), nil, nil
}

type keyInput struct {
	Key string `json:"key"`
}

func (d diagnostics) count(_ context.Context, _ *mcp.CallToolRequest, in keyInput) (*mcp.CallToolResult, any, error) {
	if err := checkKey(in.Key); err != nil {
		return nil, nil, err
	}
	line := "ran:" + in.Key
	return content(&mcp.TextContent{Text: line}), nil, d.tally.add(line)
}

// answerForm is the form of the question that ask and ask_mrtr put.
var answerForm = oneProperty("answer", "string")

// answered is what ask and ask_mrtr return.
func answered(a *mcp.ElicitResult) (*mcp.CallToolResult, any, error) {
	r, err := jsonText(struct {
		Action  string         `json:"action"`
		Content map[string]any `json:"content,omitempty"`
	}{a.Action, a.Content})
	return r, nil, err
}

func askAndWait(ctx context.Context, req *mcp.CallToolRequest, in messageInput) (*mcp.CallToolResult, any, error) {
	a, err := req.Session.Elicit(ctx, elicit(in.Message, answerForm))
	if err != nil {
		return nil, nil, fmt.Errorf("asking the user: %w", err)
	}
	return answered(a)
}

// askInRounds signs its state for the question it asked: an answer to one question is no answer to another.
func (d diagnostics) askInRounds(
	_ context.Context, req *mcp.CallToolRequest, in messageInput,
) (*mcp.CallToolResult, any, error) {
	use := "ask_mrtr " + in.Message
	if state := req.Params.RequestState; state != "" {
		if _, err := d.states.verify(use, state); err != nil {
			return nil, nil, invalidParams("%v", err)
		}
		if a, ok := req.Params.InputResponses["answer"].(*mcp.ElicitResult); ok && a != nil {
			return answered(a)
		}
	}
	return ask(mcp.InputRequestMap{"answer": elicit(in.Message, answerForm)}, d.states.sign(use, "asked")), nil, nil
}

type progressInput struct {
	N  int `json:"n"`
	Ms int `json:"ms"`
}

func progress(ctx context.Context, req *mcp.CallToolRequest, in progressInput) (*mcp.CallToolResult, any, error) {
	for i := range in.N {
		if i > 0 {
			if err := wait(ctx, time.Duration(in.Ms)*time.Millisecond); err != nil {
				return nil, nil, err
			}
		}
		notifyProgress(ctx, req, float64(i+1), float64(in.N))
	}
	return text("done"), nil, nil
}

type logInput struct {
	N     int              `json:"n"`
	Level mcp.LoggingLevel `json:"level"`
}

func logs(ctx context.Context, req *mcp.CallToolRequest, in logInput) (*mcp.CallToolResult, any, error) {
	for i := range in.N {
		logMessage(ctx, req, in.Level, fmt.Sprintf("message %d of %d", i+1, in.N))
	}
	return text("done"), nil, nil
}

type uriInput struct {
	URI string `json:"uri"`
}

func (d diagnostics) touch(ctx context.Context, _ *mcp.CallToolRequest, in uriInput) (*mcp.CallToolResult, any, error) {
	err := handler.NotifyResourceUpdated(ctx, in.URI)
	if errors.Is(err, handler.ErrOutside) { // served by a transport of the SDK's
		err = d.server.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: in.URI})
	}
	return text("announced an update of %s", in.URI), nil, err
}

type strictInput struct {
	Count int    `json:"count"`
	Mode  string `json:"mode"`
}

func strict(_ context.Context, _ *mcp.CallToolRequest, in strictInput) (*mcp.CallToolResult, any, error) {
	r, err := jsonText(in)
	return r, nil, err
}
