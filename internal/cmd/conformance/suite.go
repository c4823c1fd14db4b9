package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A pass is one run of a suite.
type pass struct {
	name    string // as the table and expected.txt say
	npm     string // the npm package
	version string // --spec-version; empty for all that the suite has
	// extensions runs the scenarios of protocol extensions, which --suite all leaves out when it is given a version.
	extensions bool
	// floor is the least number of checks: fewer means that something kept the suite from checking. It is about two
	// thirds of what a server that passes everything gets, because a scenario that fails early makes fewer checks.
	floor int
}

var runs = []pass{
	{name: "2025-11-25", npm: "@modelcontextprotocol/conformance", version: "2025-11-25", floor: 60},
	{name: "2026-07-28", npm: "@modelcontextprotocol/conformance", version: "2026-07-28", floor: 110},
	{name: "extensions", npm: "@modelcontextprotocol/conformance", extensions: true, floor: 30},
	{name: "0.1.16", npm: "conformance-legacy", floor: 32},
}

// passLimit bounds one run of a suite. Each scenario has a limit of its own of 30 s; a run that passes takes some 5 s.
const passLimit = 10 * time.Minute

// A suite runs passes against one URL.
type suite struct {
	node, dir, url, out string
}

// An outcome is what one pass saw.
type outcome struct {
	pass
	scenarios []scenario // in the suite's order
}

type scenario struct {
	name   string
	checks []check
}

// check is what the suite writes about each thing that it checked.
type check struct {
	ID           string `json:"id"`
	Name         string `json:"name"`
	Status       string `json:"status"`
	ErrorMessage string `json:"errorMessage"`
}

const (
	success = "SUCCESS"
	failure = "FAILURE"
	warning = "WARNING"
)

func (s suite) run(ctx context.Context, p pass) (outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, passLimit)
	defer cancel()
	names, err := s.scenarios(ctx, p)
	if err != nil {
		return outcome{}, err
	}
	out := filepath.Join(s.out, p.name)
	if p.extensions {
		for _, name := range names {
			if err := s.command(ctx, p, out, "--scenario", name); err != nil {
				return outcome{}, err
			}
		}
	} else {
		args := []string{"--suite", "all"}
		if p.version != "" {
			args = append(args, "--spec-version", p.version)
		}
		if err := s.command(ctx, p, out, args...); err != nil {
			return outcome{}, err
		}
	}
	return collect(p, out, names)
}

// command runs the suite's server command. Its exit code says whether checks failed, which checks.json says better: it is
// an error only when the command could not be run or was ended.
func (s suite) command(ctx context.Context, p pass, out string, args ...string) error {
	cmd := exec.CommandContext(ctx, s.node, append([]string{s.script(p), "server", "--url", s.url, "-o", out}, args...)...)
	cmd.WaitDelay = time.Second
	log, err := os.OpenFile(filepath.Join(s.out, p.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.Exited() {
		return nil
	}
	return err
}

func (s suite) script(p pass) string {
	return filepath.Join(s.dir, "node_modules", filepath.FromSlash(p.npm), "dist", "index.js")
}

// listed is a line of the suite's list: "  - server-initialize [2025-06-18,2025-11-25]".
var listed = regexp.MustCompile(`(?m)^\s+- (\S+) \[(\S+)\]`)

// scenarios asks the suite which scenarios a pass consists of, so that one that was left out shows.
func (s suite) scenarios(ctx context.Context, p pass) ([]string, error) {
	text, err := exec.CommandContext(ctx, s.node, s.script(p), "list", "--server").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("list of scenarios: %w\n%s", err, text)
	}
	var names []string
	for _, m := range listed.FindAllStringSubmatch(string(text), -1) {
		versions := strings.Split(m[2], ",")
		extension := slices.Contains(versions, "extension")
		switch {
		case p.extensions != extension:
		case p.extensions, p.version == "", slices.Contains(versions, p.version):
			names = append(names, m[1])
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("the suite lists no scenarios:\n%s", text)
	}
	return names, nil
}

// collect reads the folders that the suite has written, server-NAME-TIME/checks.json, for the scenarios that were to run.
func collect(p pass, out string, names []string) (outcome, error) {
	o := outcome{pass: p}
	folders, err := os.ReadDir(out)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return o, err
	}
	results := map[string][]check{}
	for _, folder := range folders {
		m := resultFolder.FindStringSubmatch(folder.Name())
		if m == nil {
			return o, fmt.Errorf("the suite wrote a folder that is not understood: %s", folder.Name())
		}
		text, err := os.ReadFile(filepath.Join(out, folder.Name(), "checks.json"))
		if err != nil {
			return o, err
		}
		var checks []check
		if err := json.Unmarshal(text, &checks); err != nil {
			return o, fmt.Errorf("%s: %w", folder.Name(), err)
		}
		results[m[1]] = append(results[m[1]], checks...)
	}
	for _, name := range names {
		checks, ran := results[name]
		if !ran || len(checks) == 0 {
			checks = []check{{ID: "did-not-run", Status: failure, ErrorMessage: "the suite wrote no result"}}
		}
		o.scenarios = append(o.scenarios, scenario{name: name, checks: checks})
		delete(results, name)
	}
	for name := range results {
		return o, fmt.Errorf("the suite ran a scenario that it does not list: %s", name)
	}
	return o, nil
}

var resultFolder = regexp.MustCompile(`^server-(.+)-\d{4}-\d{2}-\d{2}T[\d-]+Z$`)

// count returns how many checks have a status.
func (o outcome) count(status string) int {
	n := 0
	for _, s := range o.scenarios {
		for _, c := range s.checks {
			if c.Status == status {
				n++
			}
		}
	}
	return n
}
