package handler

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/hydrant-mcp/hydrant/internal/rawjson"
	"github.com/hydrant-mcp/hydrant/store"
)

// cancelled notes that the client wants requests to end (2025-11-25, basic/utilities/cancellation). The request may run on
// any instance: it looks into the session's ring of cancellations by itself. A request that starts later, with the same
// id, starts behind what the ring has by then; so nothing is remembered for it.
func (e legacySessions) cancelled(ctx context.Context, x *exchange) *failure {
	var ids []string
	for _, m := range append([]message{x.msg}, x.more...) {
		if id, ok := rawjson.Get(m.params, "requestId"); ok && checkID("requestId", id, x.h.opts.MaxID) == nil {
			ids = append(ids, canonicalID(id))
		}
	}
	if len(ids) == 0 {
		return nil // names nothing
	}
	return e.change(ctx, x, func(s *store.Session) bool {
		s.Cancels += int64(len(ids))
		s.Cancelled = append(s.Cancelled, ids...)
		if over := len(s.Cancelled) - store.MaxCancelled; over > 0 {
			s.Cancelled = s.Cancelled[over:]
		}
		return true
	})
}

// cancelledSince says whether a request was cancelled after the session had so many cancellations.
func cancelledSince(s *store.Session, cancels int64, request json.RawMessage) bool {
	fresh := min(int(s.Cancels-cancels), len(s.Cancelled))
	return fresh > 0 && slices.Contains(s.Cancelled[len(s.Cancelled)-fresh:], canonicalID(request))
}
