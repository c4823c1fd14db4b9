//lint:file-ignore SA1019 Sampling and roots are deprecated as of 2026-07-28 and stay in use.

package streams

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	mcpgo "github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	mcpgotypes "github.com/mark3labs/mcp-go/mcp"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
)

func goClients() []client { return append(sdkClients(), mcpGoClients()...) }

func sdkClients() []client {
	connect := func(version string) connector {
		return func(ctx context.Context, url string, think time.Duration) (session, error) {
			return connectSDK(ctx, url, version, think)
		}
	}
	return []client{
		{name: "go-sdk", protocol: legacy, play: playGo(connect(legacy))},
		{name: "go-sdk", protocol: modern, play: playGo(connect(modern)), cannot: modernCannot},
	}
}

func mcpGoClients() []client {
	connect := func(version string) connector {
		return func(ctx context.Context, url string, think time.Duration) (session, error) {
			return connectMCPGo(ctx, url, version, think)
		}
	}
	// client/transport/streamable_http.go, handleIncomingRequest.
	const thirty = "gives the user 30 seconds"
	return []client{
		{
			name: "mcp-go", protocol: legacy, play: playGo(connect(legacy)),
			cannot: map[feature]string{
				// client/client.go, cancelRequest.
				cancel: "sends no notifications/cancelled over HTTP",
				// client/transport/streamable_http.go, StreamableHTTP: only streams that end properly are resumed.
				resume: "does not resume a stream that breaks off",
			},
			impatient: map[feature]string{elicit: thirty, rounds: thirty, suspended: thirty},
		},
		{name: "mcp-go", protocol: modern, play: playGo(connect(modern)), cannot: modernCannot},
	}
}

// A connector opens a session whose user thinks for so long before each answer.
type connector func(ctx context.Context, url string, think time.Duration) (session, error)

// A session is what the features need of a client.
type session interface {
	// call calls a tool and gives the text of its result.
	call(ctx context.Context, tool string, arguments map[string]any) (string, error)
	// steps calls the tool progress and gives how many notifications have come when the result is there.
	steps(ctx context.Context, n int) (int, error)
	// watch subscribes to a resource, and returns when whatever happens to it from now on will be heard.
	watch(ctx context.Context, uri string) (<-chan string, error)
	modern() bool
	close()
}

const question = "May we go on?"

// playGo plays the features with a client written in Go.
func playGo(connect connector) func(t *testing.T, at place) map[feature]string {
	return func(t *testing.T, at place) map[feature]string {
		ctx, stop := context.WithTimeout(t.Context(), clientLimit)
		defer stop()
		think := time.Duration(at.Think) * time.Millisecond
		open := func(url string) session {
			s, err := connect(ctx, url, think)
			require.NoError(t, err)
			t.Cleanup(s.close)
			return s
		}
		s := open(at.URL)
		plays := map[feature]func() error{
			elicit: func() error { return expect(`"answer":"yes"`)(s.call(ctx, "ask", map[string]any{"message": question})) },
			rounds: func() error {
				return expect(`"answer":"yes"`)(s.call(ctx, "ask_mrtr", map[string]any{"message": question}))
			},
			suspended: func() error {
				return expect(`"answer":"yes"`)(open(at.Suspended).call(ctx, "ask_mrtr", map[string]any{"message": question}))
			},
			sampling: func() error {
				if s.modern() {
					return expect("Paris")(s.call(ctx, "test_input_required_result_sampling", nil))
				}
				return expect("Paris")(s.call(ctx, "test_sampling", map[string]any{"prompt": "The capital of France?"}))
			},
			roots: func() error { return expect("file:///work")(s.call(ctx, "test_input_required_result_list_roots", nil)) },
			progress: func() error {
				const n = 5
				heard, err := s.steps(ctx, n)
				if err == nil && heard != n {
					err = fmt.Errorf("%d of %d notifications", heard, n)
				}
				return err
			},
			cancel: func() error { return playCancel(ctx, s, at.Key) },
			linger: func() error {
				if err := playCancel(ctx, s, at.Key); err != nil {
					return err
				}
				return pause(ctx, think)
			},
			resume: func() error {
				return expect("slept 1500 ms")(open(at.Cut).call(ctx, "sleep", map[string]any{"ms": 1500, "key": at.Key}))
			},
			subscribe: func() error {
				const uri = "test://watched-resource"
				heard, err := open(at.URL).watch(ctx, uri)
				if err != nil {
					return err
				}
				if _, err := open(at.URL).call(ctx, "touch", map[string]any{"uri": uri}); err != nil {
					return err
				}
				select {
				case got := <-heard:
					return expect(uri)(got, nil)
				case <-ctx.Done():
					return errors.New("no update")
				}
			},
		}
		got := map[feature]string{}
		var mu sync.Mutex
		var wg sync.WaitGroup
		for _, f := range at.Features {
			wg.Go(func() {
				err := plays[f]()
				mu.Lock()
				defer mu.Unlock()
				if got[f] = ""; err != nil {
					got[f] = err.Error()
				}
			})
		}
		wg.Wait()
		return got
	}
}

