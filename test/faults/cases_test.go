package faults

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	gcfirestore "cloud.google.com/go/firestore"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/api/option"

	"github.com/hydrant-mcp/hydrant/handler"
	"github.com/hydrant-mcp/hydrant/internal/cmd/soak/client"
	"github.com/hydrant-mcp/hydrant/internal/emulator"
	"github.com/hydrant-mcp/hydrant/internal/harness"
	"github.com/hydrant-mcp/hydrant/store"
	"github.com/hydrant-mcp/hydrant/store/dynamo"
	"github.com/hydrant-mcp/hydrant/store/faulty"
	"github.com/hydrant-mcp/hydrant/store/firestore"
)

// The tests of this file are named after the reports of the field whose answer they are.

const latest = "2025-11-25"

// onDatabases runs a test on both databases' emulators, in real time.
func onDatabases(t *testing.T, s setup, test func(w *world)) {
	for name, open := range map[string]func(*testing.T) store.Store{"dynamodb": onDynamoDB, "firestore": onFirestore} {
		t.Run(name, func(t *testing.T) {
			s.under, s.tells = open(t), true
			w := newWorld(t, s)
			defer w.stop()
			w.client.ComeBack = 10 * time.Millisecond
			test(w)
		})
	}
}

func onDynamoDB(t *testing.T) store.Store {
	st, _, _ := openDynamoDB(t)
	return st
}

func openDynamoDB(t *testing.T) (store.Store, *dynamodb.Client, string) {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	db := dynamodb.New(dynamodb.Options{
		Region: "us-east-1", BaseEndpoint: aws.String(emulator.DynamoDBForTest(t)), HTTPClient: &http.Client{Transport: transport},
		Credentials: credentials.NewStaticCredentialsProvider("local", "local", ""),
	})
	table := "faults-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	require.NoError(t, dynamo.CreateTable(t.Context(), db, table))
	return dynamo.New(db, table), db, table
}

func onFirestore(t *testing.T) store.Store {
	st, _, _ := openFirestore(t)
	return st
}

func openFirestore(t *testing.T) (store.Store, *gcfirestore.Client, string) {
	t.Helper()
	t.Setenv("FIRESTORE_EMULATOR_HOST", emulator.FirestoreForTest(t))
	db, err := gcfirestore.NewClient(t.Context(), "hydrant-test", option.WithoutAuthentication())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	prefix := "faults-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	st := firestore.New(db, prefix)
	t.Cleanup(func() { assert.NoError(t, st.Close()) })
	return st, db, prefix
}

// dropped makes a call whose connection breaks as soon as the client holds an event id.
func dropped(w *world, s *client.Session, tool, arguments string) *client.Outcome {
	q := client.Tool(tool, arguments)
	q.StreamOnly, q.Drop = true, func(n int) bool { return n == 1 }
	return s.Call(w.t.Context(), q)
}

