package targets

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTargetsAreFound(t *testing.T) {
	root := t.TempDir()
	for path, text := range map[string]string{
		"a/b/x_test.go":                 "package b\n\nfunc FuzzOne(f *testing.F) {}\n\nfunc FuzzTwo(f *testing.F) {}\n",
		"a/y_test.go":                   "package a\n\n// func FuzzNot(f *testing.F) {}\nfunc TestNot(t *testing.T) {}\n",
		"a/z.go":                        "package a\n\nfunc FuzzNot(f *testing.F) {}\n",
		"node_modules/y_test.go":        "func FuzzTheirs(f *testing.F) {}\n",
		".venv/y_test.go":               "func FuzzTheirs(f *testing.F) {}\n",
		"a/node_modules/n/node_test.go": "func FuzzTheirs(f *testing.F) {}\n",
	} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, filepath.Dir(path)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, path), []byte(text), 0o644))
	}
	found, err := Find(root)
	require.NoError(t, err)
	assert.Equal(t, []Target{{"a/b", "FuzzOne"}, {"a/b", "FuzzTwo"}}, found)
}
