package handler

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/store"
)

func TestWhatTheClientToldIsRehydrated(t *testing.T) {
	modes(t, setup{}, func(t *testing.T, e *endpoint) {
		for _, version := range legacyVersions {
			s := e.initialize(version, `{"roots":{"listChanged":true},"elicitation":{},"sampling":{}}`)
			r := s.call("session", `{}`)
			assert.JSONEq(t, `{"version":"`+version+`","client":{"name":"t","version":"0"},"roots":{"listChanged":true},
				"capabilities":{"roots":{"listChanged":true},"elicitation":{},"sampling":{}}}`, r.text())
			assert.Equal(t, 202, s.post(initialized).status)

			assert.Empty(t, notifications(s.call("log", `{}`)), "no level, no messages")
			assert.Equal(t, 200, s.post(`{"jsonrpc":"2.0","id":5,"method":"logging/setLevel","params":{"level":"info"}}`).status)
			assert.Len(t, notifications(s.call("log", `{}`)), 2, "info and error")

			for _, method := range []string{"subscribe", "subscribe", "unsubscribe"} {
				r := s.post(`{"jsonrpc":"2.0","id":6,"method":"resources/` + method + `","params":{"uri":"test://one"}}`)
				assert.JSONEq(t, `{}`, string(r.result()), r.body)
				stored := e.stored(s)
				assert.Equal(t, method == "subscribe", len(stored.Subscriptions) == 1)
			}
			stored := e.stored(s)
			assert.True(t, stored.Initialized)
			assert.Equal(t, "info", stored.LogLevel)
		}
	})
}

// notifications gives what came before the response.
func notifications(r reply) []string {
	if len(r.events) == 0 {
		return nil
	}
	return r.events[:len(r.events)-1]
}

func (e *endpoint) stored(s *session) *store.Session {
	e.t.Helper()
	stored, err := e.store.Store.Session(e.t.Context(), sessionKey(defaultName, s.id))
	require.NoError(e.t, err)
	return stored
}

func TestTheStoreNeverSeesASessionID(t *testing.T) {
	modes(t, setup{}, func(t *testing.T, e *endpoint) {
		s := e.session(version20251125)
		assert.NotContains(t, fmt.Sprintf("%+v", e.stored(s)), s.id)
		assert.GreaterOrEqual(t, len(s.id)*5, 128, "base32: five bits a character")
		ids := sync.Map{}
		for range 100 {
			_, twice := ids.LoadOrStore(newSessionID(), true)
			assert.False(t, twice)
		}
	})
}

func TestStoreOperationsPerMessage(t *testing.T) {
	modes(t, setup{}, func(t *testing.T, e *endpoint) {
		s := e.initialize(version20251125, `{}`)
		assert.Equal(t, map[string]int{"create": 1}, e.store.spent())
		s.post(initialized)
		assert.Equal(t, map[string]int{"read": 1, "update": 1}, e.store.spent())
		s.post(initialized)
		assert.Equal(t, map[string]int{"read": 1}, e.store.spent(), "nothing new")
		s.call("echo", `{}`)
		assert.Equal(t, map[string]int{"read": 1}, e.store.spent())
		s.post(`{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`)
		assert.Equal(t, map[string]int{"read": 1}, e.store.spent())
		s.post(`{"jsonrpc":"2.0","id":5,"method":"logging/setLevel","params":{"level":"info"}}`)
		assert.Equal(t, map[string]int{"read": 1, "update": 1}, e.store.spent())
		s.post(`{"jsonrpc":"2.0","id":5,"method":"resources/subscribe","params":{"uri":"test://one"}}`)
		assert.Equal(t, map[string]int{"read": 1, "update": 1, "raise": 1}, e.store.spent())
		s.send(http.MethodDelete, "")
		assert.Equal(t, map[string]int{"read": 1, "delete": 1}, e.store.spent())
		e.post(pingBody)
		e.modernCall("echo", `{}`)
		s.post(listTools, headerSession, "not-one-of-ours")
		assert.Empty(t, e.store.spent())
	})
}

