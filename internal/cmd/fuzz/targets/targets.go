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
	Inputs int64         // how many were tried
	CPU    time.Duration // that the trying took, of all its processes
	Output string        // of a target that failed
}

var executed = regexp.MustCompile(`execs: (\d+)`)

// Run runs a target for a while (in the form of -fuzztime), from its seed corpus on. What it finds is written below
// testdata/fuzz, and is a test from then on.
//
// It does what `go test -fuzz` does in one step: building apart from running, so that the time is that of the running.
func (t Target) Run(ctx context.Context, root, duration string) (r Result, err error) {
	dir, err := os.MkdirTemp("", "fuzz")
	if err != nil {
		return r, err
	}
	defer os.RemoveAll(dir)
	binary, only := filepath.Join(dir, "fuzz.test"), "^"+t.Name+"$"
	build, out, err := command(ctx, root, "go", "test", "-c", "-fuzz="+only, "-o="+binary, "./"+t.Dir)
	if build == nil {
		return r, err
	}
	if err != nil {
		r.Output = out
		return r, nil
	}
	cache, err := goCache(ctx)
	if err != nil {
		return r, err
	}
	ran, out, err := command(ctx, filepath.Join(root, t.Dir), binary, "-test.run=^$", "-test.fuzz="+only,
		"-test.fuzztime="+duration, "-test.fuzzcachedir="+filepath.Join(cache, "fuzz", module, t.Dir))
	if ran == nil {
		return r, err
	}
	r.OK, r.CPU, r.Output = err == nil, ran.UserTime()+ran.SystemTime(), out
	if all := executed.FindAllStringSubmatch(out, -1); len(all) > 0 {
		r.Inputs, err = strconv.ParseInt(all[len(all)-1][1], 10, 64)
		return r, err
	}
	return r, nil
}

const module = "github.com/hydrant-mcp/hydrant"

func goCache(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOCACHE").Output()
	return strings.TrimSpace(string(out)), err
}

// command runs a command to its end. Without a state it could not be run, or was told to stop; with a state and an error, it
// failed by itself.
func command(ctx context.Context, dir, name string, args ...string) (*os.ProcessState, string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed || ctx.Err() != nil {
		return nil, "", errors.Join(err, ctx.Err())
	}
	return cmd.ProcessState, string(bytes.TrimSpace(out)), err
}
