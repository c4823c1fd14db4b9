package approve_test

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/examples/approve"
	"github.com/hydrant-mcp/hydrant/handler"
	"github.com/hydrant-mcp/hydrant/internal/emulator"
	"github.com/hydrant-mcp/hydrant/store"
	"github.com/hydrant-mcp/hydrant/store/dynamo"
	"github.com/hydrant-mcp/hydrant/store/memory"
)

func TestMain(m *testing.M) { os.Exit(emulator.Main(m)) }

func openDynamoDB(t *testing.T) store.Store {
	t.Helper()
	client := dynamodb.New(dynamodb.Options{
		BaseEndpoint: aws.String(emulator.DynamoDBForTest(t)),
		Region:       "us-east-1",
		Credentials:  credentials.NewStaticCredentialsProvider("local", "local", ""),
	})
	table := "test-" + rand.Text()
	require.NoError(t, dynamo.CreateTable(t.Context(), client, table))
	return dynamo.New(client, table)
}

// ways are the ways in which a client is asked: a call that is held, one that is suspended because the runtime sends
// nothing before the end, one that is suspended by choice, and the modern era, where it makes no difference.
var ways = map[string]struct {
	version string
	runtime handler.Runtime
	opts    handler.Options
}{
	"2026-07-28":                    {version: "2026-07-28"},
	"2026-07-28, buffered":          {version: "2026-07-28", runtime: handler.Runtime{Buffered: true}},
	"2025-11-25, held":              {version: "2025-11-25"},
	"2025-11-25, buffered":          {version: "2025-11-25", runtime: handler.Runtime{Buffered: true}},
	"2025-11-25, suspended":         {version: "2025-11-25", opts: handler.Options{Ask: handler.AskSuspend}},
	"2025-06-18, which has to hold": {version: "2025-06-18", opts: handler.Options{Ask: handler.AskSuspend}},
	"2025-03-26, which has to hold": {version: "2025-03-26"},
}

// A cashier pays, and remembers what.
type cashier struct {
	mu   sync.Mutex
	paid []approve.Refund
	err  error
}

func (c *cashier) pay(_ context.Context, r approve.Refund) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paid = append(c.paid, r)
	return c.err
}

// all are the refunds that were paid. It is for after the call.
func (c *cashier) all() []approve.Refund {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.paid
}

// A person answers the questions one after the other, and remembers them.
type person struct {
	answers []*mcp.ElicitResult
	asked   []string
}

func (p *person) answer(_ context.Context, req *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
	p.asked = append(p.asked, req.Params.Message)
	if len(p.answers) == 0 {
		return nil, errors.New("nobody has an answer to this")
	}
	answer := p.answers[0]
	p.answers = p.answers[1:]
	return answer, nil
}

func accept(reason string) *mcp.ElicitResult {
	return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"reason": reason}}
}

// serve serves as a platform does that starts an instance for every request.
func serve(t *testing.T, st store.Store, c *cashier, runtime handler.Runtime, opts handler.Options) (url string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		own := opts
		r = r.WithContext(handler.WithRuntime(r.Context(), runtime))
		approve.NewHandler(c.pay, st, &own).ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func connect(t *testing.T, url, version string, opts *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, opts)
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint: url, DisableStandaloneSSE: true,
	}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, session.Close()) })
	return session
}

func refund(t *testing.T, session *mcp.ClientSession, cents int64) *mcp.CallToolResult {
	t.Helper()
	result, err := session.CallTool(t.Context(), &mcp.CallToolParams{
		Name: "refund", Arguments: map[string]any{"order": "A-17", "cents": cents},
	})
	require.NoError(t, err)
	return result
}

func text(t *testing.T, result *mcp.CallToolResult) string {
	t.Helper()
	require.Len(t, result.Content, 1)
	return result.Content[0].(*mcp.TextContent).Text
}

func TestNothingIsPaidThatNobodyHasApproved(t *testing.T) {
	const question, why = "Pay back 12.50 for order A-17?", "What is the reason?"
	for _, tt := range []struct {
		name    string
		answers []*mcp.ElicitResult
		asked   []string
		says    string
		reason  string // of what was paid
	}{
		{"accepted", []*mcp.ElicitResult{accept("late")}, []string{question}, "Paid 12.50 back for order A-17 (late)", "late"},
		{"accepted for another reason", []*mcp.ElicitResult{accept("other"), accept("lost by the post")},
			[]string{question, why}, "Paid 12.50 back for order A-17 (lost by the post)", "lost by the post"},
		{"declined", []*mcp.ElicitResult{{Action: "decline"}}, []string{question}, "the refund was declined", ""},
		{"closed", []*mcp.ElicitResult{{Action: "cancel"}}, []string{question}, "nobody has decided", ""},
		{"closed at the second question", []*mcp.ElicitResult{accept("other"), {Action: "cancel"}},
			[]string{question, why}, "nobody has decided", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachWay(t, memory.New(), func(t *testing.T, url, version string, c *cashier) {
				p := &person{answers: tt.answers}
				session := connect(t, url, version, &mcp.ClientOptions{ElicitationHandler: p.answer})
				result := refund(t, session, 1250)
				assert.Contains(t, text(t, result), tt.says)
				assert.False(t, result.IsError)
				assert.Equal(t, tt.asked, p.asked)
				if tt.reason == "" {
					assert.Empty(t, c.all())
					return
				}
				require.Len(t, c.all(), 1)
				paid := c.all()[0]
				assert.NotEmpty(t, paid.ID)
				assert.Contains(t, text(t, result), paid.ID)
				assert.Equal(t, approve.Refund{ID: paid.ID, Order: "A-17", Cents: 1250, Reason: tt.reason}, paid)
			})
		})
	}
}

