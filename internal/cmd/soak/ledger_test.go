package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/internal/cmd/soak/client"
)

var figure = regexp.MustCompile(`(?m)^(.{21}) +(\d+)`)

// figures are the closing figures that a ledger prints.
func figures(t *testing.T, l *ledger) (map[string]int, bool) {
	t.Helper()
	var out bytes.Buffer
	ok := l.print(&out, time.Minute)
	got := map[string]int{}
	for _, line := range figure.FindAllStringSubmatch(out.String(), -1) {
		n, err := strconv.Atoi(line[2])
		require.NoError(t, err)
		got[strings.TrimSpace(line[1])] = n
	}
	return got, ok
}

// assertCounted checks that one thing is counted as what it is, and as no other fault.
func assertCounted(t *testing.T, l *ledger, want string) {
	t.Helper()
	got, ok := figures(t, l)
	assert.Equal(t, 1, got[want], "%s: %v\n%s", want, got, l.out)
	for _, kind := range faults {
		if kind == want {
			assert.False(t, ok)
			continue
		}
		assert.Zero(t, got[kind], "%s\n%s", kind, l.out)
	}
}

func answered(result string) *client.Outcome {
	return &client.Outcome{Fate: client.Answered, Result: json.RawMessage(result)}
}

func failed(code int, message string) *client.Outcome {
	return &client.Outcome{Fate: client.Answered, Error: json.RawMessage(fmt.Sprintf(`{"code":%d,"message":%q}`, code, message))}
}

