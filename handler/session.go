package handler

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"time"

	"github.com/hydrant-mcp/hydrant/store"
)

// newSessionID mints a session id: 130 random bits in 26 visible ASCII characters.
func newSessionID() string { return rand.Text() }

const sessionIDLength = 26

// mintedHere says whether an id can be one of ours. What cannot is missing without a look into the store.
func mintedHere(id string) bool {
	if len(id) != sessionIDLength {
		return false
	}
	for _, c := range []byte(id) {
		if (c < 'A' || c > 'Z') && (c < '2' || c > '7') {
			return false
		}
	}
	return true
}

// sessionKey is what the store knows a session by. It never sees the id: a leaked table opens no session.
func sessionKey(server, id string) string {
	sum := sha256.Sum256([]byte(server + "\x00" + id)) // an id of ours has no zero byte
	return hex.EncodeToString(sum[:])
}

// logID is what logs show of a session: enough of the hash to follow one.
func logID(key string) string {
	const length = 12
	return key[:min(length, len(key))]
}

// slideAfter is how much of a session's time to live may pass before a message renews it. Each renewal is a write; without
// this every message would be one.
const slideAfter = 4 // a quarter

// session finds the session that a request names, if it belongs to whoever asks, and keeps it alive.
func (q *request) session(ctx context.Context) (*store.Session, *failure) {
	id, f := q.one(headerSession)
	if f != nil {
		return nil, f
	}
	if id == "" {
		return nil, errNoSession()
	}
	if !mintedHere(id) {
		return nil, errSessionMissing()
	}
	s, err := q.h.store.Session(ctx, sessionKey(q.name, id))
	if err == nil && len(s.InitializeParams) > 0 && !json.Valid(s.InitializeParams) {
		err = store.Wrap("read a session", store.ErrCorrupt, nil)
	}
	if err != nil {
		return nil, errStore(err)
	}
	now := time.Now()
	if s.Principal != q.principal || q.h.lifeOver(s, now) {
		return nil, errSessionMissing()
	}
	until := q.h.expiry(s.Created, now)
	renew := func(s *store.Session) bool {
		gain := until.Sub(s.Expires)
		// Near the absolute limit the gain stays small, however little is left.
		due := gain > min(q.h.opts.SessionTTL/slideAfter, s.Expires.Sub(now))
		if due {
			s.Expires = until
		}
		return due
	}
	if err := store.ChangeSession(ctx, q.h.store, s, renew); err != nil {
		if errors.Is(err, store.ErrNotFound) {
			return nil, errStore(err)
		}
		// The session is alive now; the next message tries again.
		q.h.opts.Logger.WarnContext(ctx, "a session could not be renewed", "session", logID(s.Key), "error", err)
	}
	return s, nil
}

// expiry is when a session ends that is used now.
func (h *Handler) expiry(created, now time.Time) time.Time {
	until := now.Add(h.opts.SessionTTL)
	if limit := h.opts.SessionLifetime; limit > 0 && created.Add(limit).Before(until) {
		until = created.Add(limit)
	}
	return until
}

// lifeOver applies the absolute limit, also to sessions from before it was set.
func (h *Handler) lifeOver(s *store.Session, now time.Time) bool {
	return h.opts.SessionLifetime > 0 && store.Expired(s.Created.Add(h.opts.SessionLifetime), now)
}
