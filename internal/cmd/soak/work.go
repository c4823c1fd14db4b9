package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
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
	w.ledger.judge(w, call{what: "initialize", outcome: o, check: anything})
	if s != nil && w.notify(ctx, s, "notifications/initialized", "{}") {
		w.session = s
	}
}

// notify sends a notification, judges what became of it, and says whether it was accepted.
func (w *worker) notify(ctx context.Context, s *client.Session, method, params string) bool {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	o := &client.Outcome{Fate: client.Silent}
	if s.Notify(ctx, method, params, o) {
		o.Fate = client.Answered
	}
	w.ledger.judge(w, call{what: method, session: s, outcome: o, check: anything})
	return o.Fate == client.Answered
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
		w.call(ctx, "ask", key, client.Tool(toolAsk, `{"message":"`+key+`"}`), asked(key))
		return
	}
	w.call(ctx, "question", key, tool(toolQuestion, key, ""), says(key))
}

func (w *worker) rounds(ctx context.Context) {
	key := w.key()
	if rand.IntN(3) == 0 {
		w.call(ctx, "ask_mrtr", key, client.Tool(toolAskMRTR, `{"message":"`+key+`"}`), asked(key))
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
		w.modern(ctx, "ask_mrtr, modern", key, client.Tool(toolAskMRTR, `{"message":"`+key+`"}`), asked(key))
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

// cancel cancels a call, which ends as others do, or by that: it may have been over before.
func (w *worker) cancel(ctx context.Context) {
	key := w.key()
	q := tool(toolWork, key, `,"ms":4000`)
	q.ID = `"` + key + `"`
	var wg sync.WaitGroup
	session, over := w.session, make(chan struct{})
	wg.Go(func() {
		select {
		case <-time.After(time.Duration(200+rand.IntN(1500)) * time.Millisecond):
			w.notify(ctx, session, "notifications/cancelled", `{"requestId":"`+key+`"}`)
		case <-over:
		}
	})
	o := session.Call(ctx, q)
	close(over)
	wg.Wait()
	w.ledger.judge(w, call{what: "cancelled", key: key, session: session, outcome: o, check: cancelledOr(key)})
}

// cancelledOr checks that a call was cancelled or, being over before, gave its text.
func cancelledOr(want string) func(*client.Outcome) string {
	return func(o *client.Outcome) string {
		if o.Cancelled() {
			return ""
		}
		return says(want)(o)
	}
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

// anything checks only that an answer is no error.
func anything(o *client.Outcome) string {
	if o.Error != nil {
		return "an error"
	}
	return ""
}

// end deletes the session, which is then gone.
func (w *worker) end(ctx context.Context) {
	session := w.session
	w.session = nil
	status, tries := session.Delete(ctx)
	o := &client.Outcome{Fate: fate(status)}
	if o.Fate == client.Missing && tries > 1 {
		o.Fate = client.Answered // a try before had no answer, and may have ended it
	}
	w.ledger.judge(w, call{what: "DELETE", session: session, outcome: o, check: anything})
	if status != http.StatusNoContent {
		return
	}
	o = session.Call(ctx, client.Request{Method: "tools/list", Params: "{}"})
	if o.Fate == client.Missing {
		return
	}
	w.ledger.judge(w, call{what: "use of a deleted session", session: session, outcome: o,
		check: func(*client.Outcome) string { return "it works" }})
}

// fate is what a status says where there is no message that says more.
func fate(status int) client.Fate {
	switch status {
	case http.StatusNoContent:
		return client.Answered
	case http.StatusNotFound:
		return client.Missing
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		return client.Unavailable
	case 0, http.StatusBadGateway:
		return client.Silent
	}
	return client.Refused
}

// announcementWait is how long an announcement may take on a stream that does not break: looks into the store, of which
// some fail.
const announcementWait = 15 * time.Second

// announcement subscribes to a resource, listens, and changes it.
func (w *worker) announcement(ctx context.Context) {
	uri := w.resource()
	params := `{"uri":"` + uri + `"}`
	o := w.call(ctx, "subscribe", "", client.Request{Method: "resources/subscribe", Params: params}, anything)
	if o.Fate != client.Answered || o.Error != nil {
		return
	}
	session := w.session
	w.listen(ctx, session, uri, func(ctx context.Context, opened func(), heard hearing) (int, error) {
		return session.Listen(ctx, opened, heard)
	})
	if w.session != nil {
		w.call(ctx, "unsubscribe", "", client.Request{Method: "resources/unsubscribe", Params: params}, anything)
	}
}

func (w *worker) modernAnnouncement(ctx context.Context) {
	uri := w.resource()
	w.listen(ctx, nil, uri, func(ctx context.Context, opened func(), heard hearing) (int, error) {
		return w.client.Subscribe(ctx, []string{uri}, opened, heard)
	})
}

// resources is what the URIs of a worker's resources begin with. It subscribes to no others.
func (w *worker) resources() string { return "test://soak/" + w.name + "-" }

func (w *worker) resource() string { return "test://soak/" + w.key() }

type hearing = func(method string, params json.RawMessage)

// listen opens a stream of announcements, changes a resource, and judges whether it hears of that, and of nothing else.
func (w *worker) listen(ctx context.Context, session *client.Session, uri string,
	stream func(ctx context.Context, opened func(), heard hearing) (status int, err error),
) {
	listening, stop := context.WithTimeout(ctx, 2*patience) // the change has patience of its own
	defer stop()
	opened, heard, over := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var o *client.Outcome // when it is over
	go func() {
		defer close(over)
		var once, onceHeard sync.Once
		var foreign []string
		status, err := stream(listening, func() { once.Do(func() { close(opened) }) }, func(method string, params json.RawMessage) {
			text := string(params)
			if method != "notifications/resources/updated" || !strings.Contains(text, `"`+w.resources()) {
				foreign = append(foreign, "an announcement that belongs to somebody else: "+method+" "+text)
			} else if strings.Contains(text, `"`+uri+`"`) {
				onceHeard.Do(func() { close(heard) })
			}
		})
		o = ending(status, err)
		o.Wrong = append(o.Wrong, foreign...)
	}()
	judge := func() {
		w.ledger.judge(w, call{what: announcement, session: session, outcome: o, check: anything})
	}
	select {
	case <-opened:
	case <-over:
		judge()
		return
	}
	touched := w.modern(ctx, "touch", "", client.Tool("touch", `{"uri":"`+uri+`"}`), anything)
	announced := touched.Fate == client.Answered && !touched.IsError() && touched.Error == nil
	var known client.Fate // else the stream's end says what it is
	if announced {
		late := time.NewTimer(announcementWait)
		defer late.Stop()
		select {
		case <-heard:
			known = client.Answered
		case <-late.C:
			known = client.Silent
		case <-over:
		}
	}
	stop()
	<-over
	if o.Fate = cmp.Or(known, o.Fate); announced || len(o.Wrong) > 0 {
		judge()
	}
}

// ending is how a stream of announcements has ended, as the outcome of a call.
func ending(status int, err error) *client.Outcome {
	o := &client.Outcome{Fate: fate(status), Trace: []string{fmt.Sprintf("stream -> %d, ends: %v", status, err)}}
	switch {
	case errors.Is(err, client.ErrWrong):
		o.Wrong = []string{err.Error()}
	case errors.Is(err, context.DeadlineExceeded), status == http.StatusOK && err == nil: // by itself: nothing asks it to
		o.Fate = client.Silent
	case errors.As(err, &o.Break):
		o.Fate = client.CutInline
	}
	return o
}
