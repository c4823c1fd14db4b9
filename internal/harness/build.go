package harness

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

// builds holds one build for each way of building, so that a process builds the server once however many clusters it starts.
var builds = map[bool]func() (string, error){
	false: sync.OnceValues(func() (string, error) { return build(false) }),
	true:  sync.OnceValues(func() (string, error) { return build(true) }),
}

// Server returns the path of the server to run: the binary that HARNESS_SERVER names, or else examples/everything, built on
// the first call; with race, under the race detector.
func Server(race bool) (string, error) {
	if path := os.Getenv("HARNESS_SERVER"); path != "" {
		return filepath.Abs(path)
	}
	return builds[race]()
}

func build(race bool) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	bin := filepath.Join(root, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return "", err
	}
	name := "everything"
	args := []string{"build"}
	if race {
		name += "-race"
		args = append(args, "-race")
	}
	path := filepath.Join(bin, name)
	// Test binaries of several packages build at the same time, and a file that runs cannot be written: each builds a file
	// of its own and renames it.
	fresh := fmt.Sprintf("%s.%d", path, os.Getpid())
	defer os.Remove(fresh)
	cmd := exec.CommandContext(context.Background(), "go", append(args, "-o", fresh, "./examples/everything")...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("harness: go build ./examples/everything: %w\n%s", err, out)
	}
	if err := os.Rename(fresh, path); err != nil {
		return "", err
	}
	return path, nil
}
