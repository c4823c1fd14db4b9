package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/hydrant-mcp/hydrant/internal/cmd/soak/client"
)

// A message is what a forged server reads.
type message struct {
	ID     json.RawMessage
	Method string
	Params struct {
		Name      string
		Arguments struct{ Key, URI string }
	}
}

// A forged server says what the real one would say, to one client and without running anything, but where it is told to
// misbehave.
type forged struct {
	misbehaves func(w http.ResponseWriter, r *http.Request, m message) bool
	touched    chan string // URI
	cancelled  chan struct{}
	deleted    bool
}

func (f *forged) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var m message
	body, _ := io.ReadAll(r.Body)
	_ = json.Unmarshal(body, &m)
	if m.Method == "notifications/cancelled" {
		f.cancelled <- struct{}{}
	}
	if f.misbehaves != nil && f.misbehaves(w, r, m) {
		return
	}
	switch {
	case f.deleted:
		http.Error(w, "no such session", http.StatusNotFound)
	case r.Method == http.MethodDelete:
		f.deleted = true
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodGet:
		w.Header().Set("Content-Type", "text/event-stream")
		send(w, "") // it is open
		send(w, updated(<-f.touched, ""))
		<-r.Context().Done()
	case m.Method == "" || m.ID == nil: // an answer or a notification
		w.WriteHeader(http.StatusAccepted)
	case m.Method == "subscriptions/listen":
		w.Header().Set("Content-Type", "text/event-stream")
		send(w, `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{`+tag(string(m.ID))+`}}`)
		send(w, updated(<-f.touched, string(m.ID)))
		<-r.Context().Done()
	default:
		f.request(w, m)
	}
}

func (f *forged) request(w http.ResponseWriter, m message) {
	key := m.Params.Arguments.Key
	switch m.Params.Name {
	case "":
		w.Header().Set("Mcp-Session-Id", "s")
		_, _ = io.WriteString(w, response(m, key))
	case "touch":
		f.touched <- m.Params.Arguments.URI
		_, _ = io.WriteString(w, response(m, "touched"))
	case toolWork: // it is cancelled
		<-f.cancelled
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32800,"message":"the request was cancelled"}}`, m.ID)
	case toolQuestion:
		w.Header().Set("Content-Type", "text/event-stream")
		send(w, `{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"`+key+`"}}`)
		send(w, response(m, key))
	default:
		_, _ = io.WriteString(w, response(m, "ran:"+key))
	}
}

func response(m message, text string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":%q}]}}`, m.ID, text)
}

func tag(subscription string) string {
	return `"_meta":{"io.modelcontextprotocol/subscriptionId":` + subscription + `}`
}

func updated(uri, subscription string) string {
	params := `"uri":"` + uri + `"`
	if subscription != "" {
		params += "," + tag(subscription)
	}
	return `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{` + params + `}}`
}

func send(w http.ResponseWriter, data string) {
	_, _ = fmt.Fprintf(w, "data: %s\n\n", data)
	_ = http.NewResponseController(w).Flush()
}

// status is a misbehaviour: a status to all that fits.
func status(code int, fits func(r *http.Request, m message) bool) func(http.ResponseWriter, *http.Request, message) bool {
	return func(w http.ResponseWriter, r *http.Request, m message) bool {
		if !fits(r, m) {
			return false
		}
		http.Error(w, `{"jsonrpc":"2.0","error":{"code":-32603,"message":"no"}}`, code)
		return true
	}
}

// streams is a misbehaviour: a stream of announcements that says something, and ends.
func streams(says func(m message) string) func(http.ResponseWriter, *http.Request, message) bool {
	return func(w http.ResponseWriter, r *http.Request, m message) bool {
		if r.Method != http.MethodGet && m.Method != "subscriptions/listen" {
			return false
		}
		w.Header().Set("Content-Type", "text/event-stream")
		if m.Method != "" {
			send(w, `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{`+tag(string(m.ID))+`}}`)
		}
		send(w, says(m))
		return true
	}
}

