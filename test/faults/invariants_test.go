package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	gcfirestore "cloud.google.com/go/firestore"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/handler"
	"github.com/hydrant-mcp/hydrant/internal/cmd/soak/client"
	"github.com/hydrant-mcp/hydrant/store"
	"github.com/hydrant-mcp/hydrant/store/faulty"
)

// The invariants of docs/architecture.md, while a tenth of all operations of the store fails in every way there is. The
// fourth, that nothing is lost once the client holds an event id, is TestMixedWork's.

const tenth = 0.1

// Every request goes to the next instance, and instances go one after the other; the last one serves everything.
func TestInvariant1AnyInstanceAnyMessageUnderFaults(t *testing.T) {
	inWorld(t, setup{plan: mixed(11, tenth), instances: 5}, func(w *world) {
		s := w.session(w.client, latest)
		for round, i := range w.instances {
			for n := range 10 {
				key := fmt.Sprintf("%d-%d", round, n)
				o := s.Call(w.t.Context(), client.Tool("quick", fmt.Sprintf(`{"key":%q}`, key)))
				require.Equal(w.t, key, o.Text(), o.Trace)
			}
			if round < len(w.instances)-1 {
				i.kill()
			}
		}
		assert.Empty(w.t, w.runs.twice())
	})
}

func TestInvariant2OutageIsNotAbsenceUnderFaults(t *testing.T) {
	inWorld(t, setup{plan: mixed(12, 0.2)}, func(w *world) {
		s := w.session(w.client, latest)
		for range 300 {
			status, _, body := w.do(s, http.MethodPost, listTools)
			assert.Contains(w.t, []int{200, 503}, status, body)
		}
		for range 300 {
			status, _, _ := w.do(w.nobody(), http.MethodPost, listTools)
			assert.Contains(w.t, []int{404, 503}, status)
		}
	})
}

// What is acknowledged is in the store; what is not may be, and repeating it does no harm.
func TestInvariant3NothingIsAcknowledgedBeforeItIsSafeUnderFaults(t *testing.T) {
	inWorld(t, setup{plan: mixed(13, 0.2)}, func(w *world) {
		levels := []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}
		s := w.session(w.client, latest)
		acknowledged := map[int]int{}
		for n := range 200 {
			level := levels[n%len(levels)]
			status, _, body := w.do(s, http.MethodPost, strings.Replace(setLevel, `"info"`, `"`+level+`"`, 1))
			acknowledged[status]++
			stored, err := w.under.Session(w.t.Context(), keyOf(s))
			require.NoError(w.t, err)
			if status == 200 && strings.Contains(body, `"result"`) { // what takes long is a stream by then, and ends with an error
				assert.Equal(w.t, level, stored.LogLevel, body)
			}
			id := fmt.Sprintf(`"c%d"`, n)
			status, _, _ = w.do(s, http.MethodPost, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+id+`}}`)
			acknowledged[status]++
			if status == 202 {
				stored, err = w.under.Session(w.t.Context(), keyOf(s))
				require.NoError(w.t, err)
				assert.Contains(w.t, stored.Cancelled, id)
			}
		}
		assert.Positive(w.t, acknowledged[503])
		assert.Greater(w.t, acknowledged[200]+acknowledged[202], 200)
	})
}

// Many calls of one session at once, all with the same id, as one large client numbers them.
func TestInvariant5AMessageGoesOnlyWhereItBelongsUnderFaults(t *testing.T) {
	inWorld(t, setup{plan: mixed(15, tenth)}, func(w *world) {
		s := w.session(w.newClient(cuts(random(15, 0), 0.2)), latest)
		var wg sync.WaitGroup
		for n := range 60 {
			wg.Go(func() {
				key := fmt.Sprintf("k%d", n)
				q := client.Tool("slow", fmt.Sprintf(`{"key":%q,"ms":%d,"n":3}`, key, 50+n*7))
				q.ID, q.Progress = "1", fmt.Sprintf("%q", key)
				o := s.Call(w.t.Context(), q)
				assert.Empty(w.t, o.Wrong)
				if o.Fate == client.Answered && !o.Interrupted() {
					assert.Equal(w.t, key, o.Text())
				}
			})
		}
		wg.Wait()
		assert.Empty(w.t, w.runs.twice())
		s.HTTP.CloseIdleConnections()
	})
}