func TestOutcomesAreCountedAsWhatTheyAre(t *testing.T) {
	const (
		a     = "127.0.0.1:1"
		b     = "127.0.0.1:2"
		right = `{"content":[{"type":"text","text":"k"}]}`
	)
	begin := time.Now()
	at := func(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }
	killed := func(instance string, ms int) func(*ledger) {
		return func(l *ledger) { l.killed(instance, kill{at(ms), at(ms + 50)}) }
	}
	cut := func(how client.Break) *client.Outcome {
		how.Request, how.Began, how.Ended, how.Err = "7", at(1000), at(1500), io.ErrUnexpectedEOF
		return &client.Outcome{Fate: client.CutInline, Break: &how}
	}
	interrupted := func(began, broke, ended int) *client.Outcome {
		o := answered(`{"content":[{"type":"text","text":"The call was interrupted: …"}],"isError":true}`)
		o.Began, o.Ended, o.HeldID = at(began), at(ended), true
		o.Streams = []client.Stream{{Instance: a, Began: at(began), Ended: at(broke), Broke: true}}
		return o
	}
	session := &client.Session{ID: "s"}
	refusal := "time=" + at(1500).Format(time.RFC3339Nano) + ` level=ERROR msg="the store refused an event" session=` + logID("s")
	for _, tc := range []struct {
		name    string
		outcome *client.Outcome
		killed  func(*ledger)
		tally   []string
		log     string
		want    string
	}{
		{name: "the right answer", outcome: answered(right), want: "answered"},
		{name: "a tool that ran once in each round", outcome: answered(right), want: "answered",
			tally: []string{"ran:k.0", "ran:k.1", "finished:k:1", "served:1:" + a, "served:2:" + a}},
		{name: "a store that refused the question", outcome: failed(-32603, "the store refused the question"), want: "answered"},
		{name: "a cancelled call", outcome: failed(-32800, "the request was cancelled"), want: "cancelled"},
		{name: "no patience left for 503s", outcome: &client.Outcome{Fate: client.Unavailable}, want: "unavailable"},

		{name: "a cut of this side", outcome: cut(client.Break{Here: true}), want: "cut inline"},
		{name: "a kill of the process that served it", outcome: cut(client.Break{}), want: "cut inline",
			killed: killed(a, 1450), tally: []string{"served:7:" + a}},
		{name: "a kill before any process served it", outcome: cut(client.Break{}), want: "cut inline", killed: killed(b, 1450)},
		{name: "a kill of another process", outcome: cut(client.Break{}), want: lost,
			killed: killed(b, 1450), tally: []string{"served:7:" + a}},
		{name: "a kill long before", outcome: cut(client.Break{}), want: lost,
			killed: killed(a, 500), tally: []string{"served:7:" + a}},
		{name: "a kill afterwards", outcome: cut(client.Break{}), want: lost,
			killed: killed(a, 1600), tally: []string{"served:7:" + a}},
		{name: "an answer that is dropped", outcome: cut(client.Break{}), want: lost, tally: []string{"served:7:" + a}},
		{name: "a stream that ends without its answer", outcome: &client.Outcome{Fate: client.CutInline}, want: lost},
		{name: "no answer at all", outcome: &client.Outcome{Fate: client.Silent}, want: lost},
		{name: "no answer for an event id", outcome: &client.Outcome{Fate: client.Refused, HeldID: true}, want: lost},

		{name: "a process that died in the call", outcome: interrupted(1000, 1600, 24000), want: "interrupted",
			killed: killed(a, 1500)},
		{name: "a stream that the store refused", outcome: interrupted(1000, 1600, 24000), want: "refused by the store",
			log: refusal},
		{name: "interrupted, and its process lived", outcome: interrupted(1000, 1600, 24000), want: lost,
			killed: killed(b, 1500)},
		{name: "interrupted before the lease had lapsed", outcome: interrupted(1000, 1600, 9000), want: lost,
			killed: killed(a, 1500)},
		{name: "interrupted, long after the tool was done", outcome: interrupted(1000, 4000, 26000), want: lost,
			killed: killed(a, 9000), tally: []string{fmt.Sprintf("finished:k:%d", at(2000).UnixMilli())}},

		{name: "a tool that ran twice", outcome: answered(right), want: doubled, tally: []string{"ran:k", "ran:k"}},
		{name: "a round that ran twice", outcome: answered(right), want: doubled, tally: []string{"ran:k.0", "ran:k.1", "ran:k.1"}},
		{name: "a repeated call that ran twice", want: doubled, tally: []string{"ran:k", "ran:k"},
			outcome: &client.Outcome{Fate: client.Answered, Result: json.RawMessage(right), Retries: 1}},

		{name: "another answer", outcome: answered(`{"content":[{"type":"text","text":"j"}]}`), want: wrong},
		{name: "a tool's error", outcome: answered(`{"content":[{"type":"text","text":"k"}],"isError":true}`), want: wrong},
		{name: "an error", outcome: failed(-32603, "internal error"), want: wrong},
		{name: "a status that nothing explains", outcome: &client.Outcome{Fate: client.Refused}, want: wrong},
		{name: "a message of somebody else's", want: wrong,
			outcome: &client.Outcome{Fate: client.Answered, Result: json.RawMessage(right), Wrong: []string{"a response"}}},

		{name: "404 to a call", outcome: &client.Outcome{Fate: client.Missing}, want: false404},
		{name: "404 to an answer in a call", want: false404,
			outcome: &client.Outcome{Fate: client.Answered, Result: json.RawMessage(right), SessionMissing: true}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLedger(&bytes.Buffer{})
			if tc.killed != nil {
				tc.killed(l)
			}
			l.judge(&worker{}, call{what: "cancelled", key: "k", session: session, outcome: tc.outcome, check: cancelledOr("k")})
			l.settle(tc.tally, []string{tc.log})
			assertCounted(t, l, tc.want)
		})
	}
}

func TestACallThatNobodyCancelledIsNotCancelled(t *testing.T) {
	l := newLedger(&bytes.Buffer{})
	l.judge(&worker{}, call{what: "plain", outcome: failed(-32800, "the request was cancelled"), check: says("k")})
	l.settle(nil, nil)
	assertCounted(t, l, wrong)
}

func TestASessionThatIsSaidToBeGoneIsLeft(t *testing.T) {
	l, w := newLedger(&bytes.Buffer{}), &worker{session: &client.Session{}}
	l.judge(w, call{what: "plain", outcome: &client.Outcome{Fate: client.Missing}, check: anything})
	assert.Nil(t, w.session)
}
