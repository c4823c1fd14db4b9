package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/hydrant-mcp/hydrant/examples/everything/config"
	"github.com/hydrant-mcp/hydrant/examples/everything/server"
	"github.com/hydrant-mcp/hydrant/handler"
	"github.com/hydrant-mcp/hydrant/internal/cmd/soak/client"
)

// envServe makes this program one of the processes: the server of examples/everything with the store that the environment
// configures, and with tools that count every round. It also says in each response which process it is, and tallies
// served:REQUEST:PROCESS for those that it may not live to answer.
const envServe = "HYDRANT_SOAK_SERVE"

// The tools that examples/everything does not have. All take a key. Each tallies ran:KEY, or ran:KEY.ROUND, when it begins,
// and finished:KEY:MILLISECONDS, the time, when it returns its result.
const (
	toolWork      = "soak_work"      // n progress notifications and as many pauses of ms
	toolQuestion  = "soak_question"  // asks through its session, and waits
	toolRounds    = "soak_rounds"    // returns its questions, two rounds of them
	toolSuspended = "soak_suspended" // the same, suspended
)

const rounds = 2

func serve(ctx context.Context) error {
	c, err := config.Load(os.Getenv)
	if err != nil {
		return err
	}
	st, shut, err := c.OpenStore(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = shut() }()
	// One write in append mode: lines of several processes do not mix.
	file, err := os.OpenFile(c.Tally, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	tally := func(format string, args ...any) error {
		_, err := file.WriteString(fmt.Sprintf(format, args...) + "\n")
		return err
	}
	s := server.New(&server.Options{Keys: c.Keys, Tally: c.Tally})
	s.AddReceivingMiddleware(tallyAsking(tally))
	addTools(s, tally)
	h := handler.New(s, st, &handler.Options{
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Name:   server.Name,
		Keys:   c.Keys,
		AskFor: func(_, name string) handler.AskMode {
			if name == toolSuspended {
				return handler.AskSuspend
			}
			return handler.AskHold
		},
	})
	listener, err := net.Listen("tcp", c.Addr)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, r *http.Request) {
		self := listener.Addr().String()
		w.Header().Set(client.HeaderInstance, self)
		if err := tally("served:%s:%s", r.Header.Get(client.HeaderRequest), self); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		h.ServeHTTP(w, r)
	})
	return http.Serve(listener, mux)
}

type input struct {
	Key   string
	Ms, N int
}

// The tools of examples/everything that ask, and do not tally.
const (
	toolAsk     = "ask"      // asks through its session, and waits
	toolAskMRTR = "ask_mrtr" // returns its question
)

// tallyAsking tallies ran:MESSAGE.ROUND for them.
func tallyAsking(tally func(string, ...any) error) mcp.Middleware {
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			call, ok := req.(*mcp.CallToolRequest)
			if !ok || call.Params.Name != toolAsk && call.Params.Name != toolAskMRTR {
				return next(ctx, method, req)
			}
			var in struct{ Message string }
			if err := json.Unmarshal(call.Params.Arguments, &in); err != nil {
				return nil, err
			}
			round := 0
			if call.Params.RequestState != "" {
				round = 1
			}
			if err := tally("ran:%s.%d", in.Message, round); err != nil {
				return nil, err
			}
			return next(ctx, method, req)
		}
	}
}

func addTools(s *mcp.Server, tally func(string, ...any) error) {
	tool := func(name string, run func(context.Context, *mcp.CallToolRequest, input) (*mcp.CallToolResult, error)) {
		s.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				var in input
				if err := json.Unmarshal(req.Params.Arguments, &in); err != nil {
					return nil, err
				}
				return run(ctx, req, in)
			})
	}
	finished := func(key, text string) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}},
			tally("finished:%s:%d", key, time.Now().UnixMilli())
	}
	tool(toolWork, func(ctx context.Context, req *mcp.CallToolRequest, in input) (*mcp.CallToolResult, error) {
		if err := tally("ran:%s", in.Key); err != nil {
			return nil, err
		}
		for i := range max(in.N, 1) {
			if token := req.Params.GetProgressToken(); in.N > 0 && token != nil {
				_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
					ProgressToken: token, Progress: float64(i + 1), Total: float64(in.N),
				})
			}
			select {
			case <-time.After(time.Duration(in.Ms) * time.Millisecond):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		return finished(in.Key, in.Key)
	})
	tool(toolQuestion, func(ctx context.Context, req *mcp.CallToolRequest, in input) (*mcp.CallToolResult, error) {
		if err := tally("ran:%s", in.Key); err != nil {
			return nil, err
		}
		a, err := req.Session.Elicit(ctx, question(in.Key))
		if err != nil {
			return nil, fmt.Errorf("asking: %w", err)
		}
		return finished(in.Key, fmt.Sprint(a.Content["answer"]))
	})
	asks := func(_ context.Context, req *mcp.CallToolRequest, in input) (*mcp.CallToolResult, error) {
		round, answers := 0, ""
		if state := req.Params.RequestState; state != "" {
			if _, err := fmt.Sscanf(state, "%d", &round); err != nil {
				return nil, fmt.Errorf("the state is none of ours: %q", state)
			}
			_, answers, _ = strings.Cut(state, " ")
			a, ok := req.Params.InputResponses["q"].(*mcp.ElicitResult)
			if !ok || a == nil {
				return nil, fmt.Errorf("round %d has no answer", round)
			}
			answers += fmt.Sprint(a.Content["answer"]) + ";"
		}
		if err := tally("ran:%s.%d", in.Key, round); err != nil {
			return nil, err
		}
		if round == rounds {
			return finished(in.Key, answers)
		}
		return &mcp.CallToolResult{
			RequestState:  fmt.Sprintf("%d %s", round+1, answers),
			InputRequests: mcp.InputRequestMap{"q": question(fmt.Sprintf("%s.%d", in.Key, round))},
		}, nil
	}
	tool(toolRounds, asks)
	tool(toolSuspended, asks)
}

func question(text string) *mcp.ElicitParams {
	return &mcp.ElicitParams{Message: text, RequestedSchema: json.RawMessage(
		`{"type":"object","properties":{"answer":{"type":"string"}},"required":["answer"]}`)}
}
