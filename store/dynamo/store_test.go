package dynamo_test

import (
	"context"
	"crypto/rand"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hydrant-mcp/hydrant/internal/emulator"
	"github.com/hydrant-mcp/hydrant/store"
	"github.com/hydrant-mcp/hydrant/store/dynamo"
	"github.com/hydrant-mcp/hydrant/store/storetest"
)

// transport is the tests' own, so that its idle connections can be closed before goroutines are counted.
var transport = &http.Transport{MaxIdleConnsPerHost: 32}

func TestMain(m *testing.M) {
	code := emulator.Main(m)
	transport.CloseIdleConnections()
	if err := goleak.Find(); code == 0 && err != nil {
		_, _ = os.Stderr.WriteString(err.Error() + "\n")
		code = 1
	}
	os.Exit(code)
}

func TestContract(t *testing.T) {
	st := open(t)
	storetest.Run(t, func(*testing.T) store.Store { return st })
}

func TestCreateTableTwiceIsOnce(t *testing.T) {
	client, table := newTable(t)
	require.NoError(t, dynamo.CreateTable(t.Context(), client, table))
	s := storetest.NewSession()
	require.NoError(t, dynamo.New(client, table).CreateSession(t.Context(), s))
	require.NoError(t, dynamo.CreateTable(t.Context(), client, table))
	_, err := dynamo.New(client, table).Session(t.Context(), s.Key)
	require.NoError(t, err)
}

func open(t *testing.T) *dynamo.Store {
	t.Helper()
	client, table := newTable(t)
	return dynamo.New(client, table)
}

// newTable returns an emulator's client and a table of the test's own.
func newTable(t *testing.T) (*dynamodb.Client, string) {
	t.Helper()
	client := newClient(emulator.DynamoDBForTest(t))
	table := "test-" + rand.Text()
	require.NoError(t, dynamo.CreateTable(t.Context(), client, table))
	t.Cleanup(func() {
		_, _ = client.DeleteTable(context.Background(), &dynamodb.DeleteTableInput{TableName: &table})
	})
	return client, table
}

func newClient(endpoint string, change ...func(*dynamodb.Options)) *dynamodb.Client {
	return dynamodb.New(dynamodb.Options{
		Region:       "eu-west-1",
		BaseEndpoint: aws.String(endpoint),
		Credentials:  credentials.NewStaticCredentialsProvider("id", "secret", ""),
		HTTPClient:   &http.Client{Transport: transport},
	}, change...)
}

// closedPort returns an address that nobody listens on.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

// everyCall makes every call of a store, with arguments that are in order.
func everyCall(st store.Store) map[string]func(context.Context) error {
	s, known := storetest.NewSession(), storetest.NewSession()
	known.Revision = dynamo.Revision(known.Expires)
	x, knownX := storetest.NewExchange(), storetest.NewExchange()
	knownX.Revision = dynamo.Revision(knownX.Expires)
	inAnHour := time.Now().Add(time.Hour)
	return map[string]func(context.Context) error{
		"CreateSession":  func(ctx context.Context) error { return st.CreateSession(ctx, s) },
		"Session":        func(ctx context.Context) error { _, err := st.Session(ctx, s.Key); return err },
		"UpdateSession":  func(ctx context.Context) error { return st.UpdateSession(ctx, known) },
		"DeleteSession":  func(ctx context.Context) error { return st.DeleteSession(ctx, s.Key) },
		"CreateExchange": func(ctx context.Context) error { return st.CreateExchange(ctx, x) },
		"Exchange":       func(ctx context.Context) error { _, err := st.Exchange(ctx, x.Key); return err },
		"UpdateExchange": func(ctx context.Context) error { return st.UpdateExchange(ctx, knownX) },
		"AppendEvent": func(ctx context.Context) error {
			return st.AppendEvent(ctx, "x", store.Event{Seq: 1}, inAnHour)
		},
		"AppendEvent, large": func(ctx context.Context) error {
			return st.AppendEvent(ctx, "x", store.Event{Seq: 1, Data: make([]byte, 1<<20)}, inAnHour)
		},
		"Events":        func(ctx context.Context) error { _, err := st.Events(ctx, "x", 0, 0); return err },
		"PutAnswer":     func(ctx context.Context) error { return st.PutAnswer(ctx, "x", "q", nil, inAnHour) },
		"Answer":        func(ctx context.Context) error { _, err := st.Answer(ctx, "x", "q"); return err },
		"RaiseTopic":    func(ctx context.Context) error { return st.RaiseTopic(ctx, "t") },
		"TopicVersions": func(ctx context.Context) error { _, err := st.TopicVersions(ctx, []string{"t"}); return err },
	}
}
