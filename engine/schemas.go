package engine

import (
	"context"
	"encoding/json"
	"time"

	"github.com/hydrant-mcp/hydrant/internal/ctxmutex"
	"github.com/hydrant-mcp/hydrant/internal/rawjson"
)

const (
	schemasFresh = time.Minute // how old a known schema may be
	schemasRetry = time.Second // how often an unknown name may cost a listing
	maxToolPages = 1000
)

// toolSchemas are the input schemas of a server's tools. The SDK has no accessor for them, so the server is asked.
type toolSchemas struct {
	mu     ctxmutex.Mutex // held while the server is asked
	byName map[string]json.RawMessage
	asked  time.Time
}

// ToolSchema implements [Engine].
func (e *sdk) ToolSchema(ctx context.Context, name string) (json.RawMessage, bool, error) {
	t := e.tools
	if err := t.mu.Lock(ctx); err != nil {
		return nil, false, err
	}
	defer t.mu.Unlock()
	schema, known := t.byName[name]
	age := time.Since(t.asked)
	if t.byName == nil || known && age > schemasFresh || !known && age > schemasRetry {
		byName, err := e.listSchemas(ctx)
		if err != nil {
			return nil, false, err
		}
		t.byName, t.asked = byName, time.Now()
		schema, known = byName[name]
	}
	return schema, known, nil
}

// internalVersion is the version at which Hydrant itself asks a server.
const internalVersion = "2025-11-25"

// Discover implements [Engine].
func (e *sdk) Discover(ctx context.Context) (json.RawMessage, error) {
	return e.call(ctx, &Message{Method: "server/discover", Params: json.RawMessage(
		`{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}`,
	)}, nil, true)
}

func (e *sdk) listSchemas(ctx context.Context) (map[string]json.RawMessage, error) {
	byName := map[string]json.RawMessage{}
	m := &Message{Method: "tools/list", State: &State{ProtocolVersion: internalVersion, Initialized: true}}
	for range maxToolPages {
		raw, err := e.call(ctx, m, nil, true)
		if err != nil {
			return nil, err
		}
		tools, _ := rawjson.Get(raw, "tools")
		for tool := range rawjson.Elements(tools) {
			rawName, _ := rawjson.Get(tool, "name")
			schema, _ := rawjson.Get(tool, "inputSchema")
			if name, ok := rawjson.String(rawName); ok {
				byName[name] = schema
			}
		}
		cursor, ok := rawjson.Get(raw, "nextCursor")
		if !ok || !rawjson.IsString(cursor) {
			break
		}
		m.Params = rawjson.Set(nil, "cursor", cursor)
	}
	return byName, nil
}
