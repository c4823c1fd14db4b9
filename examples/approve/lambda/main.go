// Command lambda serves the refunds on AWS Lambda, with the sessions in the DynamoDB table that HYDRANT_TABLE names; it
// pays nothing, it only logs.
//
// It does not stream, whatever is in front of it: a call that asks ends with its question, and while a person thinks no
// function runs and nothing is paid for.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"os"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/hydrant-mcp/hydrant/adapters/lambda"
	"github.com/hydrant-mcp/hydrant/examples/approve"
	"github.com/hydrant-mcp/hydrant/handler"
	"github.com/hydrant-mcp/hydrant/store/dynamo"
)

func main() {
	slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stderr, nil)))
	h, err := newHandler(context.Background(), os.Getenv)
	if err != nil {
		log.Fatal(err)
	}
	lambda.Start(h)
}

func newHandler(ctx context.Context, getenv func(string) string) (http.Handler, error) {
	table := getenv("HYDRANT_TABLE")
	if table == "" {
		return nil, errors.New("HYDRANT_TABLE is not set: name the DynamoDB table")
	}
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the AWS configuration: %w", err)
	}
	sessions := dynamo.New(dynamodb.NewFromConfig(cfg), table)
	return handler.At("/mcp", approve.NewHandler(approve.LogOnly, sessions, &handler.Options{})), nil
}
