package notes_test

import (
	"bytes"
	"encoding/base64"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/examples/notes"
)

func TestParseKeys(t *testing.T) {
	a, b := bytes.Repeat([]byte{'a'}, 32), bytes.Repeat([]byte{'b'}, 32)
	text := func(key []byte) string { return base64.StdEncoding.EncodeToString(key) }
	keys, err := notes.ParseKeys("")
	require.NoError(t, err)
	assert.Nil(t, keys)
	keys, err = notes.ParseKeys(text(a) + ", " + text(b))
	require.NoError(t, err)
	assert.Equal(t, [][]byte{a, b}, keys)
	for _, bad := range []string{",", "secret", text(a[:31]), text(a) + "," + text(b[:5]), text(a) + ","} {
		_, err := notes.ParseKeys(bad)
		require.ErrorContains(t, err, "HYDRANT_KEYS", bad)
		assert.NotContains(t, err.Error(), text(b[:5]))
	}
}
