package streams

import (
	"os"
	"testing"
	"time"

	"github.com/hydrant-mcp/hydrant/internal/emulator"
)

func TestMain(m *testing.M) { os.Exit(emulator.Main(m)) }

const (
	legacy = "2025-11-25"
	modern = "2026-07-28"

	// clientLimit bounds what one client may take: a client that waits for what never comes must not take the whole run
	// with it.
	clientLimit = 2 * time.Minute
	pollEvery   = 10 * time.Millisecond
)
