package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func one(p pass, name string, checks ...check) []outcome {
	return []outcome{{pass: p, scenarios: []scenario{scenarioOf(name, checks...)}}}
}

func scenarioOf(name string, checks ...check) scenario { return scenario{name: name, checks: checks} }

func TestListCanOnlyShrink(t *testing.T) {
	expected, err := parseExpected(strings.NewReader(`
# what is missing
V  listed   *      the whole scenario is for later
V  partly   check  only this check is
`), "expected.txt")
	require.NoError(t, err)
	fails, passes := check{ID: "check", Status: failure, ErrorMessage: "a\nb"}, check{ID: "check", Status: success}
	other := check{ID: "other", Status: failure}
	for name, c := range map[string]struct {
		scenarios []scenario
		ok        bool
		says      string
	}{
		"as listed":                  {[]scenario{scenarioOf("listed", other, passes), scenarioOf("partly", fails)}, true, "as expected"},
		"a listed scenario passes":   {[]scenario{scenarioOf("listed", passes), scenarioOf("partly", fails)}, false, "take line 3 off"},
		"a listed check passes":      {[]scenario{scenarioOf("listed", fails), scenarioOf("partly", passes)}, false, "take line 4 off"},
		"another check fails too":    {[]scenario{scenarioOf("listed", fails), scenarioOf("partly", fails, other)}, false, "FAILED    V partly other"},
		"another scenario fails too": {[]scenario{scenarioOf("listed", fails), scenarioOf("partly", fails), scenarioOf("new", fails)}, false, "FAILED    V new check: a b"},
		"a warning does not count":   {[]scenario{scenarioOf("listed", fails), scenarioOf("partly", fails), scenarioOf("new", check{ID: "w", Status: warning})}, true, "WARNED    V new w"},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			ok := printVerdict(&out, []outcome{{pass: pass{name: "V"}, scenarios: c.scenarios}}, expected)
			assert.Equal(t, c.ok, ok)
			assert.Contains(t, out.String(), c.says)
		})
	}
}

func TestTooFewChecksFail(t *testing.T) {
	all := one(pass{name: "V", floor: 2}, "only", check{ID: "a", Status: success}, check{ID: "b", Status: "SKIPPED"})
	var out strings.Builder
	assert.False(t, printVerdict(&out, all, nil))
	assert.Contains(t, out.String(), "TOO FEW   V: 1 checks")
}

func TestScenarioWithoutResultFails(t *testing.T) {
	out := t.TempDir()
	write := func(folder, checks string) {
		require.NoError(t, os.MkdirAll(filepath.Join(out, folder), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(out, folder, "checks.json"), []byte(checks), 0o644))
	}
	write("server-tools-list-2026-11-30T15-39-50-300Z", `[{"id":"a","status":"SUCCESS"}]`)
	write("server-json-schema-2020-12-2026-11-30T15-39-50-300Z", `[]`)
	o, err := collect(pass{name: "V"}, out, []string{"tools-list", "json-schema-2020-12", "ping"})
	require.NoError(t, err)
	assert.Equal(t, 1, o.count(success))
	assert.Equal(t, 2, o.count(failure), "one made no check, one did not run")

	_, err = collect(pass{}, out, []string{"tools-list"})
	require.ErrorContains(t, err, "json-schema-2020-12")
	o, err = collect(pass{}, filepath.Join(out, "nothing"), []string{"ping"})
	require.NoError(t, err)
	assert.Equal(t, 1, o.count(failure))
}

func TestExpectedFileIsRead(t *testing.T) {
	_, err := parseExpected(strings.NewReader("V scenario check\n"), "f")
	require.ErrorContains(t, err, "f:1:")
	_, err = parseExpected(strings.NewReader("V s * why\nV s check why\n"), "f")
	require.ErrorContains(t, err, "line 1 says the same")
	_, err = readExpected(filepath.Join("..", "..", "..", "test", "conformance", "expected.txt"))
	require.NoError(t, err)
}

func TestTableCountsPerVersion(t *testing.T) {
	all := one(pass{name: "V"}, "s", check{ID: "a", Status: success}, check{ID: "b", Status: failure},
		check{ID: "c", Status: failure}, check{ID: "d", Status: warning}, check{ID: "e", Status: "INFO"})
	var out strings.Builder
	printTable(&out, all, []expectation{{pass: "V", scenario: "s", check: "c"}})
	assert.Regexp(t, `V +1 +1 +2 +1 +1`, out.String())
}
