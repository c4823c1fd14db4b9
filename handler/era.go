package handler

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"

	"github.com/hydrant-mcp/hydrant/engine"
	"github.com/hydrant-mcp/hydrant/internal/rawjson"
	"github.com/hydrant-mcp/hydrant/store"
)

// An era is everything that differs between the protocol eras. The pipeline drives one without asking which it is: for
// example it calls rehydrate for every message, and the legacy era reads the session from the store there, while the modern
// era compares the headers with the body.
type era interface {
	// rehydrate checks what the era demands of the message and gives the engine's state for it. It may set x.msg.params to
	// what the engine is to see.
	rehydrate(ctx context.Context, x *exchange) (*engine.State, *failure)
	// notify handles a notification, and makes safe what it says, before it is acknowledged.
	notify(ctx context.Context, x *exchange, state *engine.State) *failure
	// answered takes a response of the client's, before it is acknowledged.
	answered(ctx context.Context, x *exchange) *failure
	// policy says how a request may be answered over a stream.
	policy(x *exchange) policy
	// serve runs a request and answers it; conduct is how that is done unless the era has another way for it.
	serve(ctx context.Context, a *answer, x *exchange, state *engine.State) *failure
	// run runs a request on the engine.
	run(ctx context.Context, x *exchange, state *engine.State, out engine.Client) (json.RawMessage, error)
	// settle makes safe what a request has changed, before it is answered, and gives the result that the client gets.
	settle(ctx context.Context, x *exchange, result json.RawMessage) (json.RawMessage, *failure)
	// status is the HTTP status that goes with a JSON-RPC error code of the server's.
	status(code int64) int
	// outlives says whether a call goes on when its client's connection is gone.
	outlives() bool
	// openBatch says whether a batch may be sent, and gives the session that its messages share.
	openBatch(ctx context.Context, q *request) (*store.Session, *failure)
	// get and end serve GET and DELETE.
	get(ctx context.Context, a *answer) *failure
	end(ctx context.Context, a *answer) *failure
}

// facts are all that the era depends on.
type facts struct {
	header  string // the MCP-Protocol-Version header, "" without one
	session bool   // whether there is an Mcp-Session-Id header
	kind    kind
	batch   bool
	method  string          // JSON-RPC
	meta    json.RawMessage // the protocol version in _meta, nil without one
}

// decide is the table of the eras, complete; docs/eras.md has it with the reasons. Versions are compared by membership,
// never by order: a version that is not served is unknown, whatever it looks like.
//
//	message        _meta version   header            session   ->
//	batch          any             modern            any       modern, which has none and refuses it
//	batch          any             unknown           any       refused: version
//	batch          any             legacy or none    any       legacy, which knows the session's version
//	initialize     none or legacy  any               any       legacy: by its body, whatever the headers say
//	request        modern          the same          any       modern
//	request        modern          any other, none   any       refused: mismatch
//	request        legacy          the same, none    any       legacy
//	request        legacy          any other         any       refused: mismatch
//	request        unknown         the same, none    any       refused: version
//	request        unknown         any other         any       refused: mismatch
//	request        no string       modern            no        modern, which refuses it
//	request        no string       any other         any       as without
//	request        none            modern            no        modern, which refuses it: _meta is missing
//	any            none            modern            yes       refused: a session has a legacy version
//	any            none            unknown           yes       refused: a session has a legacy version
//	any            none            unknown           no        refused: version
//	any            none            legacy or none    any       legacy
//	notification,  none            modern            no        modern
//	response
//
// Notifications and responses carry no _meta version; one that is there says nothing.
func (h *Handler) decide(f facts) (era, *failure) {
	header := h.classify(f.header)
	if f.batch {
		switch header {
		case modern:
			return modernEra{h}, nil
		case unknown:
			return nil, errVersion(f.header, h.opts.Versions)
		}
		return h.legacyEra()
	}
	if f.kind == aRequest {
		if version, ok := rawjson.String(f.meta); ok {
			meta := h.classify(version)
			switch {
			case f.method == "initialize" && meta != modern:
				return h.legacyEra()
			case meta == modern && f.header != version, meta != modern && f.header != version && f.header != "":
				return nil, errMismatch("the MCP-Protocol-Version header is %q, the version in _meta is %q",
					clip(f.header), clip(version))
			case meta == modern:
				return modernEra{h}, nil
			case meta == unknown:
				return nil, errVersion(version, h.opts.Versions)
			}
			return h.legacyEra()
		}
		if f.method == "initialize" {
			return h.legacyEra()
		}
	}
	switch {
	case (header == modern || header == unknown) && f.session:
		return nil, errSessionVersion(f.header)
	case header == modern:
		return modernEra{h}, nil
	case header == unknown:
		return nil, errVersion(f.header, h.opts.Versions)
	}
	return h.legacyEra()
}

type class int

const (
	none class = iota
	legacy
	modern
	unknown
)

func (h *Handler) classify(version string) class {
	switch {
	case version == "":
		return none
	case !slices.Contains(h.opts.Versions, version):
		return unknown
	case slices.Contains(modernVersions, version):
		return modern
	}
	return legacy
}

// legacyEra gives the legacy era, if any version of it is served.
func (h *Handler) legacyEra() (era, *failure) {
	if len(h.legacyVersions()) == 0 {
		return nil, errVersion("", h.opts.Versions)
	}
	if h.opts.Legacy == LegacyStateless {
		return legacyStateless{h}, nil
	}
	return legacySessions{h}, nil
}

func (h *Handler) legacyVersions() []string {
	return slices.DeleteFunc(slices.Clone(h.opts.Versions), func(v string) bool { return !slices.Contains(legacyVersions, v) })
}

// eraOfStream is the era of a GET or DELETE. Both exist in the legacy era only.
func (h *Handler) eraOfStream(q *request) (era, *failure) {
	session := q.http.Header.Get(headerSession) != ""
	version, f := q.one(headerVersion)
	if f != nil {
		return nil, f
	}
	switch h.classify(version) {
	case modern, unknown:
		if !session {
			return nil, errMethod(http.MethodPost)
		}
	}
	if len(h.legacyVersions()) == 0 {
		return nil, errMethod(http.MethodPost)
	}
	return h.legacyEra()
}
