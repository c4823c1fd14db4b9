package dynamo_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/internal/emulator"
	"github.com/hydrant-mcp/hydrant/store"
	"github.com/hydrant-mcp/hydrant/store/dynamo"
	"github.com/hydrant-mcp/hydrant/store/internal/drivertest"
	"github.com/hydrant-mcp/hydrant/store/storetest"
)

// fewerPauses keeps the client's retries and makes the pauses between them short.
func fewerPauses(o *dynamodb.Options) {
	o.Retryer = retry.AddWithMaxBackoffDelay(retry.NewStandard(), time.Millisecond)
}

func TestUnreachableDatabaseIsUnavailableSoon(t *testing.T) {
	st := dynamo.New(newClient("http://"+drivertest.ClosedPort(t)), "mcp")
	for name, call := range drivertest.EveryCall(st, dynamo.Revision) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			err := call(t.Context())
			require.ErrorIs(t, err, store.ErrUnavailable)
			assert.NotErrorIs(t, err, store.ErrThrottled)
			assert.NotErrorIs(t, err, store.ErrNotFound)
			assert.Less(t, time.Since(start), 10*time.Second)
		})
	}
}

func TestSilentDatabaseIsUnavailableAtTheDeadline(t *testing.T) {
	release := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer silent.Close()
	defer close(release)
	st := dynamo.New(newClient(silent.URL), "mcp")
	for name, call := range drivertest.EveryCall(st, dynamo.Revision) {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			start := time.Now()
			err := call(ctx)
			require.ErrorIs(t, err, store.ErrUnavailable)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.Less(t, time.Since(start), 5*time.Second)
		})
	}

	st.SetTimeout(50 * time.Millisecond)
	_, err := st.Session(t.Context(), "key")
	require.ErrorIs(t, err, store.ErrUnavailable, "a call is bounded where its caller does not bound it")
}

func TestErrorsOfTheDatabaseAreClassified(t *testing.T) {
	for _, tt := range []struct {
		status   int
		code     string
		throttle bool
		says     string
	}{
		{400, "ProvisionedThroughputExceededException", true, ""},
		{400, "ThrottlingException", true, ""},
		{400, "RequestLimitExceeded", true, ""},
		{400, "ReplicatedWriteConflictException", true, ""},
		{500, "InternalServerError", false, ""},
		{503, "ServiceUnavailable", false, ""},
		{502, "", false, ""},
		{400, "ResourceNotFoundException", false, `there is no table "mcp"`},
		{400, "AccessDeniedException", false, `no permission to use table "mcp"`},
		{400, "UnrecognizedClientException", false, `table "mcp"`},
		{400, "ValidationException", false, `table "mcp"`},
	} {
		t.Run(fmt.Sprint(tt.status, " ", tt.code), func(t *testing.T) {
			var requests atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				_, _ = io.Copy(io.Discard, r.Body)
				w.Header().Set("Content-Type", "application/x-amz-json-1.0")
				w.WriteHeader(tt.status)
				if tt.code != "" {
					_, _ = fmt.Fprintf(w, `{"__type":"com.amazonaws.dynamodb.v20120810#%s","message":"m"}`, tt.code)
				}
			}))
			defer server.Close()
			st := dynamo.New(newClient(server.URL, fewerPauses), "mcp")
			for name, call := range drivertest.EveryCall(st, dynamo.Revision) {
				requests.Store(0)
				err := call(t.Context())
				require.ErrorIs(t, err, store.ErrUnavailable, name)
				assert.NotErrorIs(t, err, store.ErrNotFound, name)
				assert.Equal(t, tt.throttle, errors.Is(err, store.ErrThrottled), name)
				assert.ErrorContains(t, err, tt.says, name)
				assert.ErrorContains(t, err, "dynamo: ", name)
				assert.LessOrEqual(t, requests.Load(), int64(retry.DefaultMaxAttempts), name)
			}
		})
	}
}

