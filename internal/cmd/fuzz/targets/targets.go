// Package targets finds the module's fuzz targets and runs them.
package targets

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// A Target is a fuzz function. `go test -fuzz` takes one of one package at a time.
type Target struct{ Dir, Name string }

var function = regexp.MustCompile(`(?m)^func (Fuzz\w*)\(\w+ \*testing\.F\)`)

// Find reads the test files: asking `go test -list` would build every package once more.
func Find(root string) ([]Target, error) {
	var all []Target
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || path != root && strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		for _, m := range function.FindAllStringSubmatch(string(text), -1) {
			all = append(all, Target{filepath.ToSlash(dir), m[1]})
		}
		return nil
	})
	return all, err
}

// A Result is what became of a target.
type Result struct {
	OK     bool
	Inputs int64  // how many were tried
	Output string // of a target that failed
}

var executed = regexp.MustCompile(`execs: (\d+)`)

// Run runs a target for a while (in the form of -fuzztime), from its seed corpus on. What it finds is written below
// testdata/fuzz, and is a test from then on.
func (t Target) Run(ctx context.Context, root, duration string) (Result, error) {
	args := []string{"test", "-run=^$", "-fuzz=^" + t.Name + "$", "-fuzztime=" + duration, "./" + t.Dir}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = root
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	var r Result
	if all := executed.FindAllSubmatch(out, -1); len(all) > 0 {
		r.Inputs, _ = strconv.ParseInt(string(all[len(all)-1][1]), 10, 64)
	}
	if err == nil {
		r.OK = true
		return r, nil
	}
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || ctx.Err() != nil {
		return r, errors.Join(err, ctx.Err())
	}
	r.Output = string(bytes.TrimSpace(out))
	return r, nil
}
