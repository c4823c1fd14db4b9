package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/internal/emulator"
)

func TestMain(m *testing.M) { os.Exit(emulator.Main(m)) }

func TestServesUntilItIsStopped(t *testing.T) {
	for _, tt := range []struct {
		name string
		env  func(*testing.T) map[string]string
	}{
		{"in memory", func(*testing.T) map[string]string { return map[string]string{"PORT": "0"} }},
		{"in DynamoDB", func(t *testing.T) map[string]string {
			endpoint := emulator.DynamoDBForTest(t)
			// These are read by the AWS SDK.
			t.Setenv("AWS_ENDPOINT_URL_DYNAMODB", endpoint)
			t.Setenv("AWS_REGION", "us-east-1")
			t.Setenv("AWS_ACCESS_KEY_ID", "local")
			t.Setenv("AWS_SECRET_ACCESS_KEY", "local")
			return map[string]string{"PORT": "0", "HYDRANT_TABLE": "notes", "AWS_ENDPOINT_URL_DYNAMODB": endpoint}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			env := tt.env(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			read, write := io.Pipe()
			done := make(chan error, 1)
			go func() {
				err := run(ctx, func(name string) string { return env[name] }, write)
				_ = write.CloseWithError(err)
				done <- err
			}()
			line, err := bufio.NewReader(read).ReadString('\n')
			require.NoError(t, err)
			url := regexp.MustCompile(`http://\S+`).FindString(line)

			client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
			session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url, MaxRetries: -1}, nil)
			require.NoError(t, err)
			result, err := session.CallTool(t.Context(), &mcp.CallToolParams{
				Name: "add_note", Arguments: map[string]any{"text": "x"},
			})
			require.NoError(t, err)
			assert.False(t, result.IsError)
			require.NoError(t, session.Close())

			res, err := http.Get(strings.TrimSuffix(url, "/mcp") + "/healthz")
			require.NoError(t, err)
			assert.Equal(t, http.StatusOK, res.StatusCode)
			require.NoError(t, res.Body.Close())
			cancel()
			assert.NoError(t, <-done)
		})
	}
}
