package lambda_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/hydrant-mcp/hydrant/adapters/lambda"
	"github.com/hydrant-mcp/hydrant/handler"
	"github.com/hydrant-mcp/hydrant/store/memory"
)

// A function whose Function URL has the invoke mode RESPONSE_STREAM. A real one keeps its sessions in store/dynamo.
func ExampleStart() {
	if os.Getenv("AWS_LAMBDA_RUNTIME_API") == "" {
		return // there is no Lambda around this example
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "notes", Version: "1.0.0"}, nil)
	mux := http.NewServeMux()
	mux.Handle("/mcp", handler.New(server, memory.New(), nil))
	lambda.Start(mux, lambda.WithStreaming())
	// Output:
}

// A handler, or a tool, can ask who is calling.
func ExampleRequestContext() {
	h := lambda.NewHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := lambda.RequestContext(r.Context())
		_, _ = fmt.Fprintf(w, "%s from %s", c.Claims()["sub"], c.SourceIP())
	}))
	answer, err := h.Invoke(context.Background(), []byte(`{"version":"2.0","rawPath":"/mcp","requestContext":{
		"http":{"method":"POST","sourceIp":"192.0.2.1"},
		"authorizer":{"jwt":{"claims":{"sub":"user-1"}}}}}`))
	fmt.Println(err, strings.Contains(string(answer), "user-1 from 192.0.2.1"))
	// Output: <nil> true
}
