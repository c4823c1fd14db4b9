package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/hydrant-mcp/hydrant/internal/cmd/soak/client"
)

// A worker is a client: it works on one session after the other, and makes requests of the modern era in between.
type worker struct {
	ledger  *ledger
	name    string
	client  *client.Client
	session *client.Session
	n       int
}

// patience is longer than a client waits that is told of a process's death: a lease, a look and what the store adds.
const patience = 75 * time.Second

func newWorker(l *ledger, i int, url string) *worker {
	return &worker{ledger: l, name: fmt.Sprintf("w%d", i), client: &client.Client{
		URL: url, Cut: bodyCut, Patience: patience, HTTP: &http.Client{Transport: newTransport()},
	}}
}

// jobs are what there is to do, and how often it comes, in parts of a hundred.
var jobs = []struct {
	share int
	do    func(*worker, context.Context)
}{
	{42, (*worker).plain},
	{9, (*worker).progress},
	{5, (*worker).silent},
	{6, (*worker).question},
	{3, (*worker).rounds},
	{6, (*worker).suspended},
	{3, (*worker).cancel},
	{2, (*worker).announcement},
	{2, (*worker).change},
	{2, (*worker).end},
	{14, (*worker).modernPlain},
	{2, (*worker).modernProgress},
	{3, (*worker).modernRounds},
	{1, (*worker).modernAnnouncement},
}

// work works until ctx ends. What has begun is finished.
func (w *worker) work(ctx context.Context) {
	defer w.client.HTTP.CloseIdleConnections()
	finishing := context.WithoutCancel(ctx)
	for ctx.Err() == nil {
		for w.session == nil && ctx.Err() == nil {
			w.initialize(finishing)
		}
		if w.session == nil {
			return
		}
		at := rand.IntN(100)
		for _, j := range jobs {
			if at -= j.share; at < 0 {
				j.do(w, finishing)
				break
			}
		}
	}
}

var versions = []string{"2025-11-25", "2025-11-25", "2025-11-25", "2025-06-18", "2025-03-26"}

func (w *worker) initialize(ctx context.Context) {
	s, o := w.client.Initialize(ctx, versions[rand.IntN(len(versions))])
	w.ledger.judge(w, call{what: "initialize", outcome: o, check: func(*client.Outcome) string { return "" }})
	if s != nil && s.Notify(ctx, "notifications/initialized", "{}", &client.Outcome{}) {
		w.session = s
	}
}

func (w *worker) key() string {
	w.n++
	return fmt.Sprintf("%s-%d", w.name, w.n)
}

// call makes a call of the worker's session, and judges it.
func (w *worker) call(
	ctx context.Context, what, key string, q client.Request, check func(*client.Outcome) string,
) *client.Outcome {
	if rand.IntN(2) == 0 {
		q.ID = "1" // one large client numbers all its requests so
	}
	q.Answer = answer
	o := w.session.Call(ctx, q)
	w.ledger.judge(w, call{what: what, key: key, session: w.session, outcome: o, check: check})
	return o
}

func (w *worker) modern(
	ctx context.Context, what, key string, q client.Request, check func(*client.Outcome) string,
) *client.Outcome {
	q.Answer = answer
	o := w.client.Modern(ctx, q)
	w.ledger.judge(w, call{what: what, key: key, outcome: o, check: check})
	return o
}

// answer answers a question with what was asked.
func answer(params json.RawMessage) string {
	var q struct{ Message string }
	_ = json.Unmarshal(params, &q)
	text, _ := json.Marshal(q.Message)
	return `{"action":"accept","content":{"answer":` + string(text) + `}}`
}

// says checks that a tool's text is this one.
func says(want string) func(*client.Outcome) string {
	return func(o *client.Outcome) string {
		if o.Text() == want && !o.IsError() {
			return ""
		}
		return fmt.Sprintf("wanted %q", want)
	}
}

func tool(name, key string, more string) client.Request {
	return client.Tool(name, `{"key":"`+key+`"`+more+`}`)
}

