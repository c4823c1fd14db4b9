package handler

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/hydrant-mcp/hydrant/internal/rawjson"
	"github.com/hydrant-mcp/hydrant/store"
)

// A modern client carries a handler's requestState between two rounds. It is sealed on the way out and opened on the way
// in: the client can neither read nor change it, nor use it for another call, as somebody else, or later. One is always
// minted, also where the handler has none, so that a client cannot drop it and answer questions that nobody asked.

// sealed is what a requestState holds.
type sealed struct {
	State  *string `json:"s,omitempty"` // the handler's own; nil when it gave none
	Until  int64   `json:"e"`           // Unix seconds
	Serial string  `json:"n"`           // for single use
	// Asked are the keys of the questions that it goes with: an answer to anything else was not asked for. It is nil in what
	// versions before it have sealed.
	Asked []string `json:"q"`
}

// sealState puts a result's requestState under seal.
func (x *exchange) sealState(ctx context.Context, result json.RawMessage) (json.RawMessage, *failure) {
	keys, err := x.h.keys(ctx)
	if err != nil {
		return nil, errStore(err)
	}
	s := sealed{Until: time.Now().Add(x.h.opts.StateTimeout).Unix(), Serial: newKey()}
	if raw, ok := rawjson.Get(result, "requestState"); ok {
		if own, ok := rawjson.String(raw); ok {
			s.State = &own
		}
	}
	requests, _ := rawjson.Get(result, "inputRequests")
	s.Asked = []string{}
	for key := range rawjson.Members(requests) {
		s.Asked = append(s.Asked, key)
	}
	token := keys.seal(encode(s), x.binding())
	return rawjson.Set(result, "requestState", encode(token)), nil
}

// withoutState takes a handler's state out of a result that asks nothing: nobody is to carry it.
func withoutState(method string, result json.RawMessage) json.RawMessage {
	if _, ok := nameKey[method]; !ok {
		return result
	}
	return rawjson.Delete(result, "requestState")
}

// openState gives a request back the handler's own state. A retry whose state is missing or does not open is refused: the
// handler does not run.
func (x *exchange) openState(ctx context.Context) *failure {
	token, hasState := rawjson.Get(x.msg.params, "requestState")
	responses, hasResponses := rawjson.Get(x.msg.params, "inputResponses")
	if !hasState && !hasResponses {
		return nil
	}
	if _, ok := nameKey[x.msg.method]; !ok {
		return nil // means nothing there
	}
	if !hasState && x.h.opts.AnswersWithoutState {
		return nil
	}
	text, ok := rawjson.String(token)
	if !ok {
		return errState("it is missing")
	}
	keys, err := x.h.keys(ctx)
	if err != nil {
		return errStore(err)
	}
	plain, ok := keys.unseal(text, x.binding())
	var s sealed
	if !ok || json.Unmarshal(plain, &s) != nil {
		return errState("it was not made by this server for this call and this client")
	}
	if time.Now().Unix() > s.Until {
		return errState("it has expired")
	}
	for key := range rawjson.Members(responses) {
		if s.Asked != nil && !slices.Contains(s.Asked, key) {
			return errState("params.inputResponses has an answer to what was not asked")
		}
	}
	x.opened = s
	if s.State == nil {
		x.msg.params = rawjson.Delete(x.msg.params, "requestState")
	} else {
		x.msg.params = rawjson.Set(x.msg.params, "requestState", encode(*s.State))
	}
	return nil
}

// useUp makes sure that a state which is for one use is used for the first time. It comes last of what may refuse the call: a
// client that is refused for something else must be able to come back. A write that fails may have happened: whose it is says
// what is written.
func (x *exchange) useUp(ctx context.Context) *failure {
	s := x.opened
	if !x.h.opts.SingleUseState || s.Serial == "" {
		return nil
	}
	ctx, stop := toStore(ctx)
	defer stop()
	mine, until := []byte(newKey()), time.Unix(s.Until, 0).Add(time.Hour)
	err := persist(ctx, func() error {
		err := x.h.store.PutAnswer(ctx, usedStates, s.Serial, mine, until)
		if !errors.Is(err, store.ErrExists) {
			return err
		}
		by, err := x.h.store.Answer(ctx, usedStates, s.Serial)
		if err == nil && !bytes.Equal(by, mine) {
			return store.ErrExists
		}
		return err
	})
	switch {
	case errors.Is(err, store.ErrExists):
		return errState("it has been used")
	case err != nil:
		return errStore(err)
	}
	return nil
}

// usedStates is the exchange that the marks of used states belong to.
const usedStates = "used-state"

// binding is what a state is good for: this principal, server, method, tool or prompt or resource, and arguments.
func (x *exchange) binding() []byte {
	arguments, _ := rawjson.Get(x.msg.params, "arguments")
	digest := sha256.Sum256(canonical(arguments))
	return encode([]string{
		x.principal, x.name, x.msg.method, stringParam(x.msg, nameKey[x.msg.method]),
		base64.RawURLEncoding.EncodeToString(digest[:]),
	})
}

const purposeState = "request state"

// seal encrypts and authenticates plain for one binding.
func (k keyring) seal(plain, binding []byte) string {
	return base64.RawURLEncoding.EncodeToString(aead(k[0]).Seal(nil, nil, plain, binding))
}

func (k keyring) unseal(token string, binding []byte) ([]byte, bool) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil {
		return nil, false
	}
	for _, key := range k {
		if plain, err := aead(key).Open(nil, nil, raw, binding); err == nil {
			return plain, true
		}
	}
	return nil, false
}

// aead is AES-256-GCM under a key derived for this purpose, with random nonces.
func aead(key []byte) cipher.AEAD {
	derived, err := hkdf.Key(sha256.New, key, nil, "hydrant "+purposeState, keySize)
	if err != nil {
		panic(err) // only for a length that is too large
	}
	block, err := aes.NewCipher(derived)
	if err != nil {
		panic(err) // only for a key of another size
	}
	gcm, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // only for another cipher
	}
	return gcm
}