// An absent session is 404, and a store that cannot be asked is 503: never the one for the other.
func TestSESS2AnOutageIsNotAbsence(t *testing.T) {
	outages := map[string]faulty.Rates{"throttling": {Throttle: 1}, "errors": {Error: 1}, "timeouts": {Timeout: 1}}
	for name, rates := range outages {
		t.Run(name, func(t *testing.T) {
			inWorld(t, setup{}, func(w *world) {
				t := w.t
				live := w.session(w.client, latest)
				gone := &client.Session{Client: w.client, ID: "gone-0001", Version: latest}
				absent := &client.Session{Client: w.client, ID: strings.Repeat("A", len(live.ID)), Version: latest}
				const list = `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
				status := func(s *client.Session) (int, http.Header, string) {
					code, header, body, err := s.Do(t.Context(), http.MethodPost, list)
					require.NoError(t, err)
					return code, header, body
				}
				for _, s := range []*client.Session{gone, absent} {
					code, _, _ := status(s)
					assert.Equal(t, 404, code)
				}
				w.faults.Set(faulty.Plan{Rates: rates})
				for _, s := range []*client.Session{live, absent} {
					code, header, body := status(s)
					assert.Equal(t, 503, code)
					assert.NotEmpty(t, header.Get("Retry-After"))
					assert.Contains(t, body, `"retryable":true`)
				}
				w.faults.Set(faulty.Plan{})
				code, _, _ := status(live)
				assert.Equal(t, 200, code, "the same session works again")
				code, _, _ = status(absent)
				assert.Equal(t, 404, code)
			})
		})
	}
}

func TestSTORE104LargeResultsDoNotFillTheSession(t *testing.T) {
	onDatabases(t, setup{}, func(w *world) {
		s := w.session(w.client, latest)
		for i := range 50 {
			key := fmt.Sprintf("small-%d;", i)
			o := dropped(w, s, "large", fmt.Sprintf(`{"key":%q,"bytes":61440}`, key))
			require.Equal(w.t, client.Answered, o.Fate, o.Trace)
			require.Positive(w.t, o.Resumes)
			require.Equal(w.t, filler(key, 61440), o.Text())
		}
		o := dropped(w, s, "large", `{"key":"large;","bytes":512000}`)
		require.Equal(w.t, client.Answered, o.Fate, o.Trace)
		require.Equal(w.t, filler("large;", 512000), o.Text())
		o = s.Call(w.t.Context(), client.Tool("quick", `{"key":"after"}`))
		assert.Equal(w.t, "after", o.Text(), "the session lives")
	})
}

func TestSTORE106TimeToLiveIsInSeconds(t *testing.T) {
	st, db, table := openDynamoDB(t)
	w := newWorld(t, setup{under: st, opts: handler.Options{SessionTTL: 2 * time.Hour}})
	defer w.stop()
	w.session(w.client, latest)
	out, err := db.Scan(t.Context(), &dynamodb.ScanInput{TableName: &table, ConsistentRead: aws.Bool(true)})
	require.NoError(t, err)
	require.Len(t, out.Items, 1)
	ttl, ok := out.Items[0]["ttl"].(*types.AttributeValueMemberN)
	require.True(t, ok, "the database takes a number only")
	seconds, err := strconv.ParseInt(ttl.Value, 10, 64)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, seconds, time.Now().Add(2*time.Hour-time.Minute).Unix())
	assert.LessOrEqual(t, seconds, time.Now().Add(3*time.Hour).Unix())
}

// 30 calls at once on one session that is due for renewal, so that they all write to it, against conflicts and throttling.
func TestSTORE107NoLockAndNoSpiral(t *testing.T) {
	plan := faulty.Plan{
		Seed: 107, Latency: 30 * time.Millisecond, Rates: faulty.Rates{Throttle: 0.2},
		Only: map[faulty.Operation]faulty.Rates{faulty.UpdateSession: {Throttle: 0.2, Conflict: 0.3}},
	}
	inWorld(t, setup{opts: handler.Options{SessionTTL: time.Hour}}, func(w *world) {
		t := w.t
		s := w.session(w.client, latest)
		time.Sleep(50 * time.Minute) // of the world's clock
		w.faults.Set(plan)
		began := time.Now()
		var wg sync.WaitGroup
		var mu sync.Mutex
		statuses := map[int]int{}
		for i := range 30 {
			wg.Go(func() {
				body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"quick","arguments":{"key":"k%[1]d"}}}`, i)
				code, header, text, err := s.Do(t.Context(), http.MethodPost, body)
				assert.NoError(t, err)
				mu.Lock()
				defer mu.Unlock()
				statuses[code]++
				switch code {
				case 200:
					assert.Contains(t, text, fmt.Sprintf(`"k%d"`, i))
				case 503:
					assert.NotEmpty(t, header.Get("Retry-After"))
					assert.Zero(t, w.runs.of(fmt.Sprintf("k%d", i)), "what is to be repeated has not run")
				default:
					assert.Fail(t, "neither 200 nor 503", "%d %s", code, text)
				}
			})
		}
		wg.Wait()
		assert.Less(t, time.Since(began), 10*time.Second, "bounded")
		assert.Positive(t, statuses[503], "the store has throttled")
		assert.Greater(t, statuses[200], 15)
		// No event is lost: every call, repeated as the protocol says, ends with all of its progress, in order.
		for i := range 30 {
			wg.Go(func() {
				q := client.Tool("slow", fmt.Sprintf(`{"key":"p%d","n":5,"ms":50}`, i))
				q.Progress = strconv.Itoa(i)
				o := s.Call(t.Context(), q)
				assert.Equal(t, client.Answered, o.Fate, o.Trace)
				assert.Equal(t, 5, o.Notifications)
				assert.Empty(t, o.Wrong)
			})
		}
		wg.Wait()
		assert.Empty(t, w.runs.twice())
	})
}

func TestSTORE109AResultLargerThanADocument(t *testing.T) {
	onDatabases(t, setup{}, func(w *world) {
		s := w.session(w.client, latest)
		o := dropped(w, s, "large", `{"key":"a MiB;","bytes":1048576}`)
		require.Equal(w.t, client.Answered, o.Fate, o.Trace)
		require.Positive(w.t, o.Resumes)
		require.Equal(w.t, filler("a MiB;", 1048576), o.Text())
	})
}

