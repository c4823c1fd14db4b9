package streams

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	raw "github.com/hydrant-mcp/hydrant/internal/cmd/soak/client"
	"github.com/hydrant-mcp/hydrant/internal/harness"
)

// rawClient is a client that does what the protocol has for a bad day and nothing else.
func rawClient(t testing.TB, url string) *raw.Client {
	transport := &http.Transport{DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &raw.Client{URL: url, HTTP: &http.Client{Transport: transport}, Patience: clientLimit}
}

// steps is how many notifications the call sends that is cut.
const steps = 3

// The race that lost responses: the server sends the response to a stream that has just died. The connection breaks at one
// byte after the other behind the first event id, and once more in the GET that fetches the rest, and each time the client
// ends with one response and has every notification and every question once.
func TestNoCutLosesAResponse(t *testing.T) {
	for _, c := range []struct {
		name          string
		env           map[string]string
		tool          string
		arguments     string
		want          string
		notifications int // negative: as many as it takes to wait
	}{
		{"of a tool that reports progress", nil, "progress", fmt.Sprintf(`{"n":%d,"ms":5}`, steps), "done", steps},
		{"of a tool that asks and waits", nil, "ask", `{"message":"?"}`, answered, 0},
		{"of a tool that returns its question", nil, "ask_mrtr", `{"message":"?"}`, answered, 0},
		{
			"of a suspended call", map[string]string{"HYDRANT_ASK": "suspend"}, "ask_mrtr", `{"message":"?"}`, answered, -1,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			cluster := harness.StartForTest(t, harness.Config{Env: c.env})
			call := func(s *raw.Session, token string) *raw.Outcome {
				q := raw.Tool(c.tool, c.arguments)
				if c.notifications >= 0 {
					q.Progress = fmt.Sprintf("%q", token)
				}
				q.Answer = func(json.RawMessage) string { return `{"action":"accept","content":{"answer":"yes"}}` }
				return s.Call(t.Context(), q)
			}
			length, boundaries := streamed(t, cluster.URL(), func(s *raw.Session) *raw.Outcome { return call(s, "reference") })
			offsets := everyOffset(length, boundaries)
			resumes := eachCut(t, cluster.URL(), offsets, length, func(s *raw.Session, at int, where func(*raw.Outcome) string) int {
				o := call(s, strconv.Itoa(at))
				assert.Equal(t, raw.Answered, o.Fate, where(o))
				assert.Equal(t, c.want, o.Text(), where(o))
				assert.Empty(t, o.Wrong, where(o))
				if c.notifications >= 0 {
					assert.Equal(t, c.notifications, o.Notifications, where(o))
				}
				return o.Resumes
			})
			t.Logf("%d bytes, %d cuts; calls by the number of connections that fetched the rest: %v",
				length, len(offsets), resumes)
			delete(resumes, 0)
			assert.NotEmpty(t, resumes, "the cuts must have cut something")
		})
	}
}

const answered = `{"action":"accept","content":{"answer":"yes"}}`

// eachCut makes a call for each offset, cut there, and counts what the calls give.
func eachCut(
	t *testing.T, url string, offsets []int, length int,
	call func(s *raw.Session, at int, where func(*raw.Outcome) string) int,
) map[int]int {
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex
		counts = map[int]int{}
		next   = make(chan int)
	)
	for range workers {
		wg.Go(func() {
			cut := startCutter(t, url)
			s, o := rawClient(t, cut.url()).Initialize(t.Context(), legacy)
			assert.NotNil(t, s, "%v", o.Trace)
			for at := range next {
				if s == nil {
					continue
				}
				// Where the second connection breaks has nothing to do with the first.
				cut.cutNext(at, at*7%max(length, 1))
				n := call(s, at, func(o *raw.Outcome) string {
					return fmt.Sprintf("cut %d bytes after the first event id, %d times\n%s", at, cut.count(),
						strings.Join(o.Trace, "\n"))
				})
				mu.Lock()
				counts[n]++
				mu.Unlock()
			}
		})
	}
	for _, at := range offsets {
		next <- at
	}
	close(next)
	wg.Wait()
	return counts
}

// streamed makes a call without a cut, and gives the length of its last answer behind the first event, and where the events
// in it end.
func streamed(t *testing.T, url string, call func(s *raw.Session) *raw.Outcome) (length int, boundaries []int) {
	t.Helper()
	cut := startCutter(t, url)
	s, o := rawClient(t, cut.url()).Initialize(t.Context(), legacy)
	require.NotNil(t, s, "%v", o.Trace)
	o = call(s)
	require.Equal(t, raw.Answered, o.Fate, "%v", o.Trace)
	require.True(t, o.HeldID)
	rest := cut.rest()
	for at := range rest {
		if bytes.HasSuffix(rest[:at+1], []byte("\n\n")) {
			boundaries = append(boundaries, at+1)
		}
	}
	return len(rest), boundaries
}

