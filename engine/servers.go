package engine

import (
	"runtime"
	"sync"
	"weak"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/hydrant-mcp/hydrant/internal/ctxmutex"
)

// servers has one entry for each [mcp.Server] that an engine was made of. The SDK has no way to ask for or to remove a
// middleware, so an engine must know whether the server has ours already: a handler may be built for every request.
// The entries hold no server alive.
var servers = struct {
	sync.Mutex
	known map[weak.Pointer[mcp.Server]]*toolSchemas
}{known: map[weak.Pointer[mcp.Server]]*toolSchemas{}}

// adopt installs the middleware in a server that has not got it yet, and gives what is kept for the server.
func adopt(server *mcp.Server) *toolSchemas {
	key := weak.Make(server)
	servers.Lock()
	defer servers.Unlock()
	if s, ok := servers.known[key]; ok {
		return s
	}
	server.AddReceivingMiddleware(middleware)
	server.AddSendingMiddleware(sending)
	s := &toolSchemas{mu: ctxmutex.New()}
	servers.known[key] = s
	runtime.AddCleanup(server, func(key weak.Pointer[mcp.Server]) {
		servers.Lock()
		defer servers.Unlock()
		delete(servers.known, key)
	}, key)
	return s
}