func (w *worker) plain(ctx context.Context) {
	key := w.key()
	w.call(ctx, "plain", key, tool("tally", key, ""), says("ran:"+key))
}

func (w *worker) modernPlain(ctx context.Context) {
	key := w.key()
	w.modern(ctx, "plain, modern", key, tool("tally", key, ""), says("ran:"+key))
}

func (w *worker) progress(ctx context.Context) {
	key := w.key()
	q := tool(toolWork, key, fmt.Sprintf(`,"n":%d,"ms":%d`, 1+rand.IntN(5), rand.IntN(120)))
	q.Progress = `"` + key + `"`
	w.call(ctx, "progress", key, q, says(key))
}

func (w *worker) modernProgress(ctx context.Context) {
	key := w.key()
	q := tool(toolWork, key, fmt.Sprintf(`,"n":%d,"ms":%d`, 1+rand.IntN(5), rand.IntN(120)))
	q.Progress = `"` + key + `"`
	w.modern(ctx, "progress, modern", key, q, says(key))
}

// silent calls take a while and say nothing: at 2025-11-25 they become streams after a second.
func (w *worker) silent(ctx context.Context) {
	key := w.key()
	w.call(ctx, "silent", key, tool(toolWork, key, fmt.Sprintf(`,"ms":%d`, 500+rand.IntN(2500))), says(key))
}

func (w *worker) question(ctx context.Context) {
	key := w.key()
	if rand.IntN(3) == 0 {
		w.call(ctx, "ask", "", client.Tool("ask", `{"message":"`+key+`"}`), asked(key))
		return
	}
	w.call(ctx, "question", key, tool(toolQuestion, key, ""), says(key))
}

func (w *worker) rounds(ctx context.Context) {
	key := w.key()
	if rand.IntN(3) == 0 {
		w.call(ctx, "ask_mrtr", "", client.Tool("ask_mrtr", `{"message":"`+key+`"}`), asked(key))
		return
	}
	w.call(ctx, "rounds", key, tool(toolRounds, key, ""), says(inRounds(key)))
}

func (w *worker) suspended(ctx context.Context) {
	key := w.key()
	w.call(ctx, "suspended", key, tool(toolSuspended, key, ""), says(inRounds(key)))
}

func (w *worker) modernRounds(ctx context.Context) {
	key := w.key()
	if rand.IntN(3) == 0 {
		w.modern(ctx, "ask_mrtr, modern", "", client.Tool("ask_mrtr", `{"message":"`+key+`"}`), asked(key))
		return
	}
	w.modern(ctx, "rounds, modern", key, tool(toolRounds, key, ""), says(inRounds(key)))
}

func inRounds(key string) string {
	text := ""
	for i := range rounds {
		text += fmt.Sprintf("%s.%d;", key, i)
	}
	return text
}

// asked checks what the tools ask and ask_mrtr of examples/everything return.
func asked(message string) func(*client.Outcome) string {
	return func(o *client.Outcome) string {
		var got struct {
			Action  string
			Content struct{ Answer string }
		}
		if json.Unmarshal([]byte(o.Text()), &got) == nil && got.Action == "accept" && got.Content.Answer == message {
			return ""
		}
		return fmt.Sprintf("wanted the answer %q", message)
	}
}

// cancel cancels a call. Whatever comes of it is right, but for somebody else's messages: it may have been over before.
func (w *worker) cancel(ctx context.Context) {
	key := w.key()
	q := client.Tool("sleep", `{"ms":4000,"key":"`+key+`"}`)
	q.ID = `"` + key + `"`
	bounded, stop := context.WithTimeout(ctx, 6*time.Second)
	defer stop()
	var wg sync.WaitGroup
	session := w.session
	wg.Go(func() {
		select {
		case <-time.After(time.Duration(200+rand.IntN(1500)) * time.Millisecond):
			session.Notify(bounded, "notifications/cancelled", `{"requestId":"`+key+`"}`, &client.Outcome{})
		case <-bounded.Done():
		}
	})
	o := session.Call(bounded, q)
	stop()
	wg.Wait()
	w.ledger.cancelled(w, call{what: "cancelled", key: key, session: session, outcome: o})
}

