// Command local serves the refunds on this machine; it pays nothing, it only logs. The endpoint is /mcp, health is
// /healthz.
//
// Sessions are in memory, or, where HYDRANT_TABLE names a table, in DynamoDB. With AWS_ENDPOINT_URL_DYNAMODB, which
// means an emulator, a missing table is created. ASK=suspend puts questions to clients of 2025-11-25 as a runtime does
// that cannot hold a call. HOST and PORT say where to listen, 127.0.0.1 and 8080 by default.
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
	"github.com/hydrant-mcp/hydrant/examples/approve"
	"github.com/hydrant-mcp/hydrant/handler"
	"github.com/hydrant-mcp/hydrant/store"
	"github.com/hydrant-mcp/hydrant/store/dynamo"
	"github.com/hydrant-mcp/hydrant/store/memory"
)

func main() {
	if err := run(context.Background(), os.Getenv, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "approve:", err)
		os.Exit(1)
	}
}

// run serves until SIGTERM or SIGINT, or until ctx ends.
func run(ctx context.Context, getenv func(string) string, stdout io.Writer) error {
	opts := &handler.Options{}
	switch ask := getenv("ASK"); ask {
	case "", "auto":
	case "suspend":
		opts.Ask = handler.AskSuspend
	default:
		return fmt.Errorf("ASK: %q is neither auto nor suspend", ask)
	}
	sessions, err := open(ctx, getenv("HYDRANT_TABLE"), getenv("AWS_ENDPOINT_URL_DYNAMODB") != "")
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(
		cmp.Or(getenv("HOST"), "127.0.0.1"), cmp.Or(getenv("PORT"), "8080")))
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(stdout, "approve: listening on http://%s/mcp\n", listener.Addr())
	// It serves any container that is told its port and its end, and a terminal as well.
	return cloudrun.Serve(ctx, approve.NewHandler(approve.LogOnly, sessions, opts),
		cloudrun.WithPath("/mcp"), cloudrun.WithListener(listener), cloudrun.WithRequestTimeout(0))
}

func open(ctx context.Context, table string, emulator bool) (store.Store, error) {
	if table == "" {
		return memory.New(), nil
	}
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the AWS configuration: %w", err)
	}
	client := dynamodb.NewFromConfig(cfg)
	if emulator {
		if err := dynamo.CreateTable(ctx, client, table); err != nil {
			return nil, err
		}
	}
	return dynamo.New(client, table), nil
}
