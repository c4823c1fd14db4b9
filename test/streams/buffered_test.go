package streams

import (
	"crypto/rand"
	"encoding/base64"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/internal/emulator"
	"github.com/hydrant-mcp/hydrant/internal/lambdafront"
)

// On a runtime that sends a response only when it is complete, questions that tools return are all that a client can be
// asked: the call is suspended, and the client polls.
func TestClientsOnABufferedRuntime(t *testing.T) {
	path, err := lambdafront.Build(t.Context(), "./examples/everything/lambda", false)
	require.NoError(t, err)
	front, err := lambdafront.Start(t.Context(), lambdafront.Config{
		Bootstrap: path, Env: lambdaEnvironment(t), Source: lambdafront.HTTP, Instances: 3, Dir: t.TempDir(),
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		front.Stop()
		if t.Failed() {
			t.Log(front.Log())
		}
	})
	think := time.Second
	if long() {
		think = 45 * time.Second
	}
	asks := []feature{rounds, roots}
	table := newTable(asks...)
	t.Run("all", func(t *testing.T) {
		for _, c := range slices.Concat(goClients(), scriptClients()) {
			t.Run(c.name+" speaking "+c.protocol, func(t *testing.T) {
				t.Parallel()
				played := asks
				if why := c.impatient[rounds]; long() && why != "" {
					played = []feature{roots}
					table.note(c, rounds, why)
				}
				got := c.play(t, place{URL: front.URL(), Think: int(think.Milliseconds()), Features: played})
				for _, f := range played {
					wrong, ok := got[f]
					assert.True(t, ok, "%s was not played", f)
					assert.Empty(t, wrong, "%s", f)
					if wrong != "" {
						wrong = "failed"
					}
					table.note(c, f, wrong)
				}
			})
		}
	})
	t.Logf("\n%s", table)

	// A tool that waits for its answer fails at once, and says what to change.
	s, err := connectSDK(t.Context(), front.URL(), legacy, 0)
	require.NoError(t, err)
	defer s.close()
	began := time.Now()
	_, err = s.call(t.Context(), "ask", map[string]any{"message": question})
	assert.ErrorContains(t, err, "InputRequests")
	assert.Less(t, time.Since(began), 5*time.Second)
}

// lambdaEnvironment is that of a function on a table of its own.
func lambdaEnvironment(t *testing.T) []string {
	t.Helper()
	endpoint := emulator.DynamoDBForTest(t)
	var env []string
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "AWS_") && !strings.HasPrefix(entry, "HYDRANT_") {
			env = append(env, entry)
		}
	}
	key := make([]byte, 32)
	_, err := rand.Read(key)
	require.NoError(t, err)
	return append(env,
		"HYDRANT_STORE=dynamodb",
		"HYDRANT_TABLE=test-"+rand.Text(),
		"HYDRANT_KEYS="+base64.StdEncoding.EncodeToString(key),
		"AWS_ENDPOINT_URL_DYNAMODB="+endpoint,
		"AWS_REGION=us-east-1",
		"AWS_ACCESS_KEY_ID=local",
		"AWS_SECRET_ACCESS_KEY=local",
	)
}
