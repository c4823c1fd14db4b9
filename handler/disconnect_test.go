package handler

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
)

// workTool works for some time, unless it is cancelled, and tells how it ended.
func workTool(started chan<- struct{}, ended chan<- error) mcp.ToolHandler {
	return func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		var a struct{ Ms int }
		if err := json.Unmarshal(req.Params.Arguments, &a); err != nil {
			return nil, err
		}
		started <- struct{}{}
		select {
		case <-time.After(time.Duration(a.Ms) * time.Millisecond):
		case <-ctx.Done():
		}
		ended <- ctx.Err()
		return textResult("worked"), ctx.Err()
	}
}

// dropped sends a request and closes its connection as soon as the tool runs.
func (e *endpoint) dropped(started <-chan struct{}, body string, headers ...string) {
	e.t.Helper()
	ctx, cancel := context.WithCancel(e.t.Context())
	defer cancel()
	go func() {
		<-started
		cancel()
	}()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, strings.NewReader(body))
	require.NoError(e.t, err)
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := e.client.Do(req)
	if err == nil {
		res.Body.Close()
	}
	require.Error(e.t, err)
}