// Somebody else sees exactly what there would be to see if there were no such session.
func TestInvariant6ASessionBelongsToItsPrincipalUnderFaults(t *testing.T) {
	inWorld(t, setup{plan: mixed(16, 0.2), opts: handler.Options{Verifier: verify}}, func(w *world) {
		alice, bob := w.newClient(nil), w.newClient(nil)
		alice.Token, bob.Token = "alice", "bob"
		s := w.session(alice, latest)
		event := w.eventID(s, "secret")
		theirs, nobodys := &client.Session{Client: bob, ID: s.ID, Version: latest}, w.nobody()
		nobodys.Client = bob
		see := func(s *client.Session, q request) (status int, header http.Header, body string) {
			w.until(func() bool {
				status, header, body = w.do(s, q.method, q.body, q.headers...)
				return status != 503
			})
			header.Del("Date")
			header.Del(client.HeaderInstance)
			return status, header, body
		}
		for range 50 {
			for _, try := range []request{
				{method: http.MethodPost, body: listTools}, {method: http.MethodPost, body: initialized},
				{method: http.MethodPost, body: noQuestion}, {method: http.MethodPost, body: "[" + quick + "]"},
				{method: http.MethodGet}, {method: http.MethodDelete},
				{method: http.MethodGet, headers: []string{"Last-Event-ID", event}},
			} {
				status, header, body := see(theirs, try)
				absent, absentHeader, absentBody := see(nobodys, try)
				assert.Equal(w.t, 404, status)
				assert.Equal(w.t, absent, status)
				assert.Equal(w.t, absentHeader, header)
				assert.Equal(w.t, absentBody, body)
			}
		}
		o := s.Call(w.t.Context(), client.Tool("quick", `{"key":"still here"}`))
		assert.Equal(w.t, "still here", o.Text())
	})
}

// Every operation of the store is part of a request that is still open: [world.attended] sees to that in all of these
// tests. Here it sees every way of working, and clients that leave in the middle of it.
func TestInvariant7NothingRunsAfterTheAnswerUnderFaults(t *testing.T) {
	inWorld(t, setup{plan: mixed(17, 0.2)}, func(w *world) {
		l := &ledger{w: w, fates: map[string]int{}}
		l.work(0, 17)
		time.Sleep(callsEnd) // calls whose clients were cut off go on until they are done: that is before their answer
		before := w.attends.Load()
		assert.Positive(w.t, before)
		assert.Equal(w.t, w.tells, w.faults.Calls(faulty.Watch) > 0)
		time.Sleep(24 * time.Hour)
		assert.Equal(w.t, before, w.attends.Load())
	})
}

func TestInvariant8BytesStayBytesUnderFaults(t *testing.T) {
	inWorld(t, setup{plan: mixed(18, tenth)}, func(w *world) {
		s := w.session(w.newClient(cuts(random(18, 0), 0.3)), latest)
		for _, id := range []string{"9007199254740993", `"9007199254740993"`, "0", `""`, `"\u00e9"`, "-1"} {
			for _, token := range []string{"0", `"0"`, "9007199254740993"} {
				q := client.Tool("slow", `{"key":"`+strings.Trim(id, `"`)+` `+strings.Trim(token, `"`)+`","ms":10,"n":2}`)
				q.ID, q.Progress = id, token
				o := s.Call(w.t.Context(), q)
				assert.Empty(w.t, o.Wrong, "the id and the token come back as they were: %s %s", id, token)
			}
		}
		s.HTTP.CloseIdleConnections()
	})
}

