package dynamo_test

import (
	"context"
	"crypto/rand"
	"net/http"
	"os"
	"testing"

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
