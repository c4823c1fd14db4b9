package handler

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/hydrant-mcp/hydrant/store"
)

// newKey mints the key of an exchange: 128 random bits.
func newKey() string {
	b := make([]byte, 16)
	rand.Read(b) //nolint:errcheck // it never fails
	return hex.EncodeToString(b)
}

// An eventID is the id of an event on a resumable stream (2025-11-25, basic/transports, resumability). It says where a
// client is, and whose the stream is, so that a GET can be answered safely even while the store cannot be reached.
type eventID struct {
	Exchange string `json:"x"`
	// Session and Principal are short hashes: a token opens nothing for anybody else.
	Session   string `json:"s"`
	Principal string `json:"p"`
	// Seq and Part: the client has all events of the outbox up to number Seq, and of the next one the first Part messages.
	Seq  int64 `json:"n,omitempty"`
	Part int   `json:"k,omitempty"`
	// Call says that the request is a tools/call, whose errors are results.
	Call bool `json:"c,omitempty"`
	// Tool is the tool that was called, if any: whoever resumes needs its scopes.
	Tool string `json:"t,omitempty"`
	// ID is the request's JSON-RPC id, Until when the stream's events are gone, in Unix seconds.
	ID    json.RawMessage `json:"i"`
	Until int64           `json:"e"`
	// Nonce makes ids differ that say the same: a client that gets the id it came with thinks that nothing has happened.
	Nonce string `json:"o,omitempty"`
}

// A questionID is the id of a request of the server's: it names the exchange, and the slot of its inbox.
type questionID struct {
	Exchange string `json:"x"`
	Session  string `json:"s"`
	Slot     string `json:"q"`
}

const (
	purposeEvent    = "event id"
	purposeQuestion = "question id"
)

func short(s string) string {
	sum := sha256.Sum256([]byte(s))
	return base64.RawURLEncoding.EncodeToString(sum[:9])
}

// belongs says whether the stream of an event id is one of the session's, whose owner is principal.
func (e eventID) belongs(sessionKey, principal string) bool {
	return e.Session == short(sessionKey) && e.Principal == short(principal)
}

func (e eventID) over(now time.Time) bool { return now.Unix() > e.Until }

// final says that the client has everything.
func (e eventID) final() bool { return e.Seq == store.Final }
