package faults

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/handler"
	"github.com/hydrant-mcp/hydrant/internal/cmd/soak/client"
	"github.com/hydrant-mcp/hydrant/internal/harness"
	"github.com/hydrant-mcp/hydrant/store"
	"github.com/hydrant-mcp/hydrant/store/faulty"
)

const (
	listTools = `{"jsonrpc":"2.0","id":7,"method":"tools/list"}`
	setLevel  = `{"jsonrpc":"2.0","id":7,"method":"logging/setLevel","params":{"level":"info"}}`
)

// A line is a request that a line of the first table of docs/failures.md is about.
type line struct {
	row, name string // row is the line's first cell
	setup     setup
	// ask gets everything ready, and gives the request.
	ask func(w *world) request
	// What the client gets: header is one that the answer has, says is in its body. A status of 0 is no answer.
	status, code int
	header, says string
	// store says that the store is asked first: while it fails, the answer may be that of the store's line.
	store bool
	runs  bool // the tool does
	well  bool // nothing is wrong, but for the store
	// leaves is when the client goes; 0: it stays to the end.
	leaves time.Duration
}

type request struct {
	session      *client.Session
	method, body string // of HTTP; POST where there is a body
	headers      []string
}

// The rows that have several lines.
const (
	noSession   = "no `Mcp-Session-Id` on a legacy message that needs one"
	missing     = "session missing, expired, deleted or another principal's"
	unreachable = "store unreachable, throttled, timed out, contended"
	unreadable  = "record cannot be read"
	notJSON     = "not JSON, not UTF-8, nested too deeply"
	notMessage  = "not a valid message; a batch where the version has none"
	mediaType   = "`Content-Type` is not JSON in UTF-8, or the body is encoded"
	acceptable  = "`Accept` takes neither JSON nor an event stream"
	notAllowed  = "HTTP method not allowed here"
	badToken    = "bearer token missing or not valid"
	lacksScope  = "the token lacks a scope"
	tooMany     = "too many calls of a session, streams or watched resources in one process, or too much stored for a session there"
	longHeader  = "a header's value longer than `Options.MaxHeader`"
	malformed   = "the `Authorization` header comes twice, or the verifier says that the request is not what OAuth allows"
	tooMuch     = "too many subscriptions"
	badState    = "a `requestState` that is missing, changed, expired or used (modern)"
	badVersion  = "unsupported protocol version"
	disagree    = "header and body disagree (modern)"
	badMethod   = "unknown method"
	tooLarge    = "response larger than the runtime can return"
	pastTheEnd  = "tool past the deadline"
	badEvent    = "unknown, forged or foreign `Last-Event-ID`"
	panics      = "a handler panics"
	wentAway    = "the client went away"
)

const lateBody = "the body does not arrive within a minute, or in the runtime's time"

const (
	quick       = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"quick","arguments":{"key":"k"}}}`
	subscribe   = `{"jsonrpc":"2.0","id":7,"method":"resources/subscribe","params":{"uri":"test://one"}}`
	initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	cancelled   = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"x"}}`
	noQuestion  = `{"jsonrpc":"2.0","id":"q","result":{}}`
	rounds      = `"name":"rounds","arguments":{"key":"k"}`
	accepts     = `"inputResponses":{"q":{"action":"accept","content":{"answer":"x"}}}`
)

var (
	guarded  = setup{opts: handler.Options{Verifier: verify, Scopes: []string{"mcp"}}}
	scoped   = setup{opts: handler.Options{Verifier: verify, ToolScopes: func(string) []string { return []string{"more"} }}}
	buffered = setup{runtime: handler.Runtime{Buffered: true}}
	small    = setup{runtime: handler.Runtime{MaxResponse: 5000}}
	short    = setup{opts: handler.Options{CallTimeout: 5 * time.Second}}
	lonely   = setup{instances: 1, opts: handler.Options{MaxCalls: 1, MaxSessionStreams: 1}}
)

