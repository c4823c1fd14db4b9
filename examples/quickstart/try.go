package main

import "fmt"

// try gives a command that calls the tool. A request of protocol 2026-07-28 needs no handshake: it says everything about
// itself, in the headers and in _meta.
func try(url string) string {
	return fmt.Sprintf(`curl -sS %s \
  -H 'Content-Type: application/json' \
  -H 'Accept: application/json, text/event-stream' \
  -H 'MCP-Protocol-Version: 2026-07-28' \
  -H 'Mcp-Method: tools/call' \
  -H 'Mcp-Name: greet' \
  -d '{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
    "name": "greet", "arguments": {"name": "world"},
    "_meta": {
      "io.modelcontextprotocol/protocolVersion": "2026-07-28",
      "io.modelcontextprotocol/clientCapabilities": {}}}}'`, url)
}