func TestASessionSlides(t *testing.T) {
	const ttl = time.Hour
	modes(t, setup{opts: Options{SessionTTL: ttl}}, func(t *testing.T, e *endpoint) {
		s := e.session(version20251125)
		age := func(by time.Duration) { // as if it had been idle
			stored := e.stored(s)
			stored.Expires = time.Now().Add(ttl - by)
			require.NoError(t, e.store.Store.UpdateSession(t.Context(), stored))
			e.store.spent()
		}
		age(10 * time.Minute)
		assert.Equal(t, 200, s.post(listTools).status)
		assert.Zero(t, e.store.spent()["update"], "too early to be worth a write")
		age(20 * time.Minute)
		assert.Equal(t, 200, s.post(listTools).status)
		assert.WithinDuration(t, time.Now().Add(ttl), e.stored(s).Expires, time.Minute)
		age(ttl)
		assert.Equal(t, 404, s.post(listTools).status)
		assert.Equal(t, 404, s.send("GET", "", "Accept", "text/event-stream").status)
		assert.Equal(t, 404, s.send("DELETE", "").status)
	})
}

func TestASessionHasAnAbsoluteLimit(t *testing.T) {
	modes(t, setup{opts: Options{SessionTTL: time.Hour, SessionLifetime: 90 * time.Minute}}, func(t *testing.T, e *endpoint) {
		s := e.session(version20251125)
		id := newSessionID()
		old := *e.stored(s)
		old.Key, old.Created, old.Expires = sessionKey(defaultName, id), time.Now().Add(-80*time.Minute), time.Now().Add(time.Minute)
		require.NoError(t, e.store.Store.CreateSession(t.Context(), &old))
		assert.Equal(t, 200, e.post(listTools, headerSession, id).status)
		assert.WithinDuration(t, time.Now().Add(10*time.Minute), e.stored(&session{e, id}).Expires, time.Minute)

		id = newSessionID()
		old.Key, old.Created, old.Expires = sessionKey(defaultName, id), time.Now().Add(-91*time.Minute), time.Now().Add(time.Minute)
		require.NoError(t, e.store.Store.CreateSession(t.Context(), &old))
		assert.Equal(t, 404, e.post(listTools, headerSession, id).status)
	})
}

func TestARenewalThatFailsCostsNothing(t *testing.T) {
	e := open(t, setup{opts: Options{SessionTTL: time.Hour}}, true)
	s := e.session(version20251125)
	stored := e.stored(s)
	stored.Expires = time.Now().Add(time.Minute)
	require.NoError(t, e.store.Store.UpdateSession(t.Context(), stored))
	e.store.failOnly("update", store.Wrap("test", store.ErrThrottled, nil))
	assert.Equal(t, 200, s.post(listTools).status)
	assert.Equal(t, "WARN", e.log.level("could not be renewed"))
}

func TestASessionBelongsToItsPrincipal(t *testing.T) {
	token := func(r *http.Request) *auth.TokenInfo {
		issuer, rest, ok := strings.Cut(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), "/")
		if !ok {
			return nil
		}
		user, _, _ := strings.Cut(rest, "/")
		return &auth.TokenInfo{UserID: user, Expiration: time.Now().Add(time.Hour), Extra: map[string]any{"iss": issuer}}
	}
	modes(t, setup{token: token}, func(t *testing.T, e *endpoint) {
		const alice, aliceLater = "Bearer issuer/alice/1", "Bearer issuer/alice/2"
		s := e.initialize(version20251125, `{}`, "Authorization", alice)
		missing := e.post(listTools, headerSession, newSessionID(), "Authorization", alice)
		require.Equal(t, 404, missing.status)
		for name, who := range map[string]string{"another user": "Bearer issuer/bob/1", "another issuer": "Bearer other/alice/1", "nobody": ""} {
			for _, r := range []reply{
				s.post(listTools, "Authorization", who),
				s.post(initialized, "Authorization", who),
				s.post(`{"jsonrpc":"2.0","id":"q","result":{}}`, "Authorization", who),
				s.send("GET", "", "Accept", "text/event-stream", "Authorization", who),
				s.send("DELETE", "", "Authorization", who),
			} {
				assert.Equal(t, missing.status, r.status, name)
				assert.Equal(t, missing.body, r.body, name)
			}
		}
		assert.Equal(t, 200, s.post(listTools, "Authorization", alice).status)
		assert.Equal(t, 200, s.post(listTools, "Authorization", aliceLater).status, "a refreshed token")
		assert.Equal(t, 204, s.send("DELETE", "", "Authorization", aliceLater).status)
	})
}