// Nothing removes what has expired: the table has no time to live, or it lags by days.
func TestATableWithoutTimeToLive(t *testing.T) {
	st, db, table := openDynamoDB(t)
	w := newWorld(t, setup{under: st, opts: handler.Options{SessionTTL: time.Second}})
	defer w.stop()
	s := w.session(w.client, latest)
	require.Eventually(t, func() bool {
		sum, err := st.Session(t.Context(), keyOf(s))
		return sum == nil && errors.Is(err, store.ErrNotFound)
	}, 10*time.Second, 20*time.Millisecond)
	for method, body := range map[string]string{http.MethodPost: `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, http.MethodGet: "", http.MethodDelete: ""} {
		code, _, _, err := s.Do(t.Context(), method, body)
		require.NoError(t, err)
		assert.Equal(t, 404, code, method)
	}
	out, err := db.Scan(t.Context(), &dynamodb.ScanInput{TableName: &table, ConsistentRead: aws.Bool(true)})
	require.NoError(t, err)
	assert.Len(t, out.Items, 1, "it is still there")
}

// Half of a record was lost: that is a fault of ours, and no session that is missing.
func TestATruncatedRecordIs500(t *testing.T) {
	st, db, table := openDynamoDB(t)
	w := newWorld(t, setup{under: st})
	defer w.stop()
	s := w.session(w.client, latest)
	out, err := db.Scan(t.Context(), &dynamodb.ScanInput{TableName: &table, ConsistentRead: aws.Bool(true)})
	require.NoError(t, err)
	require.Len(t, out.Items, 1)
	good := out.Items[0]
	put := func(change func(item map[string]types.AttributeValue)) {
		bad := map[string]types.AttributeValue{}
		for name, value := range good {
			bad[name] = value
		}
		change(bad)
		_, err := db.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &table, Item: bad})
		require.NoError(t, err)
	}
	params := good["params"].(*types.AttributeValueMemberB).Value
	for name, change := range map[string]func(map[string]types.AttributeValue){
		"half of what the client sent": func(it map[string]types.AttributeValue) {
			it["params"] = &types.AttributeValueMemberB{Value: params[:len(params)/2]}
		},
		"an attribute is gone":  func(it map[string]types.AttributeValue) { delete(it, "protocol") },
		"all but the key":       func(it map[string]types.AttributeValue) { clear(it); it["pk"], it["sk"] = good["pk"], good["sk"] },
		"a time that is a text": func(it map[string]types.AttributeValue) { it["expires"] = &types.AttributeValueMemberS{Value: "soon"} },
	} {
		put(change)
		code, _, body, err := s.Do(t.Context(), http.MethodPost, `{"jsonrpc":"2.0","id":7,"method":"tools/list"}`)
		require.NoError(t, err)
		assert.Equal(t, 500, code, name)
		assert.Contains(t, body, `-32603`)
		assert.Contains(t, body, `"id":7`)
	}
	put(func(map[string]types.AttributeValue) {})
	assert.Equal(t, "back", s.Call(t.Context(), client.Tool("quick", `{"key":"back"}`)).Text())
}

func TestMain(m *testing.M) {
	code := emulator.Main(m)
	if err := goleak.Find(); code == 0 && err != nil {
		_, _ = os.Stderr.WriteString(err.Error() + "\n")
		code = 1
	}
	os.Exit(code)
}

// The table of cases in docs/failures.md has every test that is named after a case, and no other.
func TestEveryCaseIsInTheTable(t *testing.T) {
	root, err := harness.Root()
	require.NoError(t, err)
	doc, err := os.ReadFile(filepath.Join(root, "docs", "failures.md"))
	require.NoError(t, err)
	listed := map[string][]string{} // tests, by case
	for _, row := range regexp.MustCompile(`(?m)^\| ([A-Z]+) (\d+) \| .+ \| (.+) \|$`).FindAllStringSubmatch(string(doc), -1) {
		listed[row[1]+row[2]] = regexp.MustCompile(`Test\w+`).FindAllString(row[3], -1)
	}
	require.Len(t, listed, cases)
	written := map[string][]string{}
	named := regexp.MustCompile(`(?m)^func (Test([A-Z]+)(\d+)(?:And(\d+))?\w*)\(`)
	require.NoError(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		code, err := os.ReadFile(path)
		for _, m := range named.FindAllStringSubmatch(string(code), -1) {
			for _, number := range m[3:] {
				if _, ok := listed[m[2]+number]; ok {
					written[m[2]+number] = append(written[m[2]+number], m[1])
				}
			}
		}
		return err
	}))
	for name, tests := range listed {
		assert.NotEmpty(t, tests, name)
		assert.ElementsMatch(t, written[name], tests, name)
	}
}

// cases is how many there are.
const cases = 66
