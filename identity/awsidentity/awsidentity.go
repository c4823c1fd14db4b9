// Package awsidentity takes the identities that API Gateway and Lambda's Function URLs have verified, for
// handler.Options.Identify.
//
//	handler.New(server, store, &handler.Options{Identify: awsidentity.JWTAuthorizer()})
//
// All of them read the request context of the event (see RequestContext of package adapters/lambda), which no HTTP
// client can write, and no header. Whoever may invoke the function directly (lambda:InvokeFunction) writes the whole
// event, and so can be anybody: grant that to front doors only.
//
// Where a request has no identity of the kind that is asked for, because its route has no authorizer or it came through
// another front door, the error is [identity.ErrNobody], and the request is refused.
package awsidentity

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"

	"github.com/hydrant-mcp/hydrant/adapters/lambda"
	"github.com/hydrant-mcp/hydrant/identity"
)

// BaseURL is for BaseURLOf of [identity.ResourceOptions]: the domain and the stage that the event names. For a load
// balancer it is the request's Host, which a client can choose unless a listener rule limits it: configure the
// BaseURL there.
func BaseURL(r *http.Request) string { return lambda.RequestContext(r.Context()).BaseURL() }

// JWTAuthorizer takes the token that a JWT authorizer of an HTTP API, or a Cognito authorizer of a REST API, has
// checked: "iss" and "sub" as issuer and subject, the scopes of "scope" or else of "scp", "exp" as the expiration,
// and all claims in TokenInfo.Extra, each a string. They make the same principal as the token itself does with
// [identity.JWT].
func JWTAuthorizer() func(*http.Request) (*auth.TokenInfo, error) {
	return func(r *http.Request) (*auth.TokenInfo, error) {
		claims := lambda.RequestContext(r.Context()).Claims()
		if claims["iss"] == "" || claims["sub"] == "" {
			return nil, identity.ErrNobody
		}
		info := &auth.TokenInfo{
			UserID:     claims["sub"],
			Scopes:     scopes(claims),
			Expiration: expiration(claims["exp"]),
			Extra:      make(map[string]any, len(claims)),
		}
		for name, value := range claims {
			info.Extra[name] = value
		}
		return info, nil
	}
}

func scopes(claims map[string]string) []string {
	list, ok := claims["scope"]
	if !ok {
		list = claims["scp"]
	}
	// A REST API leaves an array in JSON, an HTTP API writes it as [a b]. Nothing else separates: a scope may have a comma.
	var all []string
	if json.Unmarshal([]byte(list), &all) == nil {
		return all
	}
	if strings.HasPrefix(list, "[") && strings.HasSuffix(list, "]") {
		list = list[1 : len(list)-1]
	}
	return strings.Fields(list)
}

// expiration is that of a token which the gateway has found good. An HTTP API has seconds, a Cognito authorizer a date.
func expiration(exp string) time.Time {
	if seconds, err := strconv.ParseInt(exp, 10, 64); err == nil {
		return time.Unix(seconds, 0)
	}
	t, _ := time.Parse(time.UnixDate, exp)
	return t
}

// LambdaAuthorizerOptions of [LambdaAuthorizer]. The zero value takes the principalId of a REST API's authorizer.
type LambdaAuthorizerOptions struct {
	// Issuer is the issuer of all subjects. Default: "apigateway:" and the id of the API.
	Issuer string
	// SubjectKey names the entry of the authorizer's output that is the subject. The authorizer must fill it for
	// everybody with something that nobody else gets. An HTTP API passes on only what is in the output's "context".
	// Default: principalId.
	SubjectKey string
	// ScopesKey names the entry that is the scopes, with spaces in between. Default: none, nobody has scopes.
	ScopesKey string
}

// LambdaAuthorizer takes what a Lambda authorizer of a REST or an HTTP API has said. All of its output is in
// TokenInfo.Extra; "iss" there is the issuer, whatever the authorizer calls so.
func LambdaAuthorizer(opts LambdaAuthorizerOptions) func(*http.Request) (*auth.TokenInfo, error) {
	if opts.SubjectKey == "" {
		opts.SubjectKey = "principalId"
	}
	return func(r *http.Request) (*auth.TokenInfo, error) {
		c := lambda.RequestContext(r.Context())
		output := c.Authorizer()
		subject, ok := output[opts.SubjectKey].(string)
		if !ok || subject == "" {
			return nil, identity.ErrNobody
		}
		info := &auth.TokenInfo{UserID: subject, Extra: make(map[string]any, len(output)+1)}
		for name, value := range output {
			info.Extra[name] = value
		}
		if info.Extra["iss"] = opts.Issuer; opts.Issuer == "" {
			info.Extra["iss"] = "apigateway:" + apiID(c)
		}
		if opts.ScopesKey != "" {
			list, _ := output[opts.ScopesKey].(string)
			info.Scopes = strings.Fields(list)
		}
		return info, nil
	}
}

func apiID(c *lambda.EventContext) string {
	if h, ok := c.HTTP(); ok {
		return h.APIID
	}
	r, _ := c.REST()
	return r.APIID
}

// IAM takes who signed the request with AWS credentials, where the front door's authorization is AWS_IAM: a Function
// URL, a REST or an HTTP API. The issuer is the caller's account, the subject the ARN of the user or of the session
// of a role.
//
// Whoever may assume a role may name the session, unless its trust policy says how (sts:RoleSessionName): two people
// with one role can be the same principal.
//
// All users of a Cognito identity pool share one ARN. An API says which identity it is, which is the subject then, with
// "cognito-identity.amazonaws.com" as issuer; a Function URL does not, and they are refused.
func IAM() func(*http.Request) (*auth.TokenInfo, error) {
	return func(r *http.Request) (*auth.TokenInfo, error) {
		c := lambda.RequestContext(r.Context())
		caller, ok := c.IAM()
		if !ok || caller.UserARN == "" {
			return nil, identity.ErrNobody
		}
		issuer, subject := caller.AccountID, caller.UserARN
		if id := cognitoIdentity(c); id != "" {
			issuer, subject = "cognito-identity.amazonaws.com", id
		} else if strings.HasSuffix(subject, "/CognitoIdentityCredentials") {
			return nil, fmt.Errorf("awsidentity: users of an identity pool cannot be told apart here: %w", auth.ErrInvalidToken)
		}
		return &auth.TokenInfo{UserID: subject, Extra: map[string]any{
			"iss": issuer, "account": caller.AccountID, "arn": caller.UserARN, "caller": caller.CallerID,
		}}, nil
	}
}

func cognitoIdentity(c *lambda.EventContext) string {
	if h, ok := c.HTTP(); ok && h.Authorizer != nil && h.Authorizer.IAM != nil {
		return h.Authorizer.IAM.CognitoIdentity.IdentityID
	}
	r, _ := c.REST()
	return r.Identity.CognitoIdentityID
}