// expect checks that a text has a part.
func expect(part string) func(string, error) error {
	return func(text string, err error) error {
		if err == nil && !strings.Contains(text, part) {
			err = fmt.Errorf("%q has no %s", text, part)
		}
		return err
	}
}

// playCancel cancels a call that would take long. Whether the tool was told shows in the tally.
func playCancel(ctx context.Context, s session, key string) error {
	ctx, stop := context.WithTimeout(ctx, 1500*time.Millisecond)
	defer stop()
	text, err := s.call(ctx, "sleep", map[string]any{"ms": 60_000, "key": key})
	if err == nil {
		return fmt.Errorf("a cancelled call gave %q", text)
	}
	return nil
}

// An opener notes when the stream is open on which announcements come.
type opener struct {
	base http.RoundTripper
	once sync.Once
	open chan struct{}
}

func newOpener() *opener {
	return &opener{base: &http.Transport{DisableCompression: true}, open: make(chan struct{})}
}

// RoundTrip implements [http.RoundTripper].
func (o *opener) RoundTrip(r *http.Request) (*http.Response, error) {
	announces := r.Method == http.MethodGet && r.Header.Get("Last-Event-ID") == ""
	if r.Method == http.MethodPost && r.GetBody != nil {
		body, err := r.GetBody()
		if err != nil {
			return nil, err
		}
		text, err := io.ReadAll(body)
		if err != nil {
			return nil, err
		}
		announces = strings.Contains(string(text), `"subscriptions/listen"`)
	}
	resp, err := o.base.RoundTrip(r)
	if err == nil && announces && resp.StatusCode == http.StatusOK {
		o.once.Do(func() { close(o.open) })
	}
	return resp, err
}

func (o *opener) wait(ctx context.Context) error {
	select {
	case <-o.open:
		return nil
	case <-ctx.Done():
		return errors.New("the stream of announcements did not open")
	}
}

// An sdkSession is one of the official Go SDK's client.
type sdkSession struct {
	cs      *mcp.ClientSession
	opener  *opener
	heard   atomic.Int64
	updates chan string
	version string
}

func connectSDK(ctx context.Context, url, version string, think time.Duration) (session, error) {
	s := &sdkSession{opener: newOpener(), updates: make(chan string, 16), version: version}
	c := mcp.NewClient(&mcp.Implementation{Name: "hydrant-test-go", Version: "1.0.0"}, &mcp.ClientOptions{
		Logger: slog.New(slog.DiscardHandler),
		ElicitationHandler: func(ctx context.Context, _ *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			if err := pause(ctx, think); err != nil {
				return nil, err
			}
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"answer": "yes"}}, nil
		},
		CreateMessageHandler: func(context.Context, *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			return &mcp.CreateMessageResult{Role: "assistant", Model: "test", Content: &mcp.TextContent{Text: "Paris"}}, nil
		},
		ProgressNotificationHandler: func(context.Context, *mcp.ProgressNotificationClientRequest) { s.heard.Add(1) },
		ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) {
			s.updates <- r.Params.URI
		},
	})
	c.AddRoots(&mcp.Root{Name: "work", URI: "file:///work"})
	t := &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: s.opener}}
	var err error
	s.cs, err = c.Connect(ctx, t, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		return nil, err
	}
	if got := s.cs.InitializeResult().ProtocolVersion; got != version {
		return nil, fmt.Errorf("negotiated %s", got)
	}
	return s, nil
}

// pause is the user who thinks.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *sdkSession) call(ctx context.Context, tool string, arguments map[string]any) (string, error) {
	return s.result(s.cs.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: arguments}))
}

func (s *sdkSession) result(r *mcp.CallToolResult, err error) (string, error) {
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for _, c := range r.Content {
		if t, ok := c.(*mcp.TextContent); ok {
			text.WriteString(t.Text)
		}
	}
	if r.IsError {
		return "", errors.New(text.String())
	}
	return text.String(), nil
}

func (s *sdkSession) steps(ctx context.Context, n int) (int, error) {
	params := &mcp.CallToolParams{Name: "progress", Arguments: map[string]any{"n": n, "ms": 50}}
	params.SetProgressToken("steps")
	_, err := s.result(s.cs.CallTool(ctx, params))
	// The SDK hands notifications to their handler on another goroutine.
	poll(ctx, func() bool { return err != nil || s.heard.Load() >= int64(n) })
	return int(s.heard.Load()), err
}

func (s *sdkSession) watch(ctx context.Context, uri string) (<-chan string, error) {
	if err := s.cs.Subscribe(ctx, &mcp.SubscribeParams{URI: uri}); err != nil {
		return nil, err
	}
	return s.updates, s.opener.wait(ctx)
}

func (s *sdkSession) modern() bool { return s.version == modern }
func (s *sdkSession) close()       { _ = s.cs.Close() }

// An mcpGoSession is one of mcp-go's client.
type mcpGoSession struct {
	c       *mcpgo.Client
	opener  *opener
	think   time.Duration
	heard   atomic.Int64
	updates chan string
	version string
}

