package identity_test

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/identity"
)

// inTime runs a test in which time passes only while everybody waits, with an issuer that needs no network.
func inTime(t *testing.T, test func(t *testing.T, i *issuer, opts identity.JWTOptions)) {
	synctest.Test(t, func(t *testing.T) {
		i := &issuer{url: "https://issuer.example", metadata: map[string]any{}}
		opts := i.options()
		opts.Client = &http.Client{Transport: i}
		test(t, i, opts)
	})
}

func TestAnUnknownKeyIsAskedForOnceInAnInterval(t *testing.T) {
	inTime(t, func(t *testing.T, i *issuer, opts identity.JWTOptions) {
		first, second := newKey(t, "1", "EdDSA"), newKey(t, "2", "EdDSA")
		i.publish(first)
		v := newVerifier(t, opts)
		require.EqualValues(t, 1, i.requests.Load(), "before there is any token")
		require.NoError(t, check(v, first.token(t, i.url, nil)))
		require.EqualValues(t, 1, i.requests.Load())

		i.publish(first, second)
		time.Sleep(30 * time.Second)
		require.NoError(t, check(v, second.token(t, i.url, nil)), "a new key is good at once")
		require.EqualValues(t, 2, i.requests.Load())

		stranger := newKey(t, "stranger", "EdDSA").token(t, i.url, nil)
		for range 100 {
			require.ErrorIs(t, check(v, stranger), auth.ErrInvalidToken)
		}
		assert.EqualValues(t, 2, i.requests.Load(), "strangers cannot make it ask again")
		time.Sleep(30 * time.Second)
		for range 100 {
			require.ErrorIs(t, check(v, stranger), auth.ErrInvalidToken)
		}
		assert.EqualValues(t, 3, i.requests.Load())
	})
}

func TestAKeyThatIsWithdrawnIsNoLongerGood(t *testing.T) {
	inTime(t, func(t *testing.T, i *issuer, opts identity.JWTOptions) {
		first, second := newKey(t, "1", "EdDSA"), newKey(t, "2", "EdDSA")
		i.publish(first)
		v := newVerifier(t, opts)
		i.publish(second)
		time.Sleep(time.Hour - time.Second)
		require.NoError(t, check(v, first.token(t, i.url, nil)))
		time.Sleep(time.Second)
		assert.ErrorIs(t, check(v, first.token(t, i.url, nil)), auth.ErrInvalidToken)
		assert.NoError(t, check(v, second.token(t, i.url, nil)))
		assert.EqualValues(t, 2, i.requests.Load())
	})
}

func TestKnownKeysOutliveAnOutage(t *testing.T) {
	inTime(t, func(t *testing.T, i *issuer, opts identity.JWTOptions) {
		log := &logBuffer{}
		opts.Logger = slog.New(slog.NewTextHandler(log, nil))
		known, unknown := newKey(t, "1", "EdDSA"), newKey(t, "2", "EdDSA")
		i.publish(known)
		v := newVerifier(t, opts)
		i.down.Store(true)
		for passed := time.Duration(0); passed < 23*time.Hour; passed += time.Hour {
			time.Sleep(time.Hour)
			require.NoError(t, check(v, known.token(t, i.url, nil)), passed)
		}
		err := check(v, unknown.token(t, i.url, nil))
		require.ErrorIs(t, err, identity.ErrUnavailable)
		require.NotErrorIs(t, err, auth.ErrInvalidToken, "nothing is known against this token")
		assert.Contains(t, log.String(), "level=WARN")
		assert.NotContains(t, log.String(), "level=ERROR")

		time.Sleep(time.Hour)
		err = check(v, known.token(t, i.url, nil))
		require.ErrorIs(t, err, identity.ErrUnavailable, "a day is enough")
		require.NotErrorIs(t, err, auth.ErrInvalidToken)
		assert.Contains(t, log.String(), "level=ERROR")

		i.down.Store(false)
		time.Sleep(30 * time.Second)
		assert.NoError(t, check(v, known.token(t, i.url, nil)))
	})
}

