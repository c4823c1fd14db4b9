package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// A target is a fuzz function. `go test -fuzz` takes one of one package at a time.
type target struct{ dir, name string }

var fuzzFunction = regexp.MustCompile(`(?m)^func (Fuzz\w*)\(\w+ \*testing\.F\)`)

// fuzz runs every fuzz target for a while, from its seed corpus on. What it finds is written below testdata/fuzz, and is a
// test from then on.
func fuzz(ctx context.Context, root, duration string) (ok bool, err error) {
	targets, err := fuzzTargets(root)
	if err != nil {
		return false, err
	}
	ok = true
	for _, t := range targets {
		cmd := exec.CommandContext(ctx, "go", "test", "-run=^$", "-fuzz=^"+t.name+"$", "-fuzztime="+duration, "./"+t.dir)
		cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
		cmd.WaitDelay = 10 * time.Second
		out, err := cmd.CombinedOutput()
		switch exit := (*exec.ExitError)(nil); {
		case err == nil:
			fmt.Printf("ok  \t%s %s for %s\n", t.dir, t.name, duration)
		case errors.As(err, &exit):
			ok = false
			fmt.Printf("%sFAIL\t%s %s\n", out, t.dir, t.name)
		default:
			return false, err
		}
	}
	return ok, ctx.Err()
}

// fuzzTargets reads the test files: asking `go test -list` would build every package once more.
func fuzzTargets(root string) ([]target, error) {
	var targets []target
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
		for _, m := range fuzzFunction.FindAllStringSubmatch(string(text), -1) {
			targets = append(targets, target{filepath.ToSlash(dir), m[1]})
		}
		return nil
	})
	return targets, err
}
