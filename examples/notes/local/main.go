// Command local serves the notes on this machine. The endpoint is /mcp, health is /healthz.
//
// The notes are in memory, or, where HYDRANT_TABLE names a table, in DynamoDB. With AWS_ENDPOINT_URL_DYNAMODB, which
// means an emulator, a missing table is created. HOST and PORT say where to listen, 127.0.0.1 and 8080 by default.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/hydrant-mcp/hydrant/examples/notes"
	notesdynamo "github.com/hydrant-mcp/hydrant/examples/notes/dynamo"
	notesmemory "github.com/hydrant-mcp/hydrant/examples/notes/memory"
	"github.com/hydrant-mcp/hydrant/handler"
	"github.com/hydrant-mcp/hydrant/store"
	"github.com/hydrant-mcp/hydrant/store/dynamo"
	"github.com/hydrant-mcp/hydrant/store/memory"
)

// grace is how long calls may go on after a signal to stop.
const grace = 5 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Getenv, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "notes:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, getenv func(string) string, stdout io.Writer) error {
	sessions, storage, err := open(ctx, getenv("HYDRANT_TABLE"), getenv("AWS_ENDPOINT_URL_DYNAMODB") != "")
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/mcp", handler.New(notes.NewServer(storage), sessions, &handler.Options{Name: "notes"}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })

	listener, err := net.Listen("tcp", net.JoinHostPort(
		cmp.Or(getenv("HOST"), "127.0.0.1"), cmp.Or(getenv("PORT"), "8080")))
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(stdout, "notes: listening on http://%s/mcp\n", listener.Addr())
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	if err := server.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return server.Close()
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