var lines = []line{
	{row: noSession, name: "POST", ask: anybody(quick), status: 400, code: -32600},
	{row: noSession, name: "notification", ask: anybody(initialized), status: 400, code: -32600},
	{row: noSession, name: "GET", ask: method(http.MethodGet, anybody("")), status: 400, code: -32600},
	{row: noSession, name: "DELETE", ask: method(http.MethodDelete, anybody("")), status: 400, code: -32600},

	{row: missing, name: "POST", ask: nobodys(quick), status: 404, code: -32001, store: true},
	{row: missing, name: "notification", ask: nobodys(initialized), status: 404, code: -32001, store: true},
	{row: missing, name: "answer", ask: nobodys(noQuestion), status: 404, code: -32001, store: true},
	{row: missing, name: "GET", ask: method(http.MethodGet, nobodys("")), status: 404, code: -32001, store: true},
	{row: missing, name: "DELETE", ask: method(http.MethodDelete, nobodys("")), status: 404, code: -32001, store: true},
	{row: missing, name: "expired", setup: setup{opts: handler.Options{SessionTTL: time.Minute}},
		ask: after(2*time.Minute, sessions(quick)), status: 404, code: -32001, store: true},
	{row: missing, name: "deleted", ask: deleted, status: 404, code: -32001, store: true},
	{row: missing, name: "somebody else's", setup: guarded, ask: theirs, status: 404, code: -32001, store: true},

	{row: unreachable, name: "list", well: true, ask: sessions(listTools), status: 200, store: true},
	{row: unreachable, name: "call", well: true, ask: sessions(quick), status: 200, store: true, runs: true},
	{row: unreachable, name: "change", well: true, ask: sessions(setLevel), status: 200, store: true},
	{row: unreachable, name: "subscribe", well: true, ask: sessions(subscribe), status: 200, store: true},
	{row: unreachable, name: "notification", well: true, ask: sessions(initialized), status: 202, store: true},
	{row: unreachable, name: "cancellation", well: true, ask: sessions(cancelled), status: 202, store: true},
	{row: unreachable, name: "answer", well: true, ask: sessions(noQuestion), status: 202, store: true},
	{row: unreachable, name: "initialize", well: true, ask: anybody(initializeBody), status: 200, store: true},
	{row: unreachable, name: "GET", well: true, ask: method(http.MethodGet, sessions("")), status: 200, store: true,
		leaves: 12 * time.Second},
	{row: unreachable, name: "DELETE", well: true, ask: method(http.MethodDelete, sessions("")), status: 204, store: true},

	{row: unreadable, name: "by the store", setup: setup{wrap: corrupting}, ask: copied(func(s *store.Session) { s.Principal = corrupt }),
		status: 500, code: -32603, store: true},
	{row: unreadable, name: "by the server", ask: copied(func(s *store.Session) { s.InitializeParams = []byte(`{"capabilities":7}`) }),
		status: 500, code: -32603, store: true},

	{row: notJSON, name: "half", ask: sessions("{"), status: 400, code: -32700},
	{row: notJSON, name: "not UTF-8", ask: sessions("\xff"), status: 400, code: -32700},
	{row: notJSON, name: "deep", ask: sessions(strings.Repeat("[", 10_000)), status: 400, code: -32700},
	{row: notMessage, name: "no method", ask: sessions(`{"jsonrpc":"2.0","id":7,"method":42}`), status: 400, code: -32600},
	{row: notMessage, name: "batch", ask: sessions("[" + quick + "]"), status: 400, code: -32600, store: true},
	{row: notMessage, name: "batch, modern", ask: anybody("["+quick+"]", "Mcp-Protocol-Version", client.Modern),
		status: 400, code: -32600},
	{row: "body larger than `Options.MaxBody`", setup: setup{opts: handler.Options{MaxBody: 1000}},
		ask: sessions(quick + strings.Repeat(" ", 1000)), status: 413, code: -32600},
	{row: longHeader, setup: setup{opts: handler.Options{MaxHeader: 1000}},
		ask: sessions(quick, "X-Any", strings.Repeat("x", 2000)), status: 431, code: -32600},
	{row: malformed, setup: guarded, ask: as("malformed", anybody(quick)), status: 400, code: -32600, header: "Www-Authenticate"},
	{row: mediaType, name: "text", ask: sessions(quick, "Content-Type", "text/plain"), status: 415, code: -32600},
	{row: mediaType, name: "encoded", ask: sessions(quick, "Content-Encoding", "gzip"), status: 415, code: -32600},
	{row: acceptable, name: "POST", ask: sessions(quick, "Accept", "text/html"), status: 406, code: -32600},
	{row: acceptable, name: "GET", ask: method(http.MethodGet, sessions("", "Accept", "application/json")), status: 406, code: -32600},
	{row: notAllowed, name: "PUT", ask: method(http.MethodPut, sessions("")), status: 405, code: -32600, header: "Allow"},
	{row: notAllowed, name: "GET, modern", ask: method(http.MethodGet, anybody("", "Mcp-Protocol-Version", client.Modern)),
		status: 405, code: -32600, header: "Allow"},
	{row: notAllowed, name: "GET, buffered", setup: buffered, ask: method(http.MethodGet, sessions("")),
		status: 405, code: -32600, header: "Allow", store: true},

	{row: "`Origin` present and not allowed", setup: setup{opts: handler.Options{AllowedOrigins: []string{"https://app.example"}}},
		ask: sessions(quick, "Origin", "https://evil.example"), status: 403, code: -32600},
	{row: badToken, name: "missing", setup: guarded, ask: as("", anybody(quick)), status: 401, code: -32600, header: "Www-Authenticate"},
	{row: badToken, name: "bad", setup: guarded, ask: as("bad", anybody(quick)), status: 401, code: -32600,
		header: "Www-Authenticate"},
	{row: badToken, name: "expired", setup: guarded, ask: as("expired", anybody(quick)), status: 401, code: -32600,
		header: "Www-Authenticate"},
	{row: lacksScope, name: "of the server", setup: guarded, ask: as("weak", anybody(quick)), status: 403, code: -32600,
		header: "Www-Authenticate"},
	{row: lacksScope, name: "of the tool", setup: scoped, ask: as("alice", sessions(quick)), status: 403, code: -32600,
		header: "Www-Authenticate", store: true},
	{row: lacksScope, name: "of the tool, modern", setup: scoped, ask: as("alice", modern(rounds)), status: 403, code: -32600,
		header: "Www-Authenticate"},
	{row: "who is asking could not be verified (the verifier fails)", setup: guarded, ask: as("down", anybody(quick)),
		status: 503, code: -32603, header: "Retry-After", says: `"retryable":true`},
	{row: tooMany, name: "calls", setup: lonely, ask: whileOneRuns, status: 429, code: -32603, header: "Retry-After",
		says: `"retryable":true`, store: true},
	{row: tooMany, name: "streams", setup: lonely, ask: whileOneListens, status: 429, code: -32603, header: "Retry-After",
		says: `"retryable":true`, store: true},

	{row: badState, name: "missing", ask: modern(rounds + "," + accepts), status: 400, code: -32602},
	{row: badState, name: "changed", ask: again(func(state string) string { return rounds + "," + carrying("AAAA"+state[4:]) }),
		status: 400, code: -32602},
	{row: badState, name: "of another call", ask: again(func(state string) string {
		return `"name":"rounds","arguments":{"key":"other"},` + carrying(state)
	}), status: 400, code: -32602},
	{row: badState, name: "expired", setup: setup{opts: handler.Options{StateTimeout: time.Second}},
		ask: after(3*time.Second, again(carried)), status: 400, code: -32602},
	{row: badState, name: "used", setup: setup{opts: handler.Options{SingleUseState: true}}, ask: used,
		status: 400, code: -32602, store: true},

	{row: "a host name that is not allowed, on loopback", setup: setup{opts: handler.Options{AllowedHosts: []string{"mcp.example"}}},
		ask: anybody(quick), status: 403, code: -32600},
	{row: badVersion, name: "modern", ask: changed(modern(rounds), "2026-07-28", "2099-01-01"), status: 400, code: -32022,
		says: `"supported":["2026-07-28"`},
	{row: badVersion, name: "on a session", ask: sessions(quick, "Mcp-Protocol-Version", "2099-01-01"), status: 400, code: -32600},
	{row: disagree, name: "tool", ask: modern(rounds, "Mcp-Name", "quick"), status: 400, code: -32020},
	{row: disagree, name: "version", ask: modern(rounds, "Mcp-Protocol-Version", latest), status: 400, code: -32020},
	{row: "a question that the client has not declared it can answer (modern)", ask: changed(modern(rounds), `{"elicitation":{}}`, `{}`),
		status: 400, code: -32021, says: `"requiredCapabilities":{"elicitation"`, runs: true},
	{row: badMethod, name: "modern", ask: changed(modern(rounds), "tools/call", "no/such"), status: 404, code: -32601},
	{row: badMethod, name: "legacy", ask: sessions(`{"jsonrpc":"2.0","id":7,"method":"no/such"}`), status: 200, code: -32601, store: true},
	{row: tooLarge, name: "modern", setup: small, ask: modern(`"name":"large","arguments":{"key":"k","bytes":6000}`),
		status: 200, code: -32603, says: "5000", runs: true},
	{row: tooLarge, name: "legacy", setup: small, ask: sessions(changedTo(`"large","arguments":{"key":"k","bytes":6000}`)),
		status: 200, code: -32603, says: "5000", store: true, runs: true},
	{row: pastTheEnd, name: "modern", setup: short, ask: modern(`"name":"slow","arguments":{"key":"k","ms":60000}`),
		status: 200, code: -32603, says: "5s", runs: true},
	{row: pastTheEnd, name: "legacy", setup: short, ask: sessions(changedTo(`"slow","arguments":{"key":"k","ms":60000}`)),
		status: 200, code: -32603, says: "5s", store: true, runs: true},
	{row: tooMuch, name: "legacy", setup: setup{opts: handler.Options{MaxSubscriptions: 1}}, ask: subscribed,
		status: 200, code: -32602, says: "at most 1,", store: true},
	{row: tooMuch, name: "modern", setup: setup{opts: handler.Options{MaxSubscriptions: 1}}, ask: listensToTwo,
		status: 400, code: -32602, says: "at most 1,"},
	{row: badEvent, name: "forged", ask: method(http.MethodGet, sessions("", "Last-Event-ID", "forged")),
		status: 400, code: -32600, store: true},
	{row: badEvent, name: "foreign", ask: foreignEvent, status: 400, code: -32600, store: true},
	{row: panics, name: "tool", ask: sessions(changedTo(`"panic","arguments":{}`)), status: 200, says: `"isError":true`, store: true},
	{row: panics, name: "tool, modern", ask: modern(`"name":"panic","arguments":{}`), status: 200, says: `"isError":true`},
	{row: panics, name: "prompt", ask: sessions(`{"jsonrpc":"2.0","id":7,"method":"prompts/get","params":{"name":"panic"}}`),
		status: 200, code: -32603, store: true},
	{row: panics, name: "prompt, modern", ask: changed(modern(`"name":"panic"`), "tools/call", "prompts/get"), status: 200, code: -32603},
	{row: wentAway, name: "modern", ask: modern(`"name":"slow","arguments":{"key":"k","ms":60000}`), runs: true,
		leaves: 500 * time.Millisecond},
	{row: wentAway, name: "legacy", setup: short, ask: sessions(changedTo(`"slow","arguments":{"key":"k","ms":4000}`)), runs: true,
		store: true, leaves: 500 * time.Millisecond},
}