func TestBatchThatIsNeverProcessedIsThrottled(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		keys := strings.TrimSuffix(strings.TrimPrefix(string(body), `{"RequestItems":`), `}`)
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		_, _ = fmt.Fprintf(w, `{"Responses":{},"UnprocessedKeys":%s}`, keys)
	}))
	defer server.Close()
	st := dynamo.New(newClient(server.URL), "mcp")
	_, err := st.TopicVersions(t.Context(), []string{"a", "b"})
	require.ErrorIs(t, err, store.ErrThrottled)
}

func TestMissingTableIsNotAMissingSession(t *testing.T) {
	client := newClient(emulator.DynamoDBForTest(t))
	st := dynamo.New(client, "no-such-table")
	for name, call := range drivertest.EveryCall(st, dynamo.Revision) {
		err := call(t.Context())
		require.ErrorIs(t, err, store.ErrUnavailable, name)
		assert.NotErrorIs(t, err, store.ErrNotFound, name)
		assert.ErrorContains(t, err, `there is no table "no-such-table"`, name)
	}
}

// The client repeats a write whose response was lost. The second attempt finds the first one's work and must not take it
// for somebody else's.
func TestWriteWhoseResponseWasLostSucceeds(t *testing.T) {
	client, table := newTable(t)
	lossy := &losesResponses{}
	endpoint := emulator.DynamoDBForTest(t)
	st := dynamo.New(newClient(endpoint, fewerPauses, func(o *dynamodb.Options) { o.HTTPClient = lossy }), table)
	direct := dynamo.New(client, table)
	ctx := t.Context()
	inAnHour := time.Now().Add(time.Hour)
	lost := func(call func() error) {
		t.Helper()
		lossy.next.Store(true)
		require.NoError(t, call())
		require.False(t, lossy.next.Load(), "a response was lost")
	}

	s := storetest.NewSession()
	lost(func() error { return st.CreateSession(ctx, s) })
	s.LogLevel = "alert"
	lost(func() error { return st.UpdateSession(ctx, s) })
	got, err := direct.Session(ctx, s.Key)
	require.NoError(t, err)
	assert.Equal(t, "alert", got.LogLevel)
	require.NoError(t, direct.UpdateSession(ctx, s), "the revision is the record's")
	lost(func() error { return st.DeleteSession(ctx, s.Key) })
	_, err = direct.Session(ctx, s.Key)
	require.ErrorIs(t, err, store.ErrNotFound)

	x := storetest.NewExchange()
	lost(func() error { return st.CreateExchange(ctx, x) })
	x.Owner = "me"
	lost(func() error { return st.UpdateExchange(ctx, x) })
	gotX, err := direct.Exchange(ctx, x.Key)
	require.NoError(t, err)
	assert.Equal(t, "me", gotX.Owner)
	require.NoError(t, direct.UpdateExchange(ctx, x), "the revision is the record's")

	for seq, size := range []int{10, 1 << 20} {
		e := store.Event{Seq: int64(seq + 1), Data: make([]byte, size)}
		lost(func() error { return st.AppendEvent(ctx, "x", e, inAnHour) })
		question := fmt.Sprint(seq)
		lost(func() error { return st.PutAnswer(ctx, "x", question, e.Data, inAnHour) })
		answer, err := direct.Answer(ctx, "x", question)
		require.NoError(t, err)
		assert.Len(t, answer, size)
	}
	events, err := direct.Events(ctx, "x", 0, 0)
	require.NoError(t, err)
	assert.Len(t, events, 2)
}

// losesResponses lets a request through and loses its response, when it is told to.
type losesResponses struct{ next atomic.Bool }

func (l *losesResponses) Do(req *http.Request) (*http.Response, error) {
	resp, err := transport.RoundTrip(req)
	if err == nil && l.next.CompareAndSwap(true, false) {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		return nil, io.ErrUnexpectedEOF
	}
	return resp, err
}
