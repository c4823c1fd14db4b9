package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/internal/emulator"
)

// The test reads what a person reads.
func TestOneCommandShowsThatSessionsSurvive(t *testing.T) {
	emulator.DynamoDBForTest(t) // skips where there is none
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	read, write := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := run(ctx, []string{"PORT=0", "STORE=dynamodb", "HYDRANT_SESSION_TTL=1h"}, write)
		_ = write.CloseWithError(io.EOF)
		done <- err
	}()
	lines := bufio.NewScanner(read)
	var seen strings.Builder
	await := func(pattern string) []string {
		t.Helper()
		for lines.Scan() {
			seen.WriteString(lines.Text() + "\n")
			if found := regexp.MustCompile(pattern).FindStringSubmatch(lines.Text()); found != nil {
				return found
			}
		}
		require.Fail(t, "it never says "+pattern, seen.String())
		return nil
	}
	first := await(`^demo  \| 1\. initialize: answered by ([AB])`)[1]
	second := await(`^demo  \| 2\. tools/call: answered by ([AB])`)[1]
	assert.NotEqual(t, first, second)
	await(`^demo  \| 3\. kill -9 ` + first)
	await(`^demo  \| 4\. tools/call: answered by `)
	await(`^demo  \| 5\. tools/call: answered by ` + first)
	await(`^demo  \| the session survived`)
	url := await(`ready: (http://\S+/mcp),`)[1]
	assert.Contains(t, seen.String(), "proxy | tools/call echo", "the log says who got what")
	assert.Regexp(t, `(?m)^[AB]     \| everything: listening on `, seen.String(), "the instances' own logs are there")

	go func() { _, _ = io.Copy(io.Discard, read) }()
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url, MaxRetries: -1}, nil)
	require.NoError(t, err)
	_, err = session.ListTools(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, session.Close())

	cancel()
	require.NoError(t, <-done)
	_, err = http.Get(url)
	assert.Error(t, err, "nothing is left")
}

func TestWhatCannotBeStartedIsOneClearLine(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	_, port, err := net.SplitHostPort(taken.Addr().String())
	require.NoError(t, err)
	for _, environ := range [][]string{{"PORT=" + port}, {"PORT=0", "STORE=redis"}, {"PORT=0", "STORE=memory"}} {
		err := run(t.Context(), environ, io.Discard)
		require.Error(t, err, environ)
		assert.NotContains(t, err.Error(), "\n")
	}
}

func TestDescribe(t *testing.T) {
	for body, want := range map[string]string{
		`{"method": "tools/call", "params": {"name": "echo"}}`: "tools/call echo",
		`{"method": "ping"}`:         "ping",
		`{"id": 1, "result": {}}`:    "a response",
		`[{"method": "ping"}]`:       "POST",
		`{"method": "x", "params": `: "POST",
	} {
		assert.Equal(t, want, describe([]byte(body)))
	}
}