// Every line of the table, on three days: a fifth of all operations of the store fails in every way; all do; none does. The
// answer is the line's. Where the store is asked first it may be the store's line instead on the first day, and is on the
// second; it is never anything else, it comes soon, and no tool has run that the line does not let run.
func TestFailureTableUnderFaults(t *testing.T) {
	documented := failureTable(t)
	for n, l := range lines {
		t.Run(strings.TrimSuffix(l.row+": "+l.name, ": "), func(t *testing.T) {
			l.setup.plan = mixed(uint64(n), 0.2)
			inWorld(t, l.setup, func(w *world) {
				exact, outages := 0, 0
				for range 30 {
					if l.send(w, l.ask(w)) {
						outages++
					} else {
						exact++
					}
				}
				assert.Positive(w.t, exact)
				if l.well {
					assert.Positive(w.t, outages)
				}
				w.faults.Set(faulty.Plan{})
				q := l.ask(w)
				w.log.clear()
				w.faults.Set(faulty.Plan{Rates: faulty.Rates{Error: 1}})
				assert.Equal(w.t, l.store, l.send(w, q), "while the store is away")
				if l.store && l.status != 0 {
					assert.True(w.t, w.log.has("ERROR", -32603))
				}
				w.faults.Set(faulty.Plan{})
				q = l.ask(w)
				w.log.clear()
				assert.False(w.t, l.send(w, q), "while it works")
				if !l.well {
					code := l.code
					if l.row == panics {
						code = 0 // logged where it happens
					}
					w.until(func() bool { return w.log.has(documented[l.row].level, code) })
				}
			})
		})
	}
}

