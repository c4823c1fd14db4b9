package identity

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
)

// What Google says about IAP's signed headers (https://cloud.google.com/iap/docs/signed-headers-howto).
const (
	headerIAP = "X-Goog-IAP-JWT-Assertion"
	issuerIAP = "https://cloud.google.com/iap"
	keysIAP   = "https://www.gstatic.com/iap/verify/public_key-jwk"
	skewIAP   = 30 * time.Second
	algIAP    = "ES256"
)

// IAPOptions of [IAP]. Audience has no default.
type IAPOptions struct {
	// Audience is what the header must be for. It names the service that IAP protects: with IAP on the Cloud Run service
	// itself /projects/NUMBER/locations/REGION/services/SERVICE, behind a load balancer
	// /projects/NUMBER/global/backendServices/ID. With any other, whoever has IAP anywhere could make identities for here.
	Audience string
	// KeysURL is where Google's keys are. It is for tests. Default: https://www.gstatic.com/iap/verify/public_key-jwk
	KeysURL string
	// Client asks for the keys. Default: http.DefaultClient.
	Client *http.Client
	// Logger is as in [JWTOptions].
	Logger *slog.Logger
}

// IAP makes a function for handler.Options.Identify that takes the identity which Google's Identity-Aware Proxy has
// found out, from the header that it signs, X-Goog-IAP-JWT-Assertion. The unsigned headers beside it are never looked
// at. The issuer is https://cloud.google.com/iap, the subject "accounts.google.com:" and a number; TokenInfo.Extra
// has all claims, "email" among them.
//
// Without the header the function's error is [ErrNobody]: the request has not come through IAP. Its other errors are
// those of the verifier that [JWT] makes. IAP's own error says that the options are not usable, or that ctx ended.
func IAP(ctx context.Context, opts IAPOptions) (func(*http.Request) (*auth.TokenInfo, error), error) {
	if opts.KeysURL == "" {
		opts.KeysURL = keysIAP
	}
	v, err := newVerifier(ctx, JWTOptions{
		Issuer: issuerIAP, Audiences: []string{opts.Audience}, KeysURL: opts.KeysURL, Algorithms: []string{algIAP},
		ClockSkew: skewIAP, Client: opts.Client, Logger: opts.Logger,
	})
	if err != nil {
		return nil, fmt.Errorf("identity: IAP: %w", err)
	}
	return func(r *http.Request) (*auth.TokenInfo, error) {
		switch header := r.Header.Values(headerIAP); len(header) {
		case 0:
			return nil, ErrNobody
		case 1:
			return v.verify(r.Context(), header[0])
		default:
			return nil, invalid("there is more than one " + headerIAP)
		}
	}, nil
}