// change makes the session remember something, and sees that it does.
func (w *worker) change(ctx context.Context) {
	key := w.key()
	set := client.Request{Method: "logging/setLevel", Params: `{"level":"info"}`}
	o := w.call(ctx, "set the log level", "", set, anything)
	if o.Fate != client.Answered || o.Error != nil { // interrupted: nobody knows whether it is set
		return
	}
	w.call(ctx, "log", "", client.Tool("log", `{"n":2,"level":"error"}`), func(o *client.Outcome) string {
		if o.Text() != "done" {
			return key + ": wanted done"
		}
		// What broke off may be missing, and what the store has refused; a stream that did not break is complete.
		if o.Resumes == 0 && o.Notifications != 2 {
			return fmt.Sprintf("wanted two log messages, the level being set, and got %d", o.Notifications)
		}
		return ""
	})
}

func anything(*client.Outcome) string { return "" }

// end deletes the session, which is then gone.
func (w *worker) end(ctx context.Context) {
	session := w.session
	w.session = nil
	status, tries := session.Delete(ctx)
	w.ledger.deleted(w, status, tries)
	if status != http.StatusNoContent {
		return
	}
	o := session.Call(ctx, client.Request{Method: "tools/list", Params: "{}"})
	if o.Fate == client.Answered {
		w.ledger.fault(wrong, w, call{what: "use of a deleted session", session: session, outcome: o}, "it works")
	}
}

// announcementWait is how long an announcement may take on a stream that does not break: looks into the store, of which
// some fail.
const announcementWait = 15 * time.Second

// announcement subscribes to a resource, listens, and changes it.
func (w *worker) announcement(ctx context.Context) {
	uri := "test://soak/" + w.key()
	params := `{"uri":"` + uri + `"}`
	o := w.call(ctx, "subscribe", "", client.Request{Method: "resources/subscribe", Params: params}, anything)
	if o.Fate != client.Answered || o.Error != nil {
		return
	}
	w.listen(ctx, uri, func(ctx context.Context, opened func(), heard func(string, json.RawMessage)) error {
		_, err := w.session.Listen(ctx, opened, heard)
		return err
	})
	if w.session != nil {
		w.call(ctx, "unsubscribe", "", client.Request{Method: "resources/unsubscribe", Params: params}, anything)
	}
}

func (w *worker) modernAnnouncement(ctx context.Context) {
	uri := "test://soak/" + w.key()
	w.listen(ctx, uri, func(ctx context.Context, opened func(), heard func(string, json.RawMessage)) error {
		return w.client.Subscribe(ctx, []string{uri}, opened, heard)
	})
}

func (w *worker) listen(ctx context.Context, uri string,
	stream func(ctx context.Context, opened func(), heard func(string, json.RawMessage)) error,
) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	opened, heard, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	var once, onceHeard sync.Once
	go func() {
		ended <- stream(ctx, func() { once.Do(func() { close(opened) }) }, func(method string, params json.RawMessage) {
			if method == "notifications/resources/updated" && strings.Contains(string(params), uri+`"`) {
				onceHeard.Do(func() { close(heard) })
			}
		})
	}()
	defer func() {
		stop()
		select {
		case <-ended:
		default:
			<-ended
		}
	}()
	select {
	case <-opened:
	case err := <-ended:
		ended <- err
		w.ledger.announced("not listened to")
		return
	}
	o := w.modern(ctx, "touch", "", client.Tool("touch", `{"uri":"`+uri+`"}`), anything)
	if o.Fate != client.Answered || o.IsError() || o.Error != nil {
		return // it may not have been announced
	}
	late := time.NewTimer(announcementWait)
	defer late.Stop()
	select {
	case <-heard:
		w.ledger.announced("heard")
	case err := <-ended:
		ended <- err
		w.ledger.announced("stream broke")
	case <-late.C:
		w.ledger.fault(lost, w, call{what: "announcement", session: w.session, outcome: o},
			"nothing came in %v on a stream that did not break", announcementWait)
	}
}