func TestTenantsDoNotShareSessions(t *testing.T) {
	tenant := func(r *http.Request) (string, *mcp.Server, error) {
		name := r.Header.Get("X-Tenant")
		switch name {
		case "":
			return "", nil, nil
		case "down":
			return "", nil, errors.New("no tenant")
		}
		return name, mcp.NewServer(&mcp.Implementation{Name: name, Version: "1"}, nil), nil
	}
	modes(t, setup{opts: Options{Tenant: tenant}}, func(t *testing.T, e *endpoint) {
		r := e.post(initBody(version20251125, `{}`), "X-Tenant", "a")
		assert.Contains(t, r.body, `"name":"a"`)
		id := r.header.Get(headerSession)
		assert.Equal(t, 200, e.post(pingBody, headerSession, id, "X-Tenant", "a").status)
		assert.Equal(t, 404, e.post(pingBody, headerSession, id, "X-Tenant", "b").status)
		assert.Equal(t, 404, e.post(pingBody).status)
		r = e.post(pingBody, "X-Tenant", "down")
		assert.Equal(t, 503, r.status, "an outage is not absence")
		assert.NotContains(t, r.body, "no tenant", "the cause is for the log")
	})
}

func TestSubscriptionsAreBounded(t *testing.T) {
	subscribe := func(uri string) string {
		return `{"jsonrpc":"2.0","id":6,"method":"resources/subscribe","params":{"uri":"` + uri + `"}}`
	}
	modes(t, setup{opts: Options{MaxSubscriptions: 2}}, func(t *testing.T, e *endpoint) {
		s := e.session(version20251125)
		assert.Zero(t, s.post(subscribe("test://1")).code())
		assert.Equal(t, -32602, s.post(subscribe("test://"+strings.Repeat("x", maxURI))).code())
		assert.Zero(t, s.post(subscribe("test://2")).code())
		assert.Equal(t, -32602, s.post(subscribe("test://3")).code())
		assert.Equal(t, 200, s.post(listTools).status, "the session lives")
	})
}

func TestLargeInitializeIsRefused(t *testing.T) {
	e := open(t, setup{}, true)
	r := e.post(initBody(version20251125, `{"experimental":{"x":"`+strings.Repeat("x", maxInitialize)+`"}}`))
	assert.Equal(t, 400, r.status)
	assert.Equal(t, -32602, r.code())
	assert.Empty(t, e.store.spent())
}

func TestSubscribersRaceAndNoneIsLost(t *testing.T) {
	e := open(t, setup{}, true)
	s := e.session(version20251125)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			r := s.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":6,"method":"resources/subscribe","params":{"uri":"test://%d"}}`, i))
			assert.Equal(t, 200, r.status, r.body)
		})
	}
	wg.Wait()
	assert.Len(t, e.stored(s).Subscriptions, 8)
}

func TestLegacyRequestsCannotCarryRounds(t *testing.T) {
	modes(t, setup{}, func(t *testing.T, e *endpoint) {
		s := e.session(version20251125)
		r := s.post(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"params","arguments":{},` +
			`"requestState":"forged","inputResponses":{"x":{"action":"accept"}}}}`)
		assert.NotContains(t, r.text(), "forged")
		assert.NotContains(t, r.text(), "accept")
	})
}
