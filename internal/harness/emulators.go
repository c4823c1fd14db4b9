package harness

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/hydrant-mcp/hydrant/internal/emulator"
)

// Emulator starts the emulator of a store, and returns where it listens and what stops it. The memory store needs none.
func Emulator(ctx context.Context, store Store) (endpoint string, stop func(), err error) {
	switch store {
	case DynamoDB:
		return emulator.DynamoDB(ctx)
	case Firestore:
		return emulator.Firestore(ctx)
	default:
		return "", func() {}, nil
	}
}

func emulatorForTest(t testing.TB, store Store) string {
	t.Helper()
	switch store {
	case DynamoDB:
		return emulator.DynamoDBForTest(t)
	case Firestore:
		return emulator.FirestoreForTest(t)
	default:
		return ""
	}
}

// StoreReachable says why nobody listens at an emulator's endpoint any more, nil when somebody does. What a server answers
// while its store is gone says nothing about the server.
func StoreReachable(endpoint string) error {
	if endpoint == "" {
		return nil // the memory store
	}
	address := endpoint
	if u, err := url.Parse(endpoint); err == nil && u.Host != "" {
		address = u.Host
	}
	conn, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		return fmt.Errorf("harness: the store's emulator has ended: %w", err)
	}
	return conn.Close()
}
