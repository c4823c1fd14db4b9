package identity

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
)

const (
	// maxStale is for how long keys are trusted that cannot be refreshed. Tokens live shorter, and an issuer that is down
	// makes no new ones.
	maxStale = 24 * time.Hour
	// firstRetry is when a request for the keys is repeated that has failed; the time doubles from then on.
	firstRetry = time.Second
	// maxKeys bounds what a token without a key id costs. The rest of a larger set is not looked at.
	maxKeys = 100
	// minRSABits is RFC 7518, section 3.3.
	minRSABits = 2048
)

// keys are an issuer's, kept and refreshed. There is no goroutine: whoever needs keys that are not there, or are old,
// gets them, and the others who do wait for it. Where a process is frozen between requests, nothing is left to thaw.
type keys struct {
	source   source
	maxAge   time.Duration
	interval time.Duration
	timeout  time.Duration
	logger   *slog.Logger

	mu       sync.Mutex
	known    []jose.JSONWebKey // never changed in place
	loaded   time.Time         // when known was; zero: never
	failed   time.Time         // when the last attempt did, if any since then has
	failures int               // since loaded
	loading  chan struct{}     // closed when the attempt that is under way ends; nil without one
}

// newKeys makes the first attempt. Its error says that the options or the issuer's metadata are not usable, or that
// ctx has ended; an issuer that does not answer is none.
func newKeys(ctx context.Context, o JWTOptions) (*keys, error) {
	src, err := newSource(o)
	if err != nil {
		return nil, err
	}
	k := &keys{
		source:   src,
		maxAge:   cmp.Or(o.KeysMaxAge, defaultKeysMaxAge),
		interval: cmp.Or(o.RefreshInterval, defaultRefreshInterval),
		timeout:  cmp.Or(o.FetchTimeout, defaultFetchTimeout),
		logger:   o.Logger,
	}
	if k.logger == nil {
		k.logger = slog.Default()
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	k.loading = make(chan struct{})
	if err := k.load(ctx); errors.Is(err, errMetadata) {
		return nil, err
	}
	return k, ctx.Err()
}

// find gives the known keys that are wanted, after a refresh if there are none. It gives none, and no error, when the
// issuer says that it has no such key; [ErrUnavailable] when the issuer says nothing.
func (k *keys) find(ctx context.Context, wanted func(jose.JSONWebKey) bool) ([]jose.JSONWebKey, error) {
	for tried := false; ; tried = true {
		k.mu.Lock()
		known, age, failures, loading := k.known, k.age(), k.failures, k.loading
		k.mu.Unlock()

		var found []jose.JSONWebKey
		if age < maxStale {
			for _, key := range known {
				if wanted(key) {
					found = append(found, key)
				}
			}
		}
		// Old keys are good while somebody else gets new ones.
		if len(found) > 0 && (age < k.maxAge || tried || loading != nil) {
			return found, nil
		}
		if !tried {
			lead, wait := k.lead()
			if lead {
				_ = k.load(ctx) // which logs it
				continue
			}
			if wait != nil {
				select {
				case <-wait:
					continue
				case <-ctx.Done():
					return nil, fmt.Errorf("%w: %w", ErrUnavailable, context.Cause(ctx))
				}
			}
		}
		if len(found) > 0 || failures == 0 && age < maxStale {
			return found, nil
		}
		return nil, ErrUnavailable
	}
}

// age is that of the known keys. A clock that was set back makes them old, not young; the wall clock, because the
// other one may stand still while a process is frozen.
func (k *keys) age() time.Duration {
	if k.loaded.IsZero() {
		return maxStale
	}
	if age := since(k.loaded); age >= 0 {
		return age
	}
	return k.maxAge
}

func since(t time.Time) time.Duration { return time.Now().Round(0).Sub(t) }

// lead says whether the caller is to get new keys; else wait is closed when somebody else has, and nil when it is too
// soon.
func (k *keys) lead() (lead bool, wait <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.loading != nil {
		return false, k.loading
	}
	last, pause := k.loaded, k.interval
	if k.failures > 0 {
		last = k.failed
		if doublings := k.failures - 1; doublings < 16 {
			pause = min(firstRetry<<doublings, k.interval)
		}
	}
	if passed := since(last); passed >= 0 && passed < pause {
		return false, nil
	}
	k.loading = make(chan struct{})
	return true, nil
}

// load gets the keys, for whoever has made k.loading.
func (k *keys) load(ctx context.Context) (err error) {
	var got []jose.JSONWebKey
	err = errors.New("it panicked")
	defer func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		close(k.loading)
		k.loading = nil
		now := time.Now().Round(0)
		if err == nil {
			k.known, k.loaded, k.failures = got, now, 0
			return
		}
		k.failed, k.failures = now, k.failures+1
		level, say := slog.LevelError, "no keys of the issuer are known, and they cannot be had"
		if k.age() < maxStale {
			level, say = slog.LevelWarn, "the issuer's keys cannot be refreshed, known ones stay in use"
		}
		k.logger.Log(ctx, level, say, "issuer", k.source.issuer, "error", err)
	}()
	// A client that goes away does not stop it: else strangers who come and go could keep the keys from everybody. The
	// platform's deadline does.
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), k.timeout)
	defer cancel()
	if end, ok := ctx.Deadline(); ok {
		var stop context.CancelFunc
		bounded, stop = context.WithDeadline(bounded, end)
		defer stop()
	}
	got, err = k.source.fetch(bounded)
	return err
}

// decodeKeys reads a JWK Set. What it does not know in it is no error (RFC 7517, section 5); a set without any key of
// use is: an issuer that loses its keys by mistake must not make its tokens bad.
func decodeKeys(body []byte) ([]jose.JSONWebKey, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(body, &set); err != nil {
		return nil, errors.New("the key set is not JSON of that form")
	}
	var usable []jose.JSONWebKey
	for _, raw := range set.Keys {
		var key jose.JSONWebKey
		if len(usable) == maxKeys {
			break
		}
		if json.Unmarshal(raw, &key) == nil && key.Valid() && (key.Use == "" || key.Use == "sig") && strong(key) {
			usable = append(usable, key)
		}
	}
	if len(usable) == 0 {
		return nil, errors.New("the key set has no public key for signatures")
	}
	return usable, nil
}

// strong says whether a key is public, and large enough.
func strong(key jose.JSONWebKey) bool {
	switch public := key.Key.(type) {
	case *rsa.PublicKey:
		return public.N.BitLen() >= minRSABits
	case *ecdsa.PublicKey, ed25519.PublicKey:
		return true
	}
	return false
}

// fits says whether a key is meant for an algorithm. A token does not choose what its issuer's key is used for.
func fits(key jose.JSONWebKey, algorithm string) bool {
	if key.Algorithm != "" && key.Algorithm != algorithm {
		return false
	}
	switch public := key.Key.(type) {
	case *rsa.PublicKey:
		return strings.HasPrefix(algorithm, "RS") || strings.HasPrefix(algorithm, "PS")
	case *ecdsa.PublicKey:
		return algorithm == map[string]string{"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}[public.Params().Name]
	case ed25519.PublicKey:
		return algorithm == string(jose.EdDSA)
	}
	return false
}