func connectMCPGo(ctx context.Context, url, version string, think time.Duration) (session, error) {
	s := &mcpGoSession{opener: newOpener(), think: think, updates: make(chan string, 16), version: version}
	opts := []transport.StreamableHTTPCOption{
		transport.WithHTTPBasicClient(&http.Client{Transport: s.opener}),
		transport.WithHTTPLogger(slog.New(slog.DiscardHandler)),
	}
	if version != modern { // which it would not speak with this
		opts = append(opts, transport.WithContinuousListening())
	}
	tr, err := transport.NewStreamableHTTP(url, opts...)
	if err != nil {
		return nil, err
	}
	s.c = mcpgo.NewClient(tr, mcpgo.WithElicitationHandler(s), mcpgo.WithSamplingHandler(s), mcpgo.WithRootsHandler(s))
	s.c.OnNotification(func(n mcpgotypes.JSONRPCNotification) {
		switch n.Method {
		case "notifications/progress":
			s.heard.Add(1)
		case "notifications/resources/updated":
			uri, _ := n.Params.AdditionalFields["uri"].(string)
			s.updates <- uri
		}
	})
	if err := s.c.Start(context.WithoutCancel(ctx)); err != nil {
		return nil, err
	}
	hello := mcpgotypes.InitializeRequest{}
	hello.Params.ProtocolVersion = version
	hello.Params.ClientInfo = mcpgotypes.Implementation{Name: "hydrant-test-mcp-go", Version: "1.0.0"}
	if _, err := s.c.Initialize(ctx, hello); err != nil {
		return nil, err
	}
	if got := s.c.ProtocolVersion(); got != version {
		return nil, fmt.Errorf("negotiated %s", got)
	}
	return s, nil
}

// Elicit implements mcp-go's ElicitationHandler.
func (s *mcpGoSession) Elicit(ctx context.Context, _ mcpgotypes.ElicitationRequest) (*mcpgotypes.ElicitationResult, error) {
	if err := pause(ctx, s.think); err != nil {
		return nil, err
	}
	return &mcpgotypes.ElicitationResult{ElicitationResponse: mcpgotypes.ElicitationResponse{
		Action: mcpgotypes.ElicitationResponseActionAccept, Content: map[string]any{"answer": "yes"},
	}}, nil
}

// CreateMessage implements mcp-go's SamplingHandler.
func (s *mcpGoSession) CreateMessage(
	context.Context, mcpgotypes.CreateMessageRequest,
) (*mcpgotypes.CreateMessageResult, error) {
	return &mcpgotypes.CreateMessageResult{
		SamplingMessage: mcpgotypes.SamplingMessage{
			Role: mcpgotypes.RoleAssistant, Content: mcpgotypes.NewTextContent("Paris"),
		},
		Model: "test",
	}, nil
}

// ListRoots implements mcp-go's RootsHandler.
func (s *mcpGoSession) ListRoots(context.Context, mcpgotypes.ListRootsRequest) (*mcpgotypes.ListRootsResult, error) {
	return &mcpgotypes.ListRootsResult{Roots: []mcpgotypes.Root{{Name: "work", URI: "file:///work"}}}, nil
}

func (s *mcpGoSession) call(ctx context.Context, tool string, arguments map[string]any) (string, error) {
	return s.callWith(ctx, tool, arguments, nil)
}

func (s *mcpGoSession) callWith(
	ctx context.Context, tool string, arguments map[string]any, meta *mcpgotypes.Meta,
) (string, error) {
	request := mcpgotypes.CallToolRequest{}
	request.Params.Name, request.Params.Arguments, request.Params.Meta = tool, arguments, meta
	r, err := s.c.CallTool(ctx, request)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for _, c := range r.Content {
		if t, ok := mcpgotypes.AsTextContent(c); ok {
			text.WriteString(t.Text)
		}
	}
	if r.IsError {
		return "", errors.New(text.String())
	}
	return text.String(), nil
}

func (s *mcpGoSession) steps(ctx context.Context, n int) (int, error) {
	_, err := s.callWith(ctx, "progress", map[string]any{"n": n, "ms": 50}, &mcpgotypes.Meta{ProgressToken: "steps"})
	poll(ctx, func() bool { return err != nil || s.heard.Load() >= int64(n) })
	return int(s.heard.Load()), err
}

func (s *mcpGoSession) watch(ctx context.Context, uri string) (<-chan string, error) {
	if s.modern() {
		_, err := s.c.ListenAsync(ctx, mcpgotypes.SubscriptionFilter{ResourceSubscriptions: []string{uri}}, nil)
		if err != nil {
			return nil, err
		}
		return s.updates, s.opener.wait(ctx)
	}
	request := mcpgotypes.SubscribeRequest{}
	request.Params.URI = uri
	if err := s.c.Subscribe(ctx, request); err != nil {
		return nil, err
	}
	return s.updates, s.opener.wait(ctx)
}

func (s *mcpGoSession) modern() bool { return s.version == modern }
func (s *mcpGoSession) close()       { _ = s.c.Close() }