// send sends the request of a line. What comes back is the line's answer, or, if outage, the store's line.
func (l line) send(w *world, q request) (outage bool) {
	w.t.Helper()
	if q.method == "" {
		q.method = http.MethodPost
	}
	ctx, leave := w.t.Context(), func() {}
	if l.leaves > 0 {
		ctx, leave = context.WithTimeout(ctx, l.leaves)
	}
	defer leave()
	began, ran := time.Now(), w.runs.total()
	status, header, body, err := q.session.Do(ctx, q.method, q.body, q.headers...)
	assert.Less(w.t, time.Since(began), 15*time.Second)
	code := 0
	if m := regexp.MustCompile(`"error":\{"code":(-\d+)`).FindStringSubmatch(body); m != nil {
		code, _ = strconv.Atoi(m[1])
	}
	// What a slow store refuses at last may be part of a stream by then, which has no status of its own any more.
	retryable := code == -32603 && strings.Contains(body, `"retryable":true`)
	streamed := strings.HasPrefix(header.Get("Content-Type"), "text/event-stream")
	if l.store && retryable && (status == 503 && header.Get("Retry-After") != "" || status == 200 && streamed) {
		assert.Equal(w.t, ran, w.runs.total(), "what is to be repeated has not run")
		return true
	}
	if l.leaves == 0 {
		assert.NoError(w.t, err)
	}
	assert.Equal(w.t, l.status, status, body)
	assert.Equal(w.t, l.code, code, body)
	assert.Contains(w.t, body, l.says)
	if l.header != "" {
		assert.NotEmpty(w.t, header.Get(l.header))
	}
	if status == 404 && code == -32001 {
		assert.NotContains(w.t, body, `"id":7`, "with an id, clients keep the dead session")
	}
	if !l.runs {
		assert.Equal(w.t, ran, w.runs.total(), "a tool has run")
	}
	return false
}

