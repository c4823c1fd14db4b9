package casecheck

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/internal/emulator"
	"github.com/hydrant-mcp/hydrant/internal/harness"
)

func TestMain(m *testing.M) { os.Exit(emulator.Main(m)) }

// What the processes are configured with, so that the rows about it count. The last host is one that the checker uses as a
// platform's.
const (
	origin = "https://app.example"
	host   = "allowed.example"
	hosts  = host + ",127.0.0.1,svc-abc-uc.a.run.app"
)

// checkLimit bounds one run of the checker, which bounds each of its rows.
const checkLimit = 5 * time.Minute

// outcome is what the checker writes of a row.
type outcome struct {
	Row      int
	Category string
	Status   string // pass, fail, or needs: something that it was not given
	Seen     string
}

func TestExternalCheckerPassesItsRows(t *testing.T) {
	checker := build(t)
	for _, store := range []harness.Store{harness.DynamoDB, harness.Firestore} {
		t.Run(string(store), func(t *testing.T) {
			cluster := harness.StartForTest(t, harness.Config{Store: store, Env: map[string]string{
				"HYDRANT_ORIGINS": origin, "HYDRANT_HOSTS": hosts,
			}})
			for name, args := range map[string][]string{
				"each row as it says":               nil,
				"every request to the next process": {"-hop"},
			} {
				t.Run(name, func(t *testing.T) {
					outcomes := check(t, checker, cluster, args...)
					passed := 0
					for _, o := range outcomes {
						switch o.Status {
						case "pass":
							passed++
						case "fail":
							assert.Fail(t, fmt.Sprintf("row %d (%s)", o.Row, o.Category), o.Seen)
						}
					}
					assert.Positive(t, passed)
					t.Logf("%d rows passed", passed)
				})
			}
		})
	}
}

// build builds the checker in the folder that CASECHECK_DIR names, or in the one that may lie beside the repository.
func build(t *testing.T) string {
	t.Helper()
	root, err := harness.Root()
	require.NoError(t, err)
	dir := os.Getenv("CASECHECK_DIR")
	if dir == "" {
		dir = filepath.Join(root, "..", "shared", "casecheck")
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
		t.Skip("there is no external checker: CASECHECK_DIR may name the folder of one")
	}
	path := filepath.Join(t.TempDir(), "casecheck")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", path, ".")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return path
}

// check runs the checker and returns what it says of each row.
func check(t *testing.T, checker string, cluster *harness.Cluster, args ...string) []outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), checkLimit)
	defer cancel()
	report := filepath.Join(t.TempDir(), "report.json")
	cmd := exec.CommandContext(ctx, checker, append([]string{
		"-urls", strings.Join(cluster.URLs(), ","), "-tally", cluster.Tally, "-json", report,
		"-origin", origin, "-allowed-host", host,
	}, args...)...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	// It exits with 1 when rows fail, which the report says too.
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		require.NoError(t, err, "%s", out)
	}
	text, err := os.ReadFile(report)
	require.NoError(t, err, "%s", out)
	var all struct{ Rows []outcome }
	require.NoError(t, json.Unmarshal(text, &all))
	return all.Rows
}