// Every operation of the store times out: no request waits for longer than a few of them.
func TestInvariant9EveryWaitIsBoundedUnderTimeouts(t *testing.T) {
	inWorld(t, setup{}, func(w *world) {
		s := w.session(w.client, latest)
		w.faults.Set(faulty.Plan{Rates: faulty.Rates{Timeout: 1}, Patience: 10 * time.Second})
		for _, try := range []struct{ method, body string }{
			{http.MethodPost, listTools}, {http.MethodPost, setLevel}, {http.MethodGet, ""}, {http.MethodDelete, ""},
			{http.MethodPost, `{"jsonrpc":"2.0","id":"q","result":{}}`},
			{http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`},
		} {
			began := time.Now()
			status, _, _ := w.do(s, try.method, try.body)
			assert.Equal(w.t, 503, status)
			assert.LessOrEqual(w.t, time.Since(began), 11*time.Second)
		}
		// The store goes away in the middle of a call: whoever is attached is answered soon after the tool is done.
		w.faults.Set(faulty.Plan{})
		time.AfterFunc(1500*time.Millisecond, func() {
			w.faults.Set(faulty.Plan{Rates: faulty.Rates{Timeout: 1}, Patience: time.Hour})
		})
		o := s.Call(w.t.Context(), client.Tool("slow", `{"key":"k","ms":3000}`))
		assert.Equal(w.t, "k", o.Text(), o.Trace)
		assert.Less(w.t, o.Ended.Sub(o.Began), 20*time.Second)
	})
}

// A newer version has written the records of a session and of a suspended call: what this version does not know of them
// survives all that it does to them, also what it repeats.
func TestInvariant10OldAndNewVersionsShareAStoreUnderFaults(t *testing.T) {
	for name, open := range map[string]func(*testing.T) (store.Store, newer){"dynamodb": newerDynamoDB, "firestore": newerFirestore} {
		t.Run(name, func(t *testing.T) {
			st, raw := open(t)
			updates := faulty.Rates{Error: 0.1, Conflict: 0.2, Lost: 0.2}
			plan := faulty.Plan{Seed: 20, Only: map[faulty.Operation]faulty.Rates{
				faulty.UpdateSession: updates, faulty.UpdateExchange: updates,
			}}
			w := newWorld(t, setup{under: st, tells: true, plan: plan, opts: handler.Options{Ask: handler.AskSuspend}})
			defer w.stop()
			w.client.Capabilities = `{"elicitation":{},"future":{"x":1}}`
			s := w.session(w.client, latest)
			raw.mark()
			q := client.Tool("rounds", `{"key":"k"}`)
			q.Answer = func(params json.RawMessage) string {
				raw.mark()
				return echo(params)
			}
			o := s.Call(t.Context(), q)
			require.Equal(t, "k.1;k.2;k.3;", o.Text(), "%s %s", o.Error, o.Trace)
			w.until(func() bool {
				status, _, body := w.do(s, http.MethodPost, setLevel)
				return status == 200 && strings.Contains(body, `"result"`)
			})
			for _, body := range []string{initialized, cancelled, cancelled, subscribe} {
				w.until(func() bool {
					status, _, _ := w.do(s, http.MethodPost, body)
					return status != 503
				})
			}
			stored, err := st.Session(t.Context(), keyOf(s))
			require.NoError(t, err)
			assert.Contains(t, string(stored.InitializeParams), `"future":{"x":1}`)
			assert.True(t, stored.Initialized)
			assert.Equal(t, "info", stored.LogLevel)
			assert.Equal(t, []string{"test://one"}, stored.Subscriptions)
			assert.GreaterOrEqual(t, stored.Cancels, int64(2))
			kept, lost := raw.count()
			assert.Positive(t, kept)
			assert.Zero(t, lost, "of %d records that a newer version had written", kept+lost)
			assert.NotEmpty(t, w.faults.Injected())
		})
	}
}

// A newer version of the code has something of its own in each record of sessions and exchanges.
type newer struct {
	mark  func()                  // all that there are
	count func() (kept, lost int) // of those that were marked
}

func newerDynamoDB(t *testing.T) (store.Store, newer) {
	st, db, table := openDynamoDB(t)
	marked := 0
	scan := func(f func(item map[string]types.AttributeValue, has bool)) {
		out, err := db.Scan(t.Context(), &dynamodb.ScanInput{TableName: &table, ConsistentRead: aws.Bool(true)})
		require.NoError(t, err)
		for _, item := range out.Items {
			if kind := item["sk"].(*types.AttributeValueMemberS).Value; kind == "s" || kind == "x" {
				_, has := item["future"]
				f(item, has)
			}
		}
	}
	return st, newer{
		mark: func() {
			scan(func(item map[string]types.AttributeValue, has bool) {
				if has {
					return
				}
				marked++
				_, err := db.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{
					TableName: &table, Key: map[string]types.AttributeValue{"pk": item["pk"], "sk": item["sk"]},
					UpdateExpression:          aws.String("SET future = :f"),
					ExpressionAttributeValues: map[string]types.AttributeValue{":f": &types.AttributeValueMemberS{Value: "f"}},
				})
				require.NoError(t, err)
			})
		},
		count: func() (kept, lost int) {
			scan(func(_ map[string]types.AttributeValue, has bool) { kept += btoi(has) })
			return kept, marked - kept
		},
	}
}

func newerFirestore(t *testing.T) (store.Store, newer) {
	st, db, prefix := openFirestore(t)
	marked := 0
	scan := func(f func(doc *gcfirestore.DocumentSnapshot, has bool)) {
		for _, kind := range []string{"_sessions", "_exchanges"} {
			docs, err := db.Collection(prefix + kind).Documents(t.Context()).GetAll()
			require.NoError(t, err)
			for _, doc := range docs {
				_, has := doc.Data()["future"]
				f(doc, has)
			}
		}
	}
	return st, newer{
		mark: func() {
			scan(func(doc *gcfirestore.DocumentSnapshot, has bool) {
				if has {
					return
				}
				marked++
				_, err := doc.Ref.Update(t.Context(), []gcfirestore.Update{{Path: "future", Value: "f"}})
				require.NoError(t, err)
			})
		},
		count: func() (kept, lost int) {
			scan(func(_ *gcfirestore.DocumentSnapshot, has bool) { kept += btoi(has) })
			return kept, marked - kept
		},
	}
}

func TestInvariant11APanickingToolIsAnErrorResultUnderFaults(t *testing.T) {
	inWorld(t, setup{plan: mixed(21, 0.2)}, func(w *world) {
		s := w.session(w.client, latest)
		for range 20 {
			o := s.Call(w.t.Context(), client.Tool("panic", `{}`))
			require.Equal(w.t, client.Answered, o.Fate, o.Trace)
			assert.True(w.t, o.IsError())
		}
	})
}

// What is announced reaches every stream that is open, however often the look at it fails.
func TestAnnouncementsUnderFaults(t *testing.T) {
	inWorld(t, setup{plan: mixed(22, 0.2)}, func(w *world) {
		s := w.session(w.client, latest)
		const uri = "test://one"
		o := s.Call(w.t.Context(), client.Request{Method: "resources/subscribe", Params: `{"uri":"` + uri + `"}`})
		require.Equal(w.t, client.Answered, o.Fate)
		for range 5 {
			ctx, stop := context.WithCancel(w.t.Context())
			heard := make(chan string, 10)
			opened, ended := make(chan struct{}, 1), make(chan int, 1)
			go func() {
				status, _ := s.Listen(ctx, func() { opened <- struct{}{} }, func(method string, params json.RawMessage) {
					select {
					case heard <- method + string(params):
					default:
					}
				})
				ended <- status
			}()
			select {
			case <-opened:
			case status := <-ended:
				assert.Equal(w.t, 503, status)
				stop()
				continue
			}
			time.Sleep(2 * time.Second)
			o := w.client.Modern(w.t.Context(), client.Tool("touch", `{"key":"`+uri+`"}`))
			if o.Error == nil {
				select {
				case got := <-heard:
					assert.Contains(w.t, got, uri)
				case <-time.After(time.Minute):
					assert.Fail(w.t, "nothing came")
				}
			}
			stop()
			<-ended
		}
	})
}
