package harness

import (
	"context"
	"testing"

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
