package server

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strings"
)

// developmentKey signs request state where no keys are configured. Everybody knows it. A random key would be worse: the
// processes behind a proxy would refuse each other's state.
var developmentKey = []byte("hydrant example: known to everybody")

// errForged says that a request state was not signed here, or not for this use.
var errForged = errors.New("the request state is not one of this server's")

// A signer signs what a tool gives its client to bring back, and verifies it wherever it comes back to. The client can
// read a signed state and cannot change it, nor use it for another tool or with other arguments.
type signer struct {
	keys [][]byte // the first signs, all verify
}

func newSigner(secrets [][]byte) signer {
	if len(secrets) == 0 {
		secrets = [][]byte{developmentKey}
	}
	s := signer{}
	for _, secret := range secrets {
		// A key of its own: the secrets are for sealing as well, and no key should have two uses.
		key, err := hkdf.Key(sha256.New, secret, nil, "hydrant everything example: request state", sha256.Size)
		if err != nil {
			panic(err) // asks for more bytes than HKDF has, which a constant does not
		}
		s.keys = append(s.keys, key)
	}
	return s
}

// sign returns payload with a signature that holds for this use of it only.
func (s signer) sign(use, payload string) string {
	return encode([]byte(payload)) + "." + encode(mac(s.keys[0], use, payload))
}

// verify returns the payload of a state that sign made for the same use.
func (s signer) verify(use, state string) (string, error) {
	encoded, signature, _ := strings.Cut(state, ".")
	payload, err := decode(encoded)
	if err != nil {
		return "", errForged
	}
	got, err := decode(signature)
	if err != nil {
		return "", errForged
	}
	for _, key := range s.keys {
		if hmac.Equal(got, mac(key, use, string(payload))) {
			return string(payload), nil
		}
	}
	return "", errForged
}

func mac(key []byte, use, payload string) []byte {
	h := hmac.New(sha256.New, key)
	// The digest has a fixed length, so that no part of the use can be taken for the payload.
	digest := sha256.Sum256([]byte(use))
	h.Write(digest[:])
	h.Write([]byte(payload))
	return h.Sum(nil)
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// decode is strict: two spellings of one state would be two states to whoever remembers those that were used.
func decode(s string) ([]byte, error) { return base64.RawURLEncoding.Strict().DecodeString(s) }