// An unknown key, while nobody can say whether it is new.
func TestRequestsThatFailAreRepeatedWithPauses(t *testing.T) {
	inTime(t, func(t *testing.T, i *issuer, opts identity.JWTOptions) {
		k := newKey(t, "1", "EdDSA")
		i.publish(k)
		i.down.Store(true)
		v := newVerifier(t, opts) // starts all the same
		began := time.Now()
		var pauses []time.Duration
		for last := began; len(pauses) < 7; {
			time.Sleep(100 * time.Millisecond)
			before := i.requests.Load()
			require.ErrorIs(t, check(v, k.token(t, i.url, nil)), identity.ErrUnavailable)
			if i.requests.Load() > before {
				pauses = append(pauses, time.Since(last))
				last = time.Now()
			}
		}
		assert.Equal(t, []time.Duration{
			time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 30 * time.Second, 30 * time.Second,
		}, pauses)
	})
}

// A set without a key is a mistake of the issuer's, or of something in between.
func TestAnEmptyKeySetIsAnOutage(t *testing.T) {
	inTime(t, func(t *testing.T, i *issuer, opts identity.JWTOptions) {
		k := newKey(t, "1", "EdDSA")
		i.publish(k)
		v := newVerifier(t, opts)
		for _, bad := range []any{
			map[string]any{"keys": []any{}}, map[string]any{}, "text", []byte("<html>"), []byte(strings.Repeat(" ", 2<<20)),
		} {
			i.publishAny(bad)
			time.Sleep(time.Hour)
			require.NoError(t, check(v, k.token(t, i.url, nil)))
		}
	})
}

// stuck answers nothing until the request's context ends.
type stuck struct{}

func (stuck) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func TestAnIssuerThatHangsIsAnOutage(t *testing.T) {
	inTime(t, func(t *testing.T, i *issuer, opts identity.JWTOptions) {
		opts.Client.Transport = stuck{}
		began := time.Now()
		v := newVerifier(t, opts)
		assert.Equal(t, 5*time.Second, time.Since(began))
		token := newKey(t, "1", "EdDSA").token(t, i.url, nil)

		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		_, err := v(ctx, token, nil)
		assert.ErrorIs(t, err, identity.ErrUnavailable)
		assert.NotErrorIs(t, err, auth.ErrInvalidToken)
		assert.Equal(t, time.Second, time.Since(began), "the platform's deadline counts")
	})
}

func TestOneAsksAndTheOthersWait(t *testing.T) {
	inTime(t, func(t *testing.T, i *issuer, opts identity.JWTOptions) {
		known, unknown := newKey(t, "1", "EdDSA"), newKey(t, "2", "EdDSA")
		i.publish(known)
		opts.Client.Transport = slowTransport{i}
		v := newVerifier(t, opts)
		i.publish(known, unknown)
		time.Sleep(time.Hour)

		var all sync.WaitGroup
		for range 50 {
			all.Go(func() { assert.NoError(t, check(v, unknown.token(t, i.url, nil))) })
			all.Go(func() { assert.NoError(t, check(v, known.token(t, i.url, nil))) })
		}
		all.Wait()
		assert.EqualValues(t, 2, i.requests.Load())
	})
}

// A client that goes away while the keys are asked for must not keep them from the others.
func TestAClientThatGoesAwayDoesNotStopTheRefresh(t *testing.T) {
	inTime(t, func(t *testing.T, i *issuer, opts identity.JWTOptions) {
		opts.Client.Transport = slowTransport{i}
		k := newKey(t, "1", "EdDSA")
		i.publish(k)
		v := newVerifier(t, opts)
		next := newKey(t, "2", "EdDSA")
		i.publish(k, next)
		time.Sleep(time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			_, err := v(ctx, next.token(t, i.url, nil), nil)
			assert.NoError(t, err)
		})
		synctest.Wait()
		cancel()
		all.Go(func() { assert.NoError(t, check(v, next.token(t, i.url, nil))) })
		all.Go(func() {
			began := time.Now()
			assert.NoError(t, check(v, k.token(t, i.url, nil)))
			assert.Zero(t, time.Since(began), "whose key is known does not wait")
		})
		gone, leave := context.WithCancel(t.Context())
		all.Go(func() {
			_, err := v(gone, next.token(t, i.url, nil), nil)
			assert.ErrorIs(t, err, context.Canceled, "and whoever only waits may go")
		})
		synctest.Wait()
		leave()
		all.Wait()
		assert.EqualValues(t, 2, i.requests.Load())
	})
}

type slowTransport struct{ next http.RoundTripper }

func (s slowTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-time.After(time.Second):
	case <-r.Context().Done():
	}
	return s.next.RoundTrip(r)
}