func TestServersThatMisbehaveAreSeen(t *testing.T) {
	method := func(name string) func(*http.Request, message) bool {
		return func(_ *http.Request, m message) bool { return m.Method == name }
	}
	verb := func(name string) func(*http.Request, message) bool {
		return func(r *http.Request, _ message) bool { return r.Method == name }
	}
	asks := func(w *worker, ctx context.Context) {
		key := w.key()
		w.call(ctx, "question", key, tool(toolQuestion, key, ""), says(key))
	}
	isAnswer := func(r *http.Request, m message) bool { return r.Method == http.MethodPost && m.Method == "" }
	drops := func(http.ResponseWriter, *http.Request, message) bool { panic(http.ErrAbortHandler) }
	hangs := func(_ http.ResponseWriter, r *http.Request, _ message) bool {
		<-r.Context().Done()
		return true
	}
	dropsStreams := func(w http.ResponseWriter, r *http.Request, m message) bool {
		return streams(func(message) string { return "" })(w, r, m) && drops(w, r, m)
	}
	impatient := func(w *worker) { w.client.Patience = 100 * time.Millisecond }
	cuts := func(w *worker) { w.client.Cut = func() int64 { return 1 } }
	breaks := func(w *worker) {
		w.client.HTTP = &http.Client{Transport: &http.Transport{
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
				c := &frailConn{Conn: conn}
				c.left.Store(100)
				return c, err
			},
		}}
	}
	for _, tc := range []struct {
		name       string
		job        func(*worker, context.Context)
		misbehaves func(http.ResponseWriter, *http.Request, message) bool
		prepare    func(*worker)
		want       string
	}{
		{name: "a call", job: (*worker).plain, want: "answered"},
		{name: "a modern call", job: (*worker).modernPlain, want: "answered"},
		{name: "a cancelled call", job: (*worker).cancel, want: "cancelled"},
		{name: "an announcement", job: (*worker).announcement, want: "announcements"},
		{name: "a modern announcement", job: (*worker).modernAnnouncement, want: "announcements"},

		{name: "an answer that this side cuts", job: (*worker).plain, prepare: cuts, want: "cut inline"},
		{name: "a modern answer that this side cuts", job: (*worker).modernPlain, prepare: cuts, want: "cut inline"},
		{name: "a connection that this side breaks", job: (*worker).plain, prepare: breaks, want: "cut inline"},
		{name: "an answer that is dropped", job: (*worker).plain, misbehaves: drops, want: lost},
		{name: "a modern answer that is dropped", job: (*worker).modernPlain, misbehaves: drops, want: lost},
		{name: "a call that does not end", job: (*worker).plain, misbehaves: hangs, prepare: impatient, want: lost},
		{name: "a modern call that does not end", job: (*worker).modernPlain, misbehaves: hangs, prepare: impatient, want: lost},
		{name: "503 for ever", job: (*worker).plain, prepare: impatient, want: "unavailable",
			misbehaves: func(w http.ResponseWriter, _ *http.Request, _ message) bool {
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(http.StatusServiceUnavailable)
				return true
			}},
		{name: "404 to a call", job: (*worker).plain, misbehaves: status(404, method("tools/call")), want: false404},
		{name: "404 to a call, cut", job: (*worker).plain, prepare: cuts, want: false404,
			misbehaves: status(404, method("tools/call"))},
		{name: "500 to a call", job: (*worker).plain, misbehaves: status(500, method("tools/call")), want: wrong},
		{name: "no message", job: (*worker).plain, want: wrong,
			misbehaves: func(w http.ResponseWriter, _ *http.Request, _ message) bool {
				_, _ = io.WriteString(w, "hello")
				return true
			}},

		{name: "404 to initialized", job: (*worker).initialize, want: false404,
			misbehaves: status(404, method("notifications/initialized"))},
		{name: "400 to initialized", job: (*worker).initialize, want: wrong,
			misbehaves: status(400, method("notifications/initialized"))},
		{name: "404 to an answer", job: asks, misbehaves: status(404, isAnswer), want: false404},
		{name: "400 to an answer", job: asks, misbehaves: status(400, isAnswer), want: wrong},
		{name: "404 to a cancellation", job: (*worker).cancel, want: false404,
			misbehaves: status(404, method("notifications/cancelled"))},

		{name: "404 to DELETE", job: (*worker).end, misbehaves: status(404, verb(http.MethodDelete)), want: false404},
		{name: "400 to DELETE", job: (*worker).end, misbehaves: status(400, verb(http.MethodDelete)), want: wrong},
		{name: "500 to DELETE", job: (*worker).end, misbehaves: status(500, verb(http.MethodDelete)), want: wrong},
		{name: "no answer to DELETE", job: (*worker).end, misbehaves: drops, prepare: impatient, want: lost},
		{name: "a deleted session that works", job: (*worker).end, misbehaves: status(204, verb(http.MethodDelete)), want: wrong},

		{name: "404 to the GET", job: (*worker).announcement, misbehaves: status(404, verb(http.MethodGet)), want: false404},
		{name: "405 to the GET", job: (*worker).announcement, misbehaves: status(405, verb(http.MethodGet)), want: wrong},
		{name: "a response among announcements", job: (*worker).announcement, want: wrong,
			misbehaves: streams(func(message) string { return `{"jsonrpc":"2.0","id":1,"result":{}}` })},
		{name: "a question among announcements", job: (*worker).announcement, want: wrong,
			misbehaves: streams(func(message) string { return `{"jsonrpc":"2.0","id":1,"method":"elicitation/create"}` })},
		{name: "an announcement of somebody else's", job: (*worker).announcement, want: wrong,
			misbehaves: streams(func(message) string { return updated("test://soak/w77-1", "") })},
		{name: "an announcement of another subscription's", job: (*worker).modernAnnouncement, want: wrong,
			misbehaves: streams(func(message) string { return updated("test://soak/w7-1", "77") })},
		{name: "a stream that ends by itself", job: (*worker).announcement, want: lost,
			misbehaves: streams(func(message) string { return "" })},
		{name: "a modern stream that ends by itself", job: (*worker).modernAnnouncement, want: lost,
			misbehaves: streams(func(m message) string { return `{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":{}}` })},
		{name: "a stream that is dropped", job: (*worker).announcement, misbehaves: dropsStreams, want: lost},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := &forged{misbehaves: tc.misbehaves, touched: make(chan string, 1), cancelled: make(chan struct{}, 1)}
			srv := httptest.NewServer(f)
			defer srv.Close()
			l := newLedger(&bytes.Buffer{})
			c := &client.Client{URL: srv.URL, HTTP: srv.Client(), ComeBack: time.Millisecond}
			w := &worker{ledger: l, name: "w7", client: c, session: &client.Session{Client: c, ID: "s", Version: "2025-11-25"}}
			if tc.prepare != nil {
				tc.prepare(w)
			}
			tc.job(w, t.Context())
			l.settle(nil, nil)
			assertCounted(t, l, tc.want)
		})
	}
}
