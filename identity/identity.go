package identity

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/auth"
)

var (
	// ErrNobody says that a request carries no identity of the kind that is asked for. It is an auth.ErrInvalidToken too:
	// whoever asks for an identity and forgets about this error refuses the request, and does not serve it to anybody.
	ErrNobody = fmt.Errorf("identity: the request carries no identity: %w", auth.ErrInvalidToken)

	// ErrUnavailable says that credentials could not be checked because their issuer's keys could not be had. It is no
	// auth.ErrInvalidToken: nothing is known against the credentials.
	ErrUnavailable = errors.New("identity: the issuer's keys are not available")
)

// First asks functions for handler.Options.Identify one after the other, and gives the first identity that there is. An
// error other than [ErrNobody] ends the search: a request with bad credentials of one kind is not served by another.
func First(identify ...func(*http.Request) (*auth.TokenInfo, error)) func(*http.Request) (*auth.TokenInfo, error) {
	return func(r *http.Request) (*auth.TokenInfo, error) {
		for _, f := range identify {
			if info, err := f(r); !errors.Is(err, ErrNobody) {
				return info, err
			}
		}
		return nil, ErrNobody
	}
}

// Optional makes of a function for handler.Options.Identify one for endpoints that serve anybody: instead of
// [ErrNobody] it gives nil, which is nobody. Bad credentials stay an error.
func Optional(identify func(*http.Request) (*auth.TokenInfo, error)) func(*http.Request) (*auth.TokenInfo, error) {
	return func(r *http.Request) (*auth.TokenInfo, error) {
		info, err := identify(r)
		if errors.Is(err, ErrNobody) {
			return nil, nil
		}
		return info, err
	}
}
