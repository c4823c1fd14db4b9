package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hydrant-mcp/hydrant/examples/everything/server"
	"github.com/hydrant-mcp/hydrant/internal/cmd/soak/client"
)

// A call is what was done, and what became of it.
type call struct {
	what    string
	key     string // of the tally; "" where the tool does not count
	session *client.Session
	outcome *client.Outcome
	check   func(*client.Outcome) string // says what is wrong with an answer
}

// The faults. Each must be none.
const (
	lost     = "lost"
	doubled  = "doubled"
	wrong    = "wrong"
	false404 = "false 404"
)

var faults = []string{lost, doubled, wrong, false404}

// announcement is what a call is that listens, and hears.
const announcement = "announcement"

// A ledger counts what becomes of all calls.
type ledger struct {
	mu          sync.Mutex
	out         io.Writer // for evidence
	calls       int
	answered    int
	couldNot    int // answered: the store had refused what it takes to ask
	cancelled   int // answered: that its client wished so
	heard       int // answered: announcements
	unavailable int
	retries     int
	resumes     int
	byKind      map[string]int
	repeated    map[string]call
	kills       map[string][]kill // by process
	faults      map[string]int

	// To be judged when everything is known, and what the judgement is.
	cutInline, interrupted            []call
	cutHere, cutByKill, died, refused int
}

// A kill is the time from when a process was killed until nobody uses its connections any more.
type kill struct{ began, ended time.Time }

func newLedger(out io.Writer) *ledger {
	return &ledger{
		out: out, byKind: map[string]int{}, repeated: map[string]call{}, kills: map[string][]kill{}, faults: map[string]int{},
	}
}

func (l *ledger) killed(instance string, k kill) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kills[instance] = append(l.kills[instance], k)
}

func (l *ledger) count(c call) {
	l.calls++
	l.byKind[c.what]++
	l.retries += c.outcome.Retries
	l.resumes += c.outcome.Resumes
	if c.outcome.Retries > 0 {
		l.repeated[c.key] = c
	}
}

// honest are the answers of a call whose tool could not ask its client because of the store.
var honest = []string{
	"the store refused the question", "the store cannot be reached", "the session store cannot be reached", "store unavailable",
	"store throttled",
}

func saysHonestly(o *client.Outcome) bool {
	text := string(o.Error)
	if o.IsError() {
		text += o.Text()
	}
	return slices.ContainsFunc(honest, func(h string) bool { return strings.Contains(text, h) })
}

// judge counts a call.
func (l *ledger) judge(w *worker, c call) {
	o := c.outcome
	l.mu.Lock()
	l.count(c)
	fault, why := "", ""
	switch {
	case len(o.Wrong) > 0:
		fault, why = wrong, strings.Join(o.Wrong, "; ")
	case o.Fate == client.Missing || o.SessionMissing:
		fault, why = false404, "the session lives"
		w.session = nil
	case o.Fate == client.Answered && o.Interrupted():
		l.interrupted = append(l.interrupted, c)
	case o.Fate == client.Answered && saysHonestly(o):
		l.answered++
		l.couldNot++
	case o.Fate == client.Answered:
		if l.answered++; o.Cancelled() {
			l.cancelled++
		} else if c.what == announcement {
			l.heard++
		}
		if why = c.check(o); why != "" {
			fault = wrong
		}
	case o.Fate == client.CutInline:
		l.cutInline = append(l.cutInline, c)
	case o.Fate == client.Unavailable:
		l.unavailable++
	case o.Fate == client.Silent:
		fault, why = lost, "nothing came for as long as the client waited"
	case o.HeldID:
		fault, why = lost, "the client holds an event id, and gets no answer: "+string(o.Fate)
	default:
		fault, why = wrong, string(o.Fate)
	}
	l.mu.Unlock()
	if fault != "" {
		l.fault(fault, c, "%s", why)
	}
}

// maxEvidence bounds what is written of each fault.
const maxEvidence = 20

