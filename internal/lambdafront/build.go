package lambdafront

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/hydrant-mcp/hydrant/internal/harness"
)

// Build builds a main, such as "./examples/everything/lambda", for this machine as it is built for Lambda, and returns the
// path of the binary, in bin/. With race, it is built with the race detector.
func Build(ctx context.Context, main string, race bool) (string, error) {
	root, err := harness.Root()
	if err != nil {
		return "", err
	}
	bin := filepath.Join(root, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return "", err
	}
	name := strings.ReplaceAll(strings.TrimPrefix(main, "./"), "/", "-")
	args := []string{"build", "-tags", "lambda.norpc", "-trimpath", "-ldflags", "-s -w"}
	env := append(os.Environ(), "CGO_ENABLED=0")
	if race {
		name += "-race"
		args, env = append(args, "-race"), append(os.Environ(), "CGO_ENABLED=1")
	}
	path := filepath.Join(bin, name)
	// A file that runs cannot be written, and several test binaries may build at the same time.
	fresh := fmt.Sprintf("%s.%d", path, os.Getpid())
	defer os.Remove(fresh)
	cmd := exec.CommandContext(ctx, "go", append(args, "-o", fresh, main)...)
	cmd.Dir, cmd.Env = root, env
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("lambdafront: go build %s: %w\n%s", main, err, out)
	}
	return path, os.Rename(fresh, path)
}
