// Command lambda serves the notes on AWS Lambda, with the notes and the sessions in the DynamoDB table that HYDRANT_TABLE
// names. template.yaml deploys it. With NOTES_AUTH=JWT an HTTP API in front must have checked an access token, and the
// notes belong to the token's subject.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/modelcontextprotocol/go-sdk/auth"

	"github.com/hydrant-mcp/hydrant/adapters/lambda"
	"github.com/hydrant-mcp/hydrant/examples/notes"
	notesdynamo "github.com/hydrant-mcp/hydrant/examples/notes/dynamo"
	"github.com/hydrant-mcp/hydrant/handler"
	"github.com/hydrant-mcp/hydrant/store/dynamo"
)

func main() {
	slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stderr, nil)))
	h, err := newHandler(context.Background(), os.Getenv)
	if err != nil {
		log.Fatal(err)
	}
	// The template's Function URL streams; its HTTP API cannot, which the adapter sees by the events.
	lambda.Start(h, lambda.WithStreaming())
}

func newHandler(ctx context.Context, getenv func(string) string) (http.Handler, error) {
	table := getenv("HYDRANT_TABLE")
	if table == "" {
		return nil, errors.New("HYDRANT_TABLE is not set: name the DynamoDB table")
	}
	keys, err := notes.ParseKeys(getenv("HYDRANT_KEYS"))
	if err != nil {
		return nil, err
	}
	opts := &handler.Options{Keys: keys}
	if getenv("NOTES_AUTH") == "JWT" {
		opts.Verifier = checkedByGateway
	}
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the AWS configuration: %w", err)
	}
	client := dynamodb.NewFromConfig(cfg)
	return handler.At("/mcp", notes.NewHandler(notesdynamo.New(client, table), dynamo.New(client, table), opts)), nil
}

// checkedByGateway is a verifier that does not look at the token: the JWT authorizer of the HTTP API has checked it, and
// the event has its claims. A request that came any other way has none, and is refused.
func checkedByGateway(ctx context.Context, _ string, _ *http.Request) (*auth.TokenInfo, error) {
	claims := lambda.RequestContext(ctx).Claims()
	if claims["sub"] == "" {
		return nil, fmt.Errorf("%w: no authorizer has checked it", auth.ErrInvalidToken)
	}
	return &auth.TokenInfo{
		UserID:     claims["sub"],
		Scopes:     strings.Fields(claims["scope"]),
		Expiration: time.Now().Add(time.Minute), // it has not expired: the authorizer has looked
		Extra:      map[string]any{"iss": claims["iss"]},
	}, nil
}