// fault notes a fault with its evidence.
func (l *ledger) fault(kind string, c call, format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.faults[kind]++; l.faults[kind] > maxEvidence {
		return
	}
	session := ""
	if c.session != nil {
		session = logID(c.session.ID) + " at " + c.session.Version
	}
	o := c.outcome
	_, _ = fmt.Fprintf(l.out, "\n%s: %s %s of session %s: %s\nresult %.600s error %.600s\n%s\n", strings.ToUpper(kind),
		c.what, c.key, session, fmt.Sprintf(format, args...), o.Result, o.Error, strings.Join(o.Trace, "\n"))
}

// logID is how the server's log names a session.
func logID(id string) string {
	sum := sha256.Sum256([]byte(server.Name + "\x00" + id))
	return hex.EncodeToString(sum[:])[:12]
}

// settle judges what could only be judged at the end: doubles, by the tally; broken connections, by who broke them; and
// interruptions, by who was killed when and what the store had refused.
func (l *ledger) settle(tally []string, logs []string) {
	ran, finished, served := map[string]int{}, map[string]time.Time{}, map[string]string{}
	for _, line := range tally {
		what, rest, _ := strings.Cut(line, ":")
		switch key, more, _ := strings.Cut(rest, ":"); what {
		case "ran":
			ran[rest]++
		case "finished":
			ms, _ := strconv.ParseInt(more, 10, 64)
			finished[key] = time.UnixMilli(ms)
		case "served":
			served[key] = more
		}
	}
	for _, key := range slices.Sorted(maps.Keys(ran)) {
		if ran[key] > 1 {
			c, ok := l.repeated[key]
			if name, _, inRounds := strings.Cut(key, "."); inRounds && !ok {
				c, ok = l.repeated[name]
			}
			if !ok {
				c = call{what: "a call that its client did not repeat", outcome: &client.Outcome{}}
			}
			l.fault(doubled, c, "%s ran %d times", key, ran[key])
		}
	}
	for _, c := range l.cutInline {
		switch b := c.outcome.Break; {
		case b == nil:
			l.fault(lost, c, "the stream ended as it should, without an answer")
		case b.Here:
			l.cutHere++
		case l.killedUnder(b, served[b.Request]):
			l.cutByKill++
		default:
			l.fault(lost, c, "request %s broke after %v, though nobody cut it and the process lived that served it (%s): %v",
				b.Request, b.Ended.Sub(b.Began).Round(time.Millisecond), served[b.Request], b.Err)
		}
	}
	refusals := refusedEvents(logs)
	for _, c := range l.interrupted {
		switch {
		case l.diedUnder(c, finished):
			l.died++
		case refusedUnder(c, refusals):
			l.refused++
		default:
			l.fault(lost, c, "interrupted, though its process lived and the store took its events")
		}
	}
}

// killedUnder says whether a process was killed while a request was under way: the one that served it or, where none has
// come to that, any.
func (l *ledger) killedUnder(b *client.Break, process string) bool {
	for killed, kills := range l.kills {
		if process != "" && killed != process {
			continue
		}
		for _, k := range kills {
			if k.began.Before(b.Ended) && k.ended.Add(lag).After(b.Began) {
				return true
			}
		}
	}
	return false
}

const (
	// slack is how long after a tool's end its process may still be storing the response, and lag how far the times that
	// two processes note of one thing may be apart.
	slack = 1500 * time.Millisecond
	lag   = 300 * time.Millisecond
	// unseen is how long a call may go on whose client's connection is gone, from then on or from its last answer on.
	unseen = 5 * time.Second
	// lease is how long after its request was made a stream's call is declared interrupted, at least: the server's lease.
	lease = 21*time.Second - lag
)

