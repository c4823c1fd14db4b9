package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// event is a line of `go test -json`: see `go doc test2json`.
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
}

// results are what `go test -json` said, reduced to what people need.
type results struct {
	ok             bool
	passed, failed int
	testsFailed    map[string]bool // by package
	// skipped has the tests that were skipped, by reason.
	skipped map[string][]string
	// output is what a test has printed until it ends.
	output map[test][]string
}

type test struct{ pkg, name string }

func newResults() *results {
	return &results{
		ok: true, testsFailed: map[string]bool{}, skipped: map[string][]string{}, output: map[test][]string{},
	}
}

// read prints what `go test` would print, as it happens: a line per package, and what failing tests said.
func (r *results) read(events io.Reader, w io.Writer) error {
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil {
				e = event{Action: "output", Output: string(line)} // go itself says something
			}
			r.take(e, w)
		}
		switch err {
		case nil:
		case io.EOF:
			return nil
		default:
			return err
		}
	}
}

func (r *results) take(e event, w io.Writer) {
	t := test{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		_, _ = io.WriteString(w, e.Output)
	case "output":
		switch {
		case e.Test != "":
			r.output[t] = append(r.output[t], e.Output)
		case e.Output != "PASS\n" && !strings.Contains(e.Output, "[no test files]"):
			_, _ = io.WriteString(w, e.Output)
		}
	case "pass":
		if e.Test != "" {
			r.passed++
		}
		delete(r.output, t)
	case "skip":
		if e.Test != "" {
			reason := reasonOf(r.output[t])
			r.skipped[reason] = append(r.skipped[reason], e.Package+" "+e.Test)
		}
		delete(r.output, t)
	case "fail":
		r.ok = false
		if e.Test != "" {
			r.failed++
			r.testsFailed[e.Package] = true
			r.flush(t, w)
			return
		}
		if !r.testsFailed[e.Package] {
			r.failed++ // it did not compile, or crashed, or TestMain was not content
		}
		// A package that fails with tests under way has crashed or run out of time in them.
		for other := range r.output {
			if other.pkg == e.Package {
				r.flush(other, w)
			}
		}
	}
}

func (r *results) flush(t test, w io.Writer) {
	for _, line := range r.output[t] {
		if !strings.HasPrefix(line, "=== ") {
			_, _ = io.WriteString(w, line)
		}
	}
	delete(r.output, t)
}

// reasonOf finds what a test said when it skipped itself, without the place in the source.
func reasonOf(output []string) string {
	var said []string
	for _, line := range output {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- ") {
			continue
		}
		if file, rest, found := strings.Cut(line, ": "); found && strings.Contains(file, ".go:") {
			line = rest
		}
		said = append(said, line)
	}
	if len(said) == 0 {
		return "no reason given"
	}
	return strings.Join(said, " ")
}

func (r *results) print(w io.Writer) {
	skips := 0
	for _, reason := range slices.Sorted(maps.Keys(r.skipped)) {
		tests := r.skipped[reason]
		skips += len(tests)
		_, _ = fmt.Fprintf(w, "\nskipped: %s\n", reason)
		for _, t := range tests {
			_, _ = fmt.Fprintf(w, "    %s\n", t)
		}
	}
	_, _ = fmt.Fprintf(w, "\n%d passed, %d failed, %d skipped\n", r.passed, r.failed, skips)
}