// The same with the official Go SDK's client, and what it does by itself when a connection breaks.
func TestNoCutLosesAResponseOfTheSDK(t *testing.T) {
	cluster := harness.StartForTest(t, harness.Config{})
	length, boundaries := streamed(t, cluster.URL(), func(s *raw.Session) *raw.Outcome {
		q := raw.Tool("progress", fmt.Sprintf(`{"n":%d,"ms":5}`, steps))
		q.Progress = `"steps"`
		return s.Call(t.Context(), q)
	})
	const stride = 64
	var offsets []int
	for at := 0; at <= length; at += stride {
		offsets = append(offsets, at)
	}
	for _, end := range boundaries {
		offsets = append(offsets, end-1, end)
	}
	next := make(chan int)
	var wg sync.WaitGroup
	var cuts atomic.Int64
	for range workers {
		wg.Go(func() {
			cut := startCutter(t, cluster.URL())
			for at := range next {
				s, err := connectSDK(t.Context(), cut.url(), legacy, 0)
				if !assert.NoError(t, err) {
					continue
				}
				cut.cutNext(at)
				heard, err := s.steps(t.Context(), steps)
				assert.NoError(t, err, "cut %d bytes after the first event id", at)
				assert.Equal(t, steps, heard, "cut %d bytes after the first event id", at)
				cuts.Add(int64(cut.count()))
				s.close()
			}
		})
	}
	for _, at := range offsets {
		next <- at
	}
	close(next)
	wg.Wait()
	t.Logf("%d bytes, %d of %d calls were cut", length, cuts.Load(), len(offsets))
	assert.Greater(t, cuts.Load(), int64(len(offsets)/2), "the cuts must have cut something")
}

// workers is how many clients are cut at a time. Each waits before it comes back, so that many cost little.
const workers = 24

