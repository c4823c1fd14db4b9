package handler

import (
	"context"

	"github.com/hydrant-mcp/hydrant/internal/rawjson"
	"github.com/hydrant-mcp/hydrant/store"
)

// cancelled notes that the client wants a request to end (2025-11-25, basic/utilities/cancellation). The request may run on
// any instance: it looks into the session's ring of cancellations by itself. A request that starts later, with the same
// id, starts behind what the ring has by then; so nothing is remembered for it.
func (e legacySessions) cancelled(ctx context.Context, x *exchange) *failure {
	id, ok := rawjson.Get(x.msg.params, "requestId")
	if !ok || checkID(id, x.h.opts.MaxID) != nil {
		return nil // names nothing
	}
	canonical := canonicalID(id)
	return e.change(ctx, x, func(s *store.Session) bool {
		s.Cancels++
		s.Cancelled = append(s.Cancelled, canonical)
		if over := len(s.Cancelled) - store.MaxCancelled; over > 0 {
			s.Cancelled = s.Cancelled[over:]
		}
		return true
	})
}
