package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"os"
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

// A ledger counts what becomes of all calls.
type ledger struct {
	mu            sync.Mutex
	out           io.Writer // for evidence
	calls         int
	answered      int
	couldNot      int // answered: the store had refused what it takes to ask
	cutInline     int
	unavailable   int
	cancels       int
	retries       int
	resumes       int
	deletes       int
	announcements map[string]int
	byKind        map[string]int
	interrupted   []call // to be judged when everything is known
	repeated      map[string]call
	kills         map[string][]time.Time
	faults        map[string]int
}

func newLedger(out io.Writer) *ledger {
	return &ledger{
		out: out, announcements: map[string]int{}, byKind: map[string]int{}, kills: map[string][]time.Time{},
		faults: map[string]int{}, repeated: map[string]call{},
	}
}

func (l *ledger) killed(instance string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kills[instance] = append(l.kills[instance], time.Now())
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
	case o.Fate == client.Answered && o.Interrupted():
		l.interrupted = append(l.interrupted, c)
	case o.Fate == client.Answered && saysHonestly(o):
		l.answered++
		l.couldNot++
	case o.Fate == client.Answered:
		if l.answered++; o.Error != nil {
			fault, why = wrong, "an error"
		} else if why = c.check(o); why != "" {
			fault = wrong
		}
	case o.Fate == client.CutInline && !o.HeldID:
		l.cutInline++
	case o.Fate == client.Unavailable:
		l.unavailable++
	case o.Fate == client.Missing:
		fault, why = false404, "the session lives"
		w.session = nil
	case o.HeldID:
		fault, why = lost, "the client holds an event id, and gets no answer: "+string(o.Fate)
	default:
		fault, why = wrong, string(o.Fate)
	}
	l.mu.Unlock()
	if fault != "" {
		l.fault(fault, w, c, "%s", why)
	}
}

// cancelled counts a call that was cancelled: whether it was over before is nobody's business.
func (l *ledger) cancelled(w *worker, c call) {
	l.mu.Lock()
	l.count(c)
	l.cancels++
	l.mu.Unlock()
	if len(c.outcome.Wrong) > 0 {
		l.fault(wrong, w, c, "%s", strings.Join(c.outcome.Wrong, "; "))
	}
	if c.outcome.Fate == client.Missing {
		l.fault(false404, w, c, "the session lives")
	}
}

// deleted counts the end of a session. That it is gone already is right when a first try had no answer.
func (l *ledger) deleted(w *worker, status, tries int) {
	l.mu.Lock()
	l.calls++
	l.byKind["DELETE"]++
	l.deletes++
	l.mu.Unlock()
	if status == 404 && tries == 1 {
		l.fault(false404, w, call{what: "DELETE", outcome: &client.Outcome{}}, "the session lives")
	}
}

func (l *ledger) announced(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.announcements[what]++
}

// maxEvidence bounds what is written of each fault.
const maxEvidence = 20

// fault notes a fault with its evidence.
func (l *ledger) fault(kind string, w *worker, c call, format string, args ...any) {
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

// settle judges what could only be judged at the end: doubles, by the tally, and interruptions, by who was killed when and
// what the store had refused.
func (l *ledger) settle(tally []string, logs []string) (honestly, refused int) {
	ran, finished := map[string]int{}, map[string]time.Time{}
	for _, line := range tally {
		if key, ok := strings.CutPrefix(line, "ran:"); ok {
			ran[key]++
		} else if rest, ok := strings.CutPrefix(line, "finished:"); ok {
			key, at, _ := strings.Cut(rest, ":")
			ms, _ := strconv.ParseInt(at, 10, 64)
			finished[key] = time.UnixMilli(ms)
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
			l.fault(doubled, nil, c, "%s ran %d times", key, ran[key])
		}
	}
	refusals := refusedEvents(logs)
	for _, c := range l.interrupted {
		switch {
		case l.diedUnder(c, finished):
			honestly++
		case refusedUnder(c, refusals):
			refused++
		default:
			l.fault(lost, nil, c, "interrupted, though its process lived and the store took its events")
		}
	}
	return honestly, refused
}

const (
	// slack is how long after a tool's end its process may still be storing the response, and lag how far the times that
	// two processes note of one thing may be apart.
	slack = 1500 * time.Millisecond
	lag   = 300 * time.Millisecond
	// unseen is how long a call may go on whose client's connection is gone, from then on or from its last answer on.
	unseen = 5 * time.Second
	// lease is how long after its stream began a call is declared interrupted, at least: a lease, less what a slow store took
	// to note its beginning.
	lease = 14 * time.Second
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
			if k.After(from) && k.Before(until) {
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
func (l *ledger) print(w *os.File, took time.Duration, honestly, refused int) bool {
	kinds := make([]string, 0, len(l.byKind))
	for _, kind := range slices.Sorted(maps.Keys(l.byKind)) {
		kinds = append(kinds, fmt.Sprintf("%s %d", kind, l.byKind[kind]))
	}
	kills := 0
	for _, times := range l.kills {
		kills += len(times)
	}
	_, _ = fmt.Fprintf(w, "%s\n\n", strings.Join(kinds, ", "))
	for _, line := range []struct {
		name   string
		number int
		note   string
	}{
		{"calls", l.calls, fmt.Sprintf("in %v; %d processes killed", took.Round(time.Second), kills)},
		{"answered", l.answered, fmt.Sprintf("%d of them say that the store refused what it takes to ask", l.couldNot)},
		{"cut inline", l.cutInline, "the connection broke, and there was no event id to come back with"},
		{"interrupted", honestly, "the process died that ran the call, and its client was told so"},
		{"refused by the store", refused, "the connection broke, and the store had refused the stream's events"},
		{"unavailable", l.unavailable, "503 for as long as the client was patient"},
		{"cancelled", l.cancels, ""},
		{"announcements", l.announcements["heard"], fmt.Sprintf("heard; %d streams broke before",
			l.announcements["stream broke"]+l.announcements["not listened to"])},
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
