package engine

import (
	"encoding/json"

	"github.com/hydrant-mcp/hydrant/internal/rawjson"
)

// progressToken keeps the client's progress token away from the SDK, whose decoder turns numbers into float64: inside, a
// string of ours stands for it.
type progressToken struct{ client json.RawMessage }

const (
	insideToken    = `"hydrant-progress"`
	tokenKey       = "progressToken"
	metaKey        = "_meta"
	progressMethod = "notifications/progress"
)

func (p *progressToken) hide(params json.RawMessage) json.RawMessage {
	meta, ok := rawjson.Get(params, metaKey)
	if !ok {
		return params
	}
	if p.client, ok = rawjson.Get(meta, tokenKey); !ok {
		return params
	}
	return rawjson.Set(params, metaKey, rawjson.Set(meta, tokenKey, json.RawMessage(insideToken)))
}

func (p *progressToken) restore(method string, params json.RawMessage) json.RawMessage {
	if method != progressMethod || p.client == nil {
		return params
	}
	if token, _ := rawjson.Get(params, tokenKey); string(token) != insideToken {
		return params
	}
	return rawjson.Set(params, tokenKey, p.client)
}
