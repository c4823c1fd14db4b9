package handler

import (
	"context"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/hydrant-mcp/hydrant/internal/ctxmutex"
	"github.com/hydrant-mcp/hydrant/store"
)

// A keyring protects what passes through clients and comes back: event ids and the ids of questions are signed, a handler's
// request state is sealed. Any instance opens what any other has signed or sealed. The first key does that, all of them
// open, so that keys can be rotated.
type keyring [][]byte

const (
	keySize = 32 // bytes
	macSize = 16

	// The store keeps the key that nobody configured in a slot that is written once.
	keySlotExchange = "hydrant-keys"
	keySlotQuestion = "1"
)

// keyLife is how long the store keeps that key. Nothing that it has signed lives nearly as long.
const keyLife = 50 * 365 * 24 * time.Hour

// keys gives the handler's keyring: the configured keys, or one that the instances share through the store.
func (h *Handler) keys(ctx context.Context) (keyring, error) {
	if len(h.opts.Keys) > 0 {
		return h.opts.Keys, nil
	}
	if h.store == nil { // good within this process
		return h.stored.random(), nil
	}
	return h.stored.get(ctx, h.store)
}

// knownKeys gives the keyring if it is known without the store.
func (h *Handler) knownKeys() keyring {
	if len(h.opts.Keys) > 0 {
		return h.opts.Keys
	}
	return h.stored.known()
}

// storedKey is the key from the store, read once per handler.
type storedKey struct {
	reading ctxmutex.Mutex // held while the store is asked

	mu   sync.Mutex
	ring keyring

	// Under reading: the last failure, which is that of all who waited for it.
	err    error
	failed time.Time
}

func (s *storedKey) known() keyring {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ring
}

// random is the key of a handler that has neither keys nor a store.
func (s *storedKey) random() keyring {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ring == nil {
		key := make([]byte, keySize)
		rand.Read(key) //nolint:errcheck // it never fails
		s.ring = keyring{key}
	}
	return s.ring
}

func (s *storedKey) get(ctx context.Context, st store.Store) (keyring, error) {
	if ring := s.known(); ring != nil {
		return ring, nil
	}
	asked := time.Now()
	if err := s.reading.Lock(ctx); err != nil {
		return nil, err
	}
	defer s.reading.Unlock()
	if ring := s.known(); ring != nil {
		return ring, nil
	}
	if s.failed.After(asked) {
		return nil, s.err
	}
	key, err := sharedKey(ctx, st)
	if err != nil {
		if ctx.Err() == nil {
			s.err, s.failed = err, time.Now()
		}
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ring = keyring{key}
	return s.ring, nil
}

// sharedKey reads the key of all instances, and makes it if there is none.
func sharedKey(ctx context.Context, st store.Store) ([]byte, error) {
	key, err := st.Answer(ctx, keySlotExchange, keySlotQuestion)
	if errors.Is(err, store.ErrNotFound) {
		fresh := make([]byte, keySize)
		rand.Read(fresh) //nolint:errcheck // it never fails
		err = st.PutAnswer(ctx, keySlotExchange, keySlotQuestion, fresh, time.Now().Add(keyLife))
		if err == nil || errors.Is(err, store.ErrExists) { // another instance may have been faster
			key, err = st.Answer(ctx, keySlotExchange, keySlotQuestion)
		}
	}
	if err != nil {
		return nil, err
	}
	if len(key) != keySize {
		return nil, store.Wrap("read the shared key", store.ErrCorrupt, nil)
	}
	return key, nil
}

// sign gives a token that holds v, for one purpose.
func (k keyring) sign(purpose string, v any) string {
	payload, _ := json.Marshal(v) // our own types: cannot fail
	return base64.RawURLEncoding.EncodeToString(append(mac(k[0], purpose, payload), payload...))
}

// open reads a token into v; false when it was not signed for this purpose by one of the keys.
func (k keyring) open(purpose, token string, v any) bool {
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(raw) < macSize {
		return false
	}
	for _, key := range k {
		if hmac.Equal(raw[:macSize], mac(key, purpose, raw[macSize:])) {
			return json.Unmarshal(raw[macSize:], v) == nil
		}
	}
	return false
}

func mac(key []byte, purpose string, payload []byte) []byte {
	derived, err := hkdf.Key(sha256.New, key, nil, "hydrant "+purpose, keySize)
	if err != nil {
		panic(err) // only for a length that is too large
	}
	m := hmac.New(sha256.New, derived)
	m.Write(payload)
	return m.Sum(nil)[:macSize]
}