// diedUnder says whether a process was killed while it ran the call. A tool that has finished was not interrupted, but for
// what it said on the way into the store: that is as long as its stream is open, or a moment for a client that has left. A
// stream that has ended properly is of a process that ran nothing any more.
func (l *ledger) diedUnder(c call, finished map[string]time.Time) bool {
	at, done := finished[c.key]
	for _, s := range c.outcome.Streams {
		if !s.Broke || s.Began.After(c.outcome.Ended.Add(-lease)) {
			continue
		}
		from, until := s.Began.Add(-lag), s.Ended.Add(unseen)
		if answered := c.outcome.LastAnswer.Add(unseen); answered.After(until) {
			until = answered
		}
		if done {
			from, until = at.Add(-lag), at.Add(slack)
			if open := s.Ended.Add(lag); open.After(until) {
				until = open
			}
		}
		for _, k := range l.kills[s.Instance] {
			if k.began.After(from) && k.began.Before(until) {
				return true
			}
		}
	}
	return false
}

func refusedUnder(c call, refusals map[string][]time.Time) bool {
	if c.session == nil {
		return false
	}
	for _, at := range refusals[logID(c.session.ID)] {
		if !at.Before(c.outcome.Began.Add(-time.Second)) && !at.After(c.outcome.Ended) {
			return true
		}
	}
	return false
}

var (
	logTime    = regexp.MustCompile(`time=(\S+)`)
	logSession = regexp.MustCompile(`session=([0-9a-f]{12})`)
)

// refusedEvents reads from the servers' logs when the store has refused events, by session.
func refusedEvents(logs []string) map[string][]time.Time {
	refusals := map[string][]time.Time{}
	for _, log := range logs {
		for line := range strings.Lines(log) {
			if !strings.Contains(line, "the store refused an event") {
				continue
			}
			at, session := logTime.FindStringSubmatch(line), logSession.FindStringSubmatch(line)
			if at == nil || session == nil {
				continue
			}
			if t, err := time.Parse(time.RFC3339Nano, at[1]); err == nil {
				refusals[session[1]] = append(refusals[session[1]], t)
			}
		}
	}
	return refusals
}

// print prints the closing figures, and says whether all is well.
func (l *ledger) print(w io.Writer, took time.Duration) bool {
	kinds := make([]string, 0, len(l.byKind))
	for _, kind := range slices.Sorted(maps.Keys(l.byKind)) {
		kinds = append(kinds, fmt.Sprintf("%s %d", kind, l.byKind[kind]))
	}
	kills := 0
	for _, of := range l.kills {
		kills += len(of)
	}
	_, _ = fmt.Fprintf(w, "%s\n\n", strings.Join(kinds, ", "))
	for _, line := range []struct {
		name   string
		number int
		note   string
	}{
		{"calls", l.calls, fmt.Sprintf("in %v; %d processes killed", took.Round(time.Second), kills)},
		{"answered", l.answered, fmt.Sprintf("%d of them say that the store refused what it takes to ask", l.couldNot)},
		{"cut inline", l.cutHere + l.cutByKill, fmt.Sprintf(
			"no event id to come back with: %d connections cut here, %d processes killed that served", l.cutHere, l.cutByKill)},
		{"interrupted", l.died, "the process died that ran the call, and its client was told so"},
		{"refused by the store", l.refused, "the connection broke, and the store had refused the stream's events"},
		{"unavailable", l.unavailable, "503 for as long as the client was patient; announcements are asked for once"},
		{"cancelled", l.cancelled, "answered so, as their clients wished"},
		{"announcements", l.heard, "heard"},
		{"retried", l.retries + l.resumes,
			fmt.Sprintf("as the protocol says: %d after a 503, %d with Last-Event-ID", l.retries, l.resumes)},
	} {
		_, _ = fmt.Fprintf(w, "%-21s %8d   %s\n", line.name, line.number, line.note)
	}
	ok := true
	for _, kind := range faults {
		_, _ = fmt.Fprintf(w, "%-21s %8d\n", kind, l.faults[kind])
		ok = ok && l.faults[kind] == 0
	}
	return ok
}
