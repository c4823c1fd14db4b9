package identity

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A clock that was set back makes keys neither young for ever nor unknown.
func TestAClockThatWasSetBack(t *testing.T) {
	requests := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if requests++; requests == 2 {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		_, _ = w.Write([]byte(`{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`))
	}))
	defer srv.Close()
	k, err := newKeys(t.Context(), JWTOptions{
		Issuer: "https://issuer.example", KeysURL: srv.URL, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	any := func(jose.JSONWebKey) bool { return true }
	k.loaded = time.Now().Add(time.Hour)
	found, err := k.find(t.Context(), any)
	assert.NoError(t, err)
	assert.Len(t, found, 1, "while the issuer does not answer")
	assert.Equal(t, 2, requests)

	k.failed = time.Now().Add(time.Hour)
	_, err = k.find(t.Context(), any)
	assert.NoError(t, err)
	assert.Equal(t, 3, requests)
	assert.Less(t, k.age(), time.Minute)
}
