// Command bench compares what one tools/call over HTTP costs in Hydrant, in the official SDK's own handlers and in mcp-go,
// side by side in one process and one run. Each round measures every server once, in turns, so that what else the machine
// does hits all of them alike; the table has the median of the rounds and the ratio to the SDK's handler of the same kind.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	mcpgo "github.com/mark3labs/mcp-go/mcp"
	mcpgoserver "github.com/mark3labs/mcp-go/server"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/hydrant-mcp/hydrant/handler"
	"github.com/hydrant-mcp/hydrant/store/memory"
)

const (
	legacyVersion = "2025-11-25"
	modernVersion = "2026-07-28"
)

// A target is a server and the kind of call that is measured on it.
type target struct {
	name, kind string
	handler    http.Handler
	base       bool // what the others of its kind are compared with
}

const (
	kindSession   = "session"
	kindStateless = "stateless legacy"
	kindModern    = "2026-07-28"
)

func main() {
	rounds := flag.Int("rounds", 9, "measurements of each server")
	calls := flag.Int("calls", 2000, "calls in a measurement")
	parallel := flag.Int("parallel", 4, "clients at a time")
	flag.Parse()
	if err := run(*rounds, *calls, *parallel); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(rounds, calls, parallel int) error {
	var running []*client
	for _, t := range targets() {
		srv := httptest.NewServer(t.handler)
		defer srv.Close()
		c, err := newClient(t, srv.URL+"/mcp")
		if err != nil {
			return fmt.Errorf("%s, %s: %w", t.name, t.kind, err)
		}
		running = append(running, c)
	}
	for round := range rounds + 1 {
		for _, c := range running {
			took, err := c.measure(calls, parallel)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", c.name, c.kind, err)
			}
			if round > 0 { // the first warms up
				c.took = append(c.took, took)
			}
		}
	}
	base := map[string]time.Duration{}
	for _, c := range running {
		slices.Sort(c.took)
		if c.base {
			base[c.kind] = c.median()
		}
	}
	out := tabwriter.NewWriter(os.Stdout, 2, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(out, "kind\tserver\tµs a call\tfastest\tslowest\tratio\t")
	for _, c := range running {
		micros := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
		ratio := float64(c.median()) / float64(base[c.kind])
		fmt.Fprintf(out, "%s\t%s\t%.1f\t%.1f\t%.1f\t%.2f\t\n", c.kind, c.name,
			micros(c.median()), micros(c.took[0]), micros(c.took[len(c.took)-1]), ratio)
	}
	fmt.Fprintf(out, "\n")
	return out.Flush()
}

func targets() []target {
	quiet := slog.New(slog.DiscardHandler)
	sdk := newSDKServer()
	one := func(*http.Request) *mcp.Server { return sdk }
	hydrant := handler.New(newSDKServer(), memory.New(), &handler.Options{Logger: quiet})
	stateless := handler.New(newSDKServer(), nil, &handler.Options{Logger: quiet, Legacy: handler.LegacyStateless})
	sdkStateful := mcp.NewStreamableHTTPHandler(one, &mcp.StreamableHTTPOptions{JSONResponse: true})
	sdkStateless := mcp.NewStreamableHTTPHandler(one, &mcp.StreamableHTTPOptions{JSONResponse: true, Stateless: true})
	return []target{
		{"go-sdk, stateful", kindSession, sdkStateful, true},
		{"Hydrant, memory store", kindSession, hydrant, false},
		{"mcp-go, stateful", kindSession, mcpgoserver.NewStreamableHTTPServer(newMCPGo(), mcpgoserver.WithStateful(true)), false},
		{"go-sdk, stateless", kindStateless, sdkStateless, true},
		{"Hydrant, stateless", kindStateless, stateless, false},
		{"mcp-go, stateless", kindStateless, mcpgoserver.NewStreamableHTTPServer(newMCPGo(), mcpgoserver.WithStateLess(true)), false},
		{"go-sdk, stateless", kindModern, sdkStateless, true},
		{"Hydrant", kindModern, hydrant, false},
	}
}

const toolName = "add"

func newSDKServer() *mcp.Server {
	type in struct {
		A int `json:"a"`
		B int `json:"b"`
	}
	s := mcp.NewServer(&mcp.Implementation{Name: "bench", Version: "1"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: toolName}, func(_ context.Context, _ *mcp.CallToolRequest, i in) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprint(i.A + i.B)}}}, nil, nil
	})
	return s
}

func newMCPGo() *mcpgoserver.MCPServer {
	s := mcpgoserver.NewMCPServer("bench", "1")
	s.AddTool(mcpgo.NewTool(toolName, mcpgo.WithNumber("a"), mcpgo.WithNumber("b")),
		func(_ context.Context, r mcpgo.CallToolRequest) (*mcpgo.CallToolResult, error) {
			return mcpgo.NewToolResultText(fmt.Sprint(r.GetInt("a", 0) + r.GetInt("b", 0))), nil
		})
	return s
}

// A client calls the tool of a target.
type client struct {
	target
	url     string
	http    *http.Client
	session string
	ids     atomic.Int64
	took    []time.Duration
}

func newClient(t target, url string) (*client, error) {
	c := &client{target: t, url: url, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
	if t.kind == kindModern {
		return c, c.call()
	}
	res, _, err := c.post(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"`+legacyVersion+`",`+
		`"capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}`, nil)
	if err != nil {
		return nil, err
	}
	c.session = res.Header.Get("Mcp-Session-Id")
	if _, _, err := c.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, nil); err != nil {
		return nil, err
	}
	return c, c.call()
}

func (c *client) post(body string, header map[string]string) (*http.Response, []byte, error) {
	req, err := http.NewRequest(http.MethodPost, c.url, bytes.NewReader([]byte(body)))
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if c.session != "" {
		req.Header.Set("Mcp-Session-Id", c.session)
	}
	for k, v := range header {
		req.Header.Set(k, v)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode >= 300 {
		err = fmt.Errorf("%s: %s", res.Status, raw)
	}
	return res, raw, err
}

func (c *client) call() error {
	const arguments = `"name":"` + toolName + `","arguments":{"a":20,"b":22}`
	head := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{`, c.ids.Add(1)) + arguments
	body, header := head+`}}`, map[string]string{
		"Mcp-Protocol-Version": legacyVersion,
	}
	if c.kind == kindModern {
		body = head + `,"_meta":{` +
			`"io.modelcontextprotocol/protocolVersion":"` + modernVersion + `","io.modelcontextprotocol/clientCapabilities":{}}}}`
		header = map[string]string{"Mcp-Protocol-Version": modernVersion, "Mcp-Method": "tools/call", "Mcp-Name": toolName}
	}
	_, raw, err := c.post(body, header)
	if err != nil {
		return err
	}
	var response struct {
		Result struct{ Content []struct{ Text string } }
	}
	if err := json.Unmarshal(raw, &response); err != nil || len(response.Result.Content) != 1 || response.Result.Content[0].Text != "42" {
		return fmt.Errorf("not the answer: %.200s", raw)
	}
	return nil
}

// measure gives the time of one call, of calls ones made by several clients at a time.
func (c *client) measure(calls, parallel int) (time.Duration, error) {
	var wg sync.WaitGroup
	errs := make(chan error, parallel)
	start := time.Now()
	for range parallel {
		wg.Go(func() {
			for range calls / parallel {
				if err := c.call(); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	select {
	case err := <-errs:
		return 0, err
	default:
		return took / time.Duration(calls), nil
	}
}

func (c *client) median() time.Duration { return c.took[len(c.took)/2] }
