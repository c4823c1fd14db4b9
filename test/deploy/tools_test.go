package deploy

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/internal/harness"
)

// limit bounds one run of a tool: a first `sam build` compiles everything.
const limit = 8 * time.Minute

// root is the repository.
func root(t *testing.T) string {
	t.Helper()
	dir, err := harness.Root()
	require.NoError(t, err)
	return dir
}

// pythonTool finds a command of deploy/requirements.txt: in deploy/.venv, or else on the PATH.
func pythonTool(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(root(t), "deploy", ".venv", "bin", name)
	if _, err := os.Stat(path); err == nil {
		return path
	}
	path, err := exec.LookPath(name)
	if err != nil {
		harness.Missing(t, name, "install Python 3.11 or later with venv and pip, then run `make test`")
	}
	return path
}

// run runs a command in the repository, and returns what it prints. Nothing of an account or of a setting of the user's
// changes what it does.
func run(t *testing.T, env []string, command ...string) (output string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir = root(t)
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(entry string) bool {
		return strings.HasPrefix(entry, "AWS_") || strings.HasPrefix(entry, "COMPOSE_")
	}), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}