func TestTwoQuestionsOverADatabase(t *testing.T) {
	eachWay(t, openDynamoDB(t), func(t *testing.T, url, version string, c *cashier) {
		p := &person{answers: []*mcp.ElicitResult{accept("other"), accept("lost by the post")}}
		session := connect(t, url, version, &mcp.ClientOptions{ElicitationHandler: p.answer})
		assert.Contains(t, text(t, refund(t, session, 1250)), "(lost by the post)")
		assert.Len(t, c.all(), 1)
	})
}

// eachWay runs a test in every way, several at the same time: most of it is waiting.
func eachWay(t *testing.T, st store.Store, test func(t *testing.T, url, version string, c *cashier)) {
	for name, w := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &cashier{}
			test(t, serve(t, st, c, w.runtime, w.opts), w.version, c)
		})
	}
}

func TestAPaymentThatFailsIsAnError(t *testing.T) {
	c := &cashier{err: errors.New("account 4711 is empty")}
	url := serve(t, memory.New(), c, handler.Runtime{}, handler.Options{})
	p := &person{answers: []*mcp.ElicitResult{accept("late")}}
	result := refund(t, connect(t, url, "2025-11-25", &mcp.ClientOptions{ElicitationHandler: p.answer}), 1)
	assert.True(t, result.IsError)
	assert.NotContains(t, text(t, result), "4711", "what went wrong is for the log")
}

func TestWhatCannotBeRefundedIsNotAsked(t *testing.T) {
	url := serve(t, memory.New(), &cashier{}, handler.Runtime{}, handler.Options{})
	p := &person{}
	result := refund(t, connect(t, url, "2026-07-28", &mcp.ClientOptions{ElicitationHandler: p.answer}), 0)
	assert.True(t, result.IsError)
	assert.Empty(t, p.asked)
}

// A client that has nobody to ask is told so, and does not wait.
func TestAClientThatCannotAskGetsAnError(t *testing.T) {
	eachWay(t, memory.New(), func(t *testing.T, url, version string, c *cashier) {
		session := connect(t, url, version, nil)
		result, err := session.CallTool(t.Context(), &mcp.CallToolParams{
			Name: "refund", Arguments: map[string]any{"order": "A-17", "cents": 1},
		})
		if err == nil {
			assert.True(t, result.IsError)
		}
		assert.Empty(t, c.all())
	})
}

// A modern client that has lost the response to its last step sends that again. Whoever pays sees the same ID.
func TestARepeatedStepNamesTheSameRefund(t *testing.T) {
	c := &cashier{}
	url := serve(t, memory.New(), c, handler.Runtime{}, handler.Options{})
	p := &person{answers: []*mcp.ElicitResult{accept("late")}}
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{ElicitationHandler: p.answer})
	last := &recorder{}
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint: url, HTTPClient: &http.Client{Transport: last},
	}, &mcp.ClientSessionOptions{ProtocolVersion: "2026-07-28"})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, session.Close()) })
	refund(t, session, 1250)
	require.Len(t, c.all(), 1)

	assert.Contains(t, last.send(t, last.body), c.all()[0].ID)
	require.Len(t, c.all(), 2)
	assert.Equal(t, c.all()[0], c.all()[1])

	require.Contains(t, last.body, `"cents":1250`)
	assert.Contains(t, last.send(t, strings.Replace(last.body, `"cents":1250`, `"cents":9999`, 1)), `"error"`)
	assert.Len(t, c.all(), 2, "an approval is for what was asked")
}

// A recorder keeps the last step of a call.
type recorder struct {
	req  *http.Request
	body string
}

func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		if strings.Contains(string(body), "requestState") {
			r.req, r.body = req, string(body)
		}
		req.Body = io.NopCloser(strings.NewReader(string(body)))
	}
	return http.DefaultTransport.RoundTrip(req)
}

// send sends it again, with another body.
func (r *recorder) send(t *testing.T, body string) string {
	t.Helper()
	require.NotNil(t, r.req)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.req.URL.String(), strings.NewReader(body))
	require.NoError(t, err)
	req.Header = r.req.Header.Clone()
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return string(answer)
}
