package main

import (
	"archive/zip"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/internal/harness"
)

func TestTheArchiveIsWhatLambdaTakes(t *testing.T) {
	dir := t.TempDir()
	binary := filepath.Join(dir, "bootstrap")
	require.NoError(t, os.WriteFile(binary, []byte("a binary"), 0o600))
	first, second := filepath.Join(dir, "1.zip"), filepath.Join(dir, "2.zip")
	_, _, err := pack(binary, first)
	require.NoError(t, err)
	_, _, err = pack(binary, second)
	require.NoError(t, err)

	r, err := zip.OpenReader(first)
	require.NoError(t, err)
	defer r.Close()
	require.Len(t, r.File, 1)
	assert.Equal(t, "bootstrap", r.File[0].Name)
	assert.Equal(t, os.FileMode(0o755), r.File[0].Mode(), "executable, whatever the file was")
	in, err := r.File[0].Open()
	require.NoError(t, err)
	text, err := io.ReadAll(in)
	require.NoError(t, err)
	assert.Equal(t, "a binary", string(text))

	a, err := os.ReadFile(first)
	require.NoError(t, err)
	b, err := os.ReadFile(second)
	require.NoError(t, err)
	assert.Equal(t, a, b, "the same bytes each time")
}

func TestExamplesAreFound(t *testing.T) {
	root, err := harness.Root()
	require.NoError(t, err)
	all, err := find(root, nil)
	require.NoError(t, err)
	assert.Subset(t, all, []string{"everything", "quickstart"})
	_, err = find(root, []string{"nothing"})
	assert.ErrorContains(t, err, "nothing")
}