// documentedLine is a line of the table as it is in the documentation.
type documentedLine struct{ http, rpc, level string }

// failureTable reads the first table of docs/failures.md.
func failureTable(t *testing.T) map[string]documentedLine {
	t.Helper()
	table := map[string]documentedLine{}
	for _, cells := range tableOf(t, "| what happened | HTTP | JSON-RPC | logged at |") {
		level := regexp.MustCompile(`^\w+`).FindString(cells[3])
		table[cells[0]] = documentedLine{cells[1], cells[2], strings.ToUpper(level)}
	}
	return table
}

// tableOf reads the table of docs/failures.md that has this head.
func tableOf(t *testing.T, head string) (rows [][]string) {
	t.Helper()
	root, err := harness.Root()
	require.NoError(t, err)
	doc, err := os.ReadFile(filepath.Join(root, "docs", "failures.md"))
	require.NoError(t, err)
	_, table, ok := strings.Cut(string(doc), head+"\n")
	require.True(t, ok, head)
	table, _, _ = strings.Cut(table, "\n\n")
	for row := range strings.Lines(table) {
		if strings.HasPrefix(row, "|-") {
			continue
		}
		cells := strings.Split(strings.Trim(row, "|\n"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, cells)
	}
	return rows
}

// Every line of the table has a test here, and the tests expect what it says.
func TestEveryFailureIsTestedUnderFaults(t *testing.T) {
	documented := failureTable(t)
	tested := map[string]bool{}
	for _, l := range lines {
		tested[l.row] = true
		d, ok := documented[l.row]
		if !assert.True(t, ok, "not in the table: %s", l.row) || l.well {
			continue
		}
		if l.status != 0 {
			assert.Contains(t, d.http, strconv.Itoa(l.status), l.row)
		}
		if l.code != 0 {
			assert.Contains(t, d.rpc, strconv.Itoa(l.code), l.row)
		}
	}
	delete(documented, lateBody) // TestABodyHasToArrive of the handler: it gets no further, whatever the store does
	for row := range documented {
		assert.True(t, tested[row], "without a test under faults: %s", row)
	}
}

func (w *world) do(s *client.Session, method, body string, headers ...string) (int, http.Header, string) {
	w.t.Helper()
	status, header, text, err := s.Do(w.t.Context(), method, body, headers...)
	require.NoError(w.t, err)
	return status, header, text
}

// nobody is a session that could be one of ours, and is none.
func (w *world) nobody() *client.Session {
	return &client.Session{Client: w.client, ID: strings.Repeat("A", 26), Version: latest}
}

// anybody sends a body without a session.
func anybody(body string, headers ...string) func(*world) request {
	return func(w *world) request {
		return request{session: &client.Session{Client: w.client}, body: body, headers: headers}
	}
}

// sessions sends it in a new session.
func sessions(body string, headers ...string) func(*world) request {
	return func(w *world) request {
		return request{session: w.session(w.client, latest), body: body, headers: headers}
	}
}

// nobodys sends it in a session that there is not.
func nobodys(body string) func(*world) request {
	return func(w *world) request { return request{session: w.nobody(), body: body} }
}

// modern calls a tool as a modern client does. params is the inside of the params.
func modern(params string, headers ...string) func(*world) request {
	_, name, _ := strings.Cut(params, `"name":"`)
	name, _, _ = strings.Cut(name, `"`)
	body := `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{` + params + `,"_meta":{"io.modelcontextprotocol/protocolVersion":` +
		`"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}}}`
	all := append([]string{"Mcp-Protocol-Version", client.Modern, "Mcp-Method", "tools/call", "Mcp-Name", name}, headers...)
	return anybody(body, all...)
}

// changedTo is the body of a call of another tool.
func changedTo(tool string) string {
	return strings.Replace(quick, `"quick","arguments":{"key":"k"}`, tool, 1)
}

// changed changes a request, its headers too.
func changed(ask func(*world) request, from, to string) func(*world) request {
	return func(w *world) request {
		q := ask(w)
		q.body = strings.Replace(q.body, from, to, 1)
		q.headers = slices.Clone(q.headers)
		for i, h := range q.headers {
			q.headers[i] = strings.Replace(h, from, to, 1)
		}
		return q
	}
}

func method(name string, ask func(*world) request) func(*world) request {
	return func(w *world) request {
		q := ask(w)
		q.method = name
		return q
	}
}

func after(d time.Duration, ask func(*world) request) func(*world) request {
	return func(w *world) request {
		q := ask(w)
		time.Sleep(d)
		return q
	}
}

// as has the world's client come with a token.
func as(token string, ask func(*world) request) func(*world) request {
	return func(w *world) request {
		w.client.Token = token
		return ask(w)
	}
}

// verify knows everybody, but for some tokens that are not good.
func verify(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
	info := &auth.TokenInfo{UserID: token, Expiration: time.Now().Add(time.Hour), Scopes: []string{"mcp"}}
	switch token {
	case "bad":
		return nil, auth.ErrInvalidToken
	case "malformed":
		return nil, auth.ErrOAuth
	case "down":
		return nil, errors.New("the key server is down")
	case "expired":
		info.Expiration = time.Now().Add(-time.Hour)
	case "weak":
		info.Scopes = nil
	}
	return info, nil
}

func theirs(w *world) request {
	q := as("alice", sessions(quick))(w)
	bob := *w.client
	bob.Token = "bob"
	q.session.Client = &bob
	return q
}

func deleted(w *world) request {
	q := sessions(quick)(w)
	status, _ := q.session.Delete(w.t.Context())
	require.Contains(w.t, []int{204, 404}, status) // a delete that was lost has happened
	return q
}

// copied makes a call in a session whose record is like another one's, but for a change.
func copied(change func(*store.Session)) func(*world) request {
	return func(w *world) request { return request{session: w.copied(change), body: quick} }
}

// copied stores the record of a new session once more, with a change, as another session.
func (w *world) copied(change func(*store.Session)) *client.Session {
	w.t.Helper()
	s := w.session(w.client, latest)
	record, err := w.under.Session(w.t.Context(), keyOf(s))
	require.NoError(w.t, err)
	other := &client.Session{Client: w.client, ID: s.ID[1:] + s.ID[:1], Version: latest}
	record.Key = keyOf(other)
	change(record)
	require.NoError(w.t, w.under.CreateSession(w.t.Context(), record))
	return other
}

// corrupt marks the records that a store of corrupting cannot read.
const corrupt = "corrupt"

type corrupted struct{ store.Store }

func corrupting(_ *instance, st store.Store) store.Store { return telling(corrupted{st}, st) }

// Session implements [store.Store].
func (c corrupted) Session(ctx context.Context, key string) (*store.Session, error) {
	s, err := c.Store.Session(ctx, key)
	if err == nil && s.Principal == corrupt {
		return nil, store.Wrap("test", store.ErrCorrupt, nil)
	}
	return s, err
}

// whileOneRuns makes a call while another one of the session runs.
func whileOneRuns(w *world) request {
	q := sessions(quick)(w)
	go q.session.Call(w.t.Context(), client.Tool("slow", fmt.Sprintf(`{"key":%q,"ms":30000}`, q.session.ID)))
	w.until(func() bool { return w.runs.of(q.session.ID) > 0 })
	return q
}

// whileOneListens opens a stream while another one of the session is open.
func whileOneListens(w *world) request {
	q := method(http.MethodGet, sessions(""))(w)
	ctx, stop := context.WithTimeout(w.t.Context(), 30*time.Second)
	opened := make(chan struct{})
	go func() {
		defer stop()
		for ; ctx.Err() == nil; time.Sleep(time.Second) { // until the store lets it
			_, _ = q.session.Listen(ctx, func() { close(opened); <-ctx.Done() }, nil)
		}
	}()
	<-opened
	return q
}

// until waits for something that comes soon.
func (w *world) until(done func() bool) {
	w.t.Helper()
	for began := time.Now(); !done(); time.Sleep(10 * time.Millisecond) {
		require.Less(w.t, time.Since(began), time.Minute)
	}
}

// again is the second round of a modern call, with what change makes of the state that the first one has given.
func again(change func(state string) string) func(*world) request {
	return func(w *world) request {
		first := modern(rounds)(w)
		_, _, body := w.do(first.session, http.MethodPost, first.body, first.headers...)
		_, state, ok := strings.Cut(body, `"requestState":"`)
		require.True(w.t, ok, body)
		state, _, _ = strings.Cut(state, `"`)
		return modern(change(state))(w)
	}
}

func carrying(state string) string { return `"requestState":"` + state + `",` + accepts }

func carried(state string) string { return rounds + "," + carrying(state) }

// used is a second round once more.
func used(w *world) request {
	q := again(carried)(w)
	w.until(func() bool {
		status, _, _ := w.do(q.session, http.MethodPost, q.body, q.headers...)
		return status != 503
	})
	return q
}

// subscribed is the second subscription of a session.
func listensToTwo(w *world) request {
	body := `{"jsonrpc":"2.0","id":7,"method":"subscriptions/listen","params":{"notifications":{"resourceSubscriptions":["a","b"]},` +
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
	return anybody(body, "Mcp-Protocol-Version", client.Modern, "Mcp-Method", "subscriptions/listen")(w)
}

func subscribed(w *world) request {
	q := sessions(strings.Replace(subscribe, "one", "two", 1))(w)
	w.until(func() bool {
		w.do(q.session, http.MethodPost, subscribe)
		stored, err := w.under.Session(w.t.Context(), keyOf(q.session))
		require.NoError(w.t, err)
		return len(stored.Subscriptions) > 0
	})
	return q
}

// eventID gives an event id of a call of a session's.
func (w *world) eventID(s *client.Session, key string) (event string) {
	w.t.Helper()
	w.until(func() bool {
		_, _, body := w.do(s, http.MethodPost, strings.Replace(quick, `"k"`, `"`+key+`"`, 1), "Accept", "text/event-stream")
		_, id, _ := strings.Cut(body, "id: ")
		event, _, _ = strings.Cut(id, "\n")
		return event != ""
	})
	return event
}

func foreignEvent(w *world) request {
	event := w.eventID(w.session(w.client, latest), "secret")
	return method(http.MethodGet, sessions("", "Last-Event-ID", event))(w)
}
