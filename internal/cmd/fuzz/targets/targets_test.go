package targets

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// tree makes a folder of files.
func tree(t *testing.T, files map[string]string) (root string) {
	root = t.TempDir()
	for path, text := range files {
		require.NoError(t, os.MkdirAll(filepath.Join(root, filepath.Dir(path)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, path), []byte(text), 0o644))
	}
	return root
}

func TestTargetsAreFound(t *testing.T) {
	root := tree(t, map[string]string{
		"a/b/x_test.go":                 "package b\n\nfunc FuzzOne(f *testing.F) {}\n\nfunc FuzzTwo(f *testing.F) {}\n",
		"a/y_test.go":                   "package a\n\n// func FuzzNot(f *testing.F) {}\nfunc TestNot(t *testing.T) {}\n",
		"a/z.go":                        "package a\n\nfunc FuzzNot(f *testing.F) {}\n",
		"node_modules/y_test.go":        "func FuzzTheirs(f *testing.F) {}\n",
		".venv/y_test.go":               "func FuzzTheirs(f *testing.F) {}\n",
		"a/node_modules/n/node_test.go": "func FuzzTheirs(f *testing.F) {}\n",
	})
	found, err := Find(root)
	require.NoError(t, err)
	assert.Equal(t, []Target{{"a/b", "FuzzOne"}, {"a/b", "FuzzTwo"}}, found)
}

func TestATargetThatFails(t *testing.T) {
	root := tree(t, map[string]string{
		"go.mod":      "module example.com/m\n\ngo 1.24\n",
		"a/x_test.go": "package a\n\nimport \"testing\"\n\nfunc FuzzOne(f *testing.F) {\n\tf.Fuzz(func(t *testing.T, n int) {\n\t\tif n > 7 {\n\t\t\tt.Fatal(\"too many\")\n\t\t}\n\t})\n}\n",
		"b/x_test.go": "package b\n\nimport \"testing\"\n\nfunc FuzzTwo(f *testing.F) { f.Fuzz(func(*testing.T, int) {}) }\n",
		"c/x_test.go": "package c\n\nimport \"testing\"\n\nfunc FuzzThree(f *testing.F) { f.Fuzz(nothing) }\n",
	})
	bad, err := Target{"a", "FuzzOne"}.Run(t.Context(), root, "60s")
	require.NoError(t, err)
	assert.False(t, bad.OK)
	assert.Contains(t, bad.Output, "too many")
	assert.DirExists(t, filepath.Join(root, "a/testdata/fuzz/FuzzOne"), "what failed is kept")

	good, err := Target{"b", "FuzzTwo"}.Run(t.Context(), root, "1000x")
	require.NoError(t, err)
	assert.True(t, good.OK, good.Output)
	assert.GreaterOrEqual(t, good.Inputs, int64(1000))
	assert.Positive(t, good.CPU)

	unbuilt, err := Target{"c", "FuzzThree"}.Run(t.Context(), root, "1x")
	require.NoError(t, err)
	assert.False(t, unbuilt.OK)
	assert.Contains(t, unbuilt.Output, "undefined: nothing")
}