// everyOffset is where to cut an answer: everywhere, or where LONG is not set at every 16th byte and around the ends of
// events.
func everyOffset(length int, boundaries []int) []int {
	const around = 4
	set := map[int]bool{}
	for at := range length + 1 {
		if long() || at%16 == 0 {
			set[at] = true
		}
	}
	for _, end := range append(boundaries, 0) {
		for at := max(end-around, 0); at <= min(end+around, length); at++ {
			set[at] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// What a killed process leaves behind: calls that it had just answered, was about to answer, or was in the middle of. Each
// ends within 30 seconds of the kill with one response, the tool's own or the honest one, and no tool ran twice.
func TestNoKillLosesAResponse(t *testing.T) {
	const (
		victim = 0
		killAt = 2500 * time.Millisecond
		told   = 30 * time.Second
	)
	cluster := harness.StartForTest(t, harness.Config{})
	// Dense around the kill: the race is there. A call holds an event id once it has been silent for a second.
	var sleeps []time.Duration
	for d := -200 * time.Millisecond; d <= 200*time.Millisecond; d += 10 * time.Millisecond {
		sleeps = append(sleeps, killAt+d)
	}
	for d := 1500 * time.Millisecond; d < 6*time.Second; d += 250 * time.Millisecond {
		sleeps = append(sleeps, d)
	}
	direct := rawClient(t, cluster.Processes[victim].URL())
	around := rawClient(t, cluster.URL())
	s, o := around.Initialize(t.Context(), legacy)
	require.NotNil(t, s, "%v", o.Trace)

	// The POSTs go to the process that will be killed; whatever comes after, anywhere.
	direct.HTTP.Transport = turn{
		RoundTripper: direct.HTTP.Transport, posts: cluster.Processes[victim].Addr(),
		others: func() string { return proxyHost(cluster) },
	}
	s.Client = direct
	outcomes := make([]*raw.Outcome, len(sleeps))
	var wg sync.WaitGroup
	for i, d := range sleeps {
		wg.Go(func() {
			outcomes[i] = s.Call(t.Context(), raw.Tool("sleep", fmt.Sprintf(`{"ms":%d,"key":"%d"}`, d.Milliseconds(), i)))
		})
	}
	// Real clients in the same situation; what they started on the process that will be killed is up to the proxy.
	var sdk [12]struct {
		text string
		err  error
	}
	for i := range sdk {
		wg.Go(func() {
			s, err := connectSDK(t.Context(), cluster.URL(), legacy, 0)
			if !assert.NoError(t, err) {
				return
			}
			defer s.close()
			sdk[i].text, sdk[i].err = s.call(t.Context(), "sleep", map[string]any{
				"ms": (killAt + time.Duration(i)*200*time.Millisecond).Milliseconds(), "key": fmt.Sprintf("sdk-%d", i),
			})
		})
	}
	kill := time.NewTimer(killAt)
	defer kill.Stop()
	<-kill.C
	cluster.Kill(victim)
	killed := time.Now()
	wg.Wait()
	assert.Less(t, time.Since(killed), told, "the last of all clients has its answer")

	ran, err := cluster.Ran()
	require.NoError(t, err)
	times := map[string]int{}
	for _, line := range ran {
		times[line]++
	}
	fates := map[string]int{}
	var slowest time.Duration
	for i, o := range outcomes {
		key := fmt.Sprintf("done:%d", i)
		what := fmt.Sprintf("slept %v\n%s", sleeps[i], strings.Join(o.Trace, "\n"))
		assert.Empty(t, o.Wrong, what)
		assert.LessOrEqual(t, times[key], 1, what)
		if !assert.Equal(t, raw.Answered, o.Fate, what) {
			continue
		}
		if late := o.Ended.Sub(killed); late > slowest {
			slowest = late
		}
		assert.Less(t, o.Ended.Sub(killed), told, what)
		switch {
		case o.Interrupted():
			assert.True(t, o.IsError(), what)
			fates["interrupted"]++
			if times[key] == 1 {
				fates["interrupted, though the tool was done"]++
			}
		case o.Resumes > 0:
			fates["answered, fetched elsewhere"]++
			assert.Equal(t, 1, times[key], what)
		default:
			fates["answered before the kill"]++
			assert.Equal(t, 1, times[key], what)
		}
		if !o.Interrupted() {
			assert.Equal(t, fmt.Sprintf("slept %d ms", sleeps[i].Milliseconds()), o.Text(), what)
		}
	}
	for i, got := range sdk {
		key := fmt.Sprintf("done:sdk-%d", i)
		if got.err != nil {
			assert.ErrorContains(t, got.err, "The call was interrupted")
			assert.LessOrEqual(t, times[key], 1)
			fates["go-sdk: interrupted"]++
			continue
		}
		assert.Contains(t, got.text, "slept")
		assert.Equal(t, 1, times[key])
		fates["go-sdk: answered"]++
	}
	t.Logf("%v; the last was told %v after the kill", fates, slowest.Round(100*time.Millisecond))
	assert.NotZero(t, fates["interrupted"])
	assert.NotZero(t, fates["answered before the kill"])
}

// The process that is killed only holds the stream on which a client has come back; the one that runs the call lives. The
// client comes back once more, to another, and nothing is lost, not even time.
func TestNoKillOfAReaderLosesAResponse(t *testing.T) {
	const (
		runner, reader = 0, 1
		killAt         = 2500 * time.Millisecond
	)
	cluster := harness.StartForTest(t, harness.Config{})
	c := rawClient(t, cluster.Processes[runner].URL())
	s, o := c.Initialize(t.Context(), legacy)
	require.NotNil(t, s, "%v", o.Trace)
	readers := func() string {
		if cluster.Processes[reader].Running() {
			return cluster.Processes[reader].Addr()
		}
		return proxyHost(cluster)
	}
	c.HTTP.Transport = turn{RoundTripper: c.HTTP.Transport, posts: cluster.Processes[runner].Addr(), others: readers}
	var outcomes []*raw.Outcome
	var mu sync.Mutex
	var wg sync.WaitGroup
	for d := 1200 * time.Millisecond; d < 5*time.Second; d += 100 * time.Millisecond {
		wg.Go(func() {
			q := raw.Tool("sleep", fmt.Sprintf(`{"ms":%d,"key":"%v"}`, d.Milliseconds(), d))
			q.Drop = func(int) bool { return true } // after the first event
			o := s.Call(t.Context(), q)
			assert.Equal(t, fmt.Sprintf("slept %d ms", d.Milliseconds()), o.Text(), strings.Join(o.Trace, "\n"))
			mu.Lock()
			defer mu.Unlock()
			outcomes = append(outcomes, o)
		})
	}
	kill := time.NewTimer(killAt)
	defer kill.Stop()
	<-kill.C
	cluster.Kill(reader)
	killed := time.Now()
	wg.Wait()
	twice := 0
	for _, o := range outcomes {
		assert.Equal(t, raw.Answered, o.Fate)
		assert.Empty(t, o.Wrong)
		assert.Less(t, o.Ended.Sub(killed), 5*time.Second, strings.Join(o.Trace, "\n"))
		if o.Resumes > 1 {
			twice++
		}
	}
	assert.NotZero(t, twice, "the kill must have broken a stream")
	ran, err := cluster.Ran()
	require.NoError(t, err)
	assert.Len(t, ran, len(outcomes), "each tool ran once")
	t.Logf("%d calls, %d of which came back more than once", len(outcomes), twice)
}

// A turn sends POSTs to one host and everything else to another.
type turn struct {
	http.RoundTripper
	posts  string
	others func() string
}

// RoundTrip implements [http.RoundTripper].
func (t turn) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	if r.URL.Host = t.posts; r.Method != http.MethodPost {
		r.URL.Host = t.others()
	}
	return t.RoundTripper.RoundTrip(r)
}

func proxyHost(c *harness.Cluster) string {
	return strings.TrimSuffix(strings.TrimPrefix(c.URL(), "http://"), "/mcp")
}
