package config

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	gcfirestore "cloud.google.com/go/firestore"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go/logging"

	"github.com/hydrant-mcp/hydrant/examples/everything/server"
	"github.com/hydrant-mcp/hydrant/handler"
	"github.com/hydrant-mcp/hydrant/store"
	"github.com/hydrant-mcp/hydrant/store/dynamo"
	"github.com/hydrant-mcp/hydrant/store/firestore"
	"github.com/hydrant-mcp/hydrant/store/memory"
)

// openTimeout bounds what a store needs to open: credentials, and on an emulator the table.
const openTimeout = 20 * time.Second

// OpenStore opens the store that is configured. Call shut when it is no longer needed.
func (c *Config) OpenStore(ctx context.Context) (st store.Store, shut func() error, err error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	none := func() error { return nil }
	defer withFaults(&st, &err)
	switch c.Store {
	case DynamoDB:
		st, err := c.openDynamoDB(ctx)
		return st, none, err
	case Firestore:
		return c.openFirestore(ctx)
	default:
		return memory.New(), none, nil
	}
}

func (c *Config) openDynamoDB(ctx context.Context) (store.Store, error) {
	// The SDK's own log would add lines to the one that says why a process does not start.
	aws, err := awsconfig.LoadDefaultConfig(ctx, awsconfig.WithLogger(logging.Nop{}))
	if err != nil {
		return nil, fmt.Errorf("reading the AWS configuration: %w", err)
	}
	if aws.Region == "" {
		return nil, errors.New("HYDRANT_STORE is dynamodb and there is no region: set AWS_REGION")
	}
	// Without this, a process without credentials would start, and refuse every message later.
	if _, err := aws.Credentials.Retrieve(ctx); err != nil {
		return nil, fmt.Errorf("HYDRANT_STORE is dynamodb and there are no AWS credentials: %w", err)
	}
	client := dynamodb.NewFromConfig(aws)
	if c.CreateTable {
		if err := dynamo.CreateTable(ctx, client, c.Table); err != nil {
			return nil, fmt.Errorf("creating the table %s on the emulator: %w", c.Table, err)
		}
	}
	return dynamo.New(client, c.Table), nil
}

func (c *Config) openFirestore(ctx context.Context) (store.Store, func() error, error) {
	project := c.Project
	if project == "" {
		project = gcfirestore.DetectProjectID
	}
	client, err := gcfirestore.NewClient(ctx, project)
	if err != nil {
		return nil, nil, fmt.Errorf("HYDRANT_STORE is firestore: %w", err)
	}
	st := firestore.New(client, c.Table)
	return st, func() error { return errors.Join(st.Close(), client.Close()) }, nil
}

// Path is that of the MCP endpoint.
const Path = "/mcp"

// Handler builds all that the example serves, over a store: the MCP endpoint and, where tokens are needed, what tells
// clients where to get them. baseURL finds out what clients have before [Path] where HYDRANT_PUBLIC_URL does not say
// it; nil takes the connection's. The error is that of a configuration that cannot be used.
func (c *Config) Handler(
	ctx context.Context, st store.Store, logger *slog.Logger, baseURL func(*http.Request) string,
) (http.Handler, error) {
	if c.Store != Memory && len(c.Keys) == 0 {
		logger.Warn("HYDRANT_KEYS is not set: what passes through clients is not protected by a secret of yours",
			"store", c.Store)
	}
	s := server.New(&server.Options{Keys: c.Keys, Tally: c.Tally})
	opts := &handler.Options{
		Logger:         logger,
		Name:           server.Name,
		SessionTTL:     c.SessionTTL,
		Legacy:         c.Legacy,
		Ask:            c.Ask,
		AllowedOrigins: c.Origins,
		AllowedHosts:   c.Hosts,
		Keys:           c.Keys,
		// The conformance suite sends answers to the first round of some tools as its first request.
		AnswersWithoutState: true,
		LateNotifications:   true,
	}
	if c.Auth == nil {
		return handler.At(Path, handler.New(s, st, opts)), nil
	}
	resource, err := c.require(ctx, s, opts, logger, baseURL)
	if err != nil {
		return nil, err
	}
	return resource.Wrap(handler.At(Path, handler.New(s, st, opts))), nil
}
