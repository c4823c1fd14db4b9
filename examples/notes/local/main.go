// Command local serves the notes on this machine. The endpoint is /mcp, health is /healthz.
//
// The notes are in memory, or, where HYDRANT_TABLE names a table, in DynamoDB. With AWS_ENDPOINT_URL_DYNAMODB, which
// means an emulator, a missing table is created. HOST and PORT say where to listen, 127.0.0.1 and 8080 by default.
package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/hydrant-mcp/hydrant/adapters/cloudrun"
	"github.com/hydrant-mcp/hydrant/examples/notes"
	notesdynamo "github.com/hydrant-mcp/hydrant/examples/notes/dynamo"
	notesmemory "github.com/hydrant-mcp/hydrant/examples/notes/memory"
	"github.com/hydrant-mcp/hydrant/handler"
	"github.com/hydrant-mcp/hydrant/store"
	"github.com/hydrant-mcp/hydrant/store/dynamo"
	"github.com/hydrant-mcp/hydrant/store/memory"
)

func main() {
	if err := run(context.Background(), os.Getenv, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "notes:", err)
		os.Exit(1)
	}
}

// run serves until SIGTERM or SIGINT, or until ctx ends.
func run(ctx context.Context, getenv func(string) string, stdout io.Writer) error {
	keys, err := notes.ParseKeys(getenv("HYDRANT_KEYS"))
	if err != nil {
		return err
	}
	sessions, storage, err := open(ctx, getenv("HYDRANT_TABLE"), getenv("AWS_ENDPOINT_URL_DYNAMODB") != "")
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(
		cmp.Or(getenv("HOST"), "127.0.0.1"), cmp.Or(getenv("PORT"), "8080")))
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(stdout, "notes: listening on http://%s/mcp\n", listener.Addr())
	h := notes.NewHandler(storage, sessions, &handler.Options{Keys: keys})
	// It serves any container that is told its port and its end, and a terminal as well.
	return cloudrun.Serve(ctx, h,
		cloudrun.WithPath("/mcp"), cloudrun.WithListener(listener), cloudrun.WithRequestTimeout(0))
}

// open opens the database of both the sessions and the notes.
func open(ctx context.Context, table string, emulator bool) (store.Store, notes.Storage, error) {
	if table == "" {
		return memory.New(), &notesmemory.Storage{}, nil
	}
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the AWS configuration: %w", err)
	}
	client := dynamodb.NewFromConfig(cfg)
	if emulator {
		if err := dynamo.CreateTable(ctx, client, table); err != nil {
			return nil, nil, err
		}
	}
	return dynamo.New(client, table), notesdynamo.New(client, table), nil
}
