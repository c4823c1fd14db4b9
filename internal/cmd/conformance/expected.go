package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
)

// expectation is a line of expected.txt: what fails, in which pass, and why that is so.
type expectation struct {
	pass, scenario, check string // check "*" is the whole scenario
	reason                string
	line                  int
}

func (e expectation) matches(pass, scenario, check string) bool {
	return e.pass == pass && e.scenario == scenario && (e.check == "*" || e.check == check)
}

// readExpected reads lines of four fields: pass, scenario, check or "*", and the reason, which is the rest of the line.
// Empty lines and lines that begin with # are for people.
func readExpected(path string) ([]expectation, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return parseExpected(f, path)
}

func parseExpected(r io.Reader, path string) ([]expectation, error) {
	var all []expectation
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) < 4 {
			return nil, fmt.Errorf("%s:%d: want PASS SCENARIO CHECK REASON, with * for all checks", path, n)
		}
		e := expectation{pass: fields[0], scenario: fields[1], check: fields[2], line: n}
		e.reason = strings.Join(fields[3:], " ")
		for _, other := range all {
			if other.matches(e.pass, e.scenario, e.check) || e.matches(other.pass, other.scenario, other.check) {
				return nil, fmt.Errorf("%s:%d: line %d says the same", path, n, other.line)
			}
		}
		all = append(all, e)
	}
	return all, lines.Err()
}

// excused returns the expectation that a failed check falls under.
func excused(expected []expectation, pass, scenario, check string) (expectation, bool) {
	for _, e := range expected {
		if e.matches(pass, scenario, check) {
			return e, true
		}
	}
	return expectation{}, false
}

func printTable(w io.Writer, all []outcome, expected []expectation) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(t, "version\tscenarios\tpassed\tfailed\texpected to fail\twarned\t")
	for _, o := range all {
		known := 0
		for _, s := range o.scenarios {
			for _, c := range s.checks {
				if _, ok := excused(expected, o.name, s.name, c.ID); ok && c.Status == failure {
					known++
				}
			}
		}
		_, _ = fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\t\n", o.name, len(o.scenarios),
			o.count(success), o.count(failure), known, o.count(warning))
	}
	_ = t.Flush()
	_, _ = fmt.Fprintln(w)
}

// printVerdict names every check that failed or warned, and says whether the outcome is what expected.txt says.
func printVerdict(w io.Writer, all []outcome, expected []expectation) bool {
	ok := true
	complain := func(format string, args ...any) {
		ok = false
		_, _ = fmt.Fprintf(w, format+"\n", args...)
	}
	met := map[int]bool{}
	for _, o := range all {
		for _, s := range o.scenarios {
			for _, c := range s.checks {
				switch c.Status {
				case warning:
					_, _ = fmt.Fprintf(w, "WARNED    %s %s %s: %s\n", o.name, s.name, c.ID, oneLine(c.ErrorMessage))
				case failure:
					if e, known := excused(expected, o.name, s.name, c.ID); known {
						met[e.line] = true
						_, _ = fmt.Fprintf(w, "expected  %s %s %s: %s\n", o.name, s.name, c.ID, e.reason)
						continue
					}
					complain("FAILED    %s %s %s: %s", o.name, s.name, c.ID, oneLine(c.ErrorMessage))
				}
			}
		}
		if checks := o.count(success) + o.count(failure) + o.count(warning); checks < o.floor {
			complain("TOO FEW   %s: %d checks were made, at least %d were to be: something kept the suite from checking",
				o.name, checks, o.floor)
		}
	}
	for _, e := range expected {
		if !met[e.line] {
			complain("PASSED    %s %s %s: take line %d off test/conformance/expected.txt", e.pass, e.scenario, e.check, e.line)
		}
	}
	verdict := "The outcome is as expected."
	if !ok {
		verdict = "The outcome is not as expected."
	}
	_, _ = fmt.Fprintf(w, "\n%s\n", verdict)
	return ok
}

// oneLine keeps a message on a line of the report.
func oneLine(s string) string {
	const limit = 300
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > limit {
		s = s[:limit] + "…"
	}
	return s
}
