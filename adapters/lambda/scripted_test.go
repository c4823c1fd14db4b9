package lambda

import (
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"os"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/store/dynamo"
)

// testTable names the DynamoDB table of the scripted function's MCP endpoint; without one there is no endpoint.
const testTable = "HYDRANT_TEST_TABLE"

func newTable(t *testing.T, endpoint string) string {
	t.Helper()
	table := "test-" + rand.Text()
	require.NoError(t, dynamo.CreateTable(t.Context(), newClient(t, endpoint), table))
	return table
}

// newClient has connections of its own, which end with the test.
func newClient(t *testing.T, endpoint string) *dynamodb.Client {
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return dynamoClient(endpoint, transport)
}

func dynamoClient(endpoint string, transport http.RoundTripper) *dynamodb.Client {
	return dynamodb.New(dynamodb.Options{
		Region:       "us-east-1",
		BaseEndpoint: aws.String(endpoint),
		Credentials:  credentials.NewStaticCredentialsProvider("local", "local", ""),
		HTTPClient:   &http.Client{Transport: transport},
	})
}

// scriptedFunction is what this test binary is when it is started as a function: it does, with streaming, what a path
// says. A "gate" is a URL that answers when the test wants the function to go on.
func scriptedFunction() *function {
	mux := http.NewServeMux()
	f := newFunction(mux, []Option{WithStreaming()})
	wait := func(r *http.Request) {
		if res, err := http.Get(r.URL.Query().Get("gate")); err == nil { //nolint:noctx // deaf on purpose
			_ = res.Body.Close()
		}
	}
	flush := func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }
	mux.HandleFunc("/chunks", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 3 {
			_, _ = fmt.Fprintf(w, "data: %d\n\n", i)
			flush(w)
			wait(r)
		}
	})
	if table := os.Getenv(testTable); table != "" {
		mux.Handle("/mcp", newMCP(dynamo.New(dynamoClient(os.Getenv("AWS_ENDPOINT_URL_DYNAMODB"), nil), table)))
	}
	mux.HandleFunc("/panic", func(http.ResponseWriter, *http.Request) { panic("secret") })
	mux.HandleFunc("/panic-late", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "data: 0\n\n")
		flush(w)
		panic("secret")
	})
	mux.HandleFunc("/until-the-context-ends", func(w http.ResponseWriter, r *http.Request) {
		flush(w)
		<-r.Context().Done()
		_, _ = io.WriteString(w, "retry: 1000\n\n")
	})
	mux.HandleFunc("/deaf", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "data: 0\n\n")
		wait(r)
	})
	mux.HandleFunc("/until-it-drains", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "data: 0\n\n")
		flush(w)
		<-f.drain.begun
		_, _ = io.WriteString(w, "retry: 1000\n\n")
	})
	return f
}
