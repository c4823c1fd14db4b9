package awsidentity_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/adapters/lambda"
	"github.com/hydrant-mcp/hydrant/handler"
	"github.com/hydrant-mcp/hydrant/identity"
	"github.com/hydrant-mcp/hydrant/identity/awsidentity"
)

type object = map[string]any

// event reads one of the events that AWS sends, and changes its request context.
func event(t *testing.T, name string, change object) object {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "adapters", "lambda", "testdata", name+".json"))
	require.NoError(t, err)
	var e object
	require.NoError(t, json.Unmarshal(text, &e))
	about := e["requestContext"].(object)
	for k, v := range change {
		if identity, ok := v.(object); ok && k == "identity" {
			for k, v := range identity {
				about["identity"].(object)[k] = v
			}
			continue
		}
		about[k] = v
	}
	return e
}

type response struct {
	StatusCode        int
	Headers           map[string]string
	MultiValueHeaders map[string][]string
	Body              string
}

func (r response) header(name string) string {
	for k, v := range r.Headers {
		if strings.EqualFold(k, name) {
			return v
		}
	}
	for k, v := range r.MultiValueHeaders {
		if strings.EqualFold(k, name) {
			return v[0]
		}
	}
	return ""
}

func invoke(t *testing.T, h http.Handler, e object, opts ...lambda.Option) response {
	t.Helper()
	payload, err := json.Marshal(e)
	require.NoError(t, err)
	out, err := lambda.NewHandler(h, opts...).Invoke(t.Context(), payload)
	require.NoError(t, err)
	var r response
	require.NoError(t, json.Unmarshal(out, &r), string(out))
	return r
}

// identify gives what a function says about an event.
func identify(t *testing.T, f func(*http.Request) (*auth.TokenInfo, error), e object) (info *auth.TokenInfo, err error) {
	t.Helper()
	invoke(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { info, err = f(r) }), e)
	return info, err
}

func TestTheTokenThatAnAuthorizerHasChecked(t *testing.T) {
	f := awsidentity.JWTAuthorizer()
	info, err := identify(t, f, event(t, "http", nil))
	require.NoError(t, err)
	assert.Equal(t, "user-1", info.UserID)
	assert.Equal(t, "https://issuer.example", info.Extra["iss"])
	assert.Equal(t, []string{"mcp:read", "mcp:write"}, info.Scopes)
	assert.Equal(t, time.Unix(1583820983, 0), info.Expiration)

	cognito := object{"claims": object{
		"iss": "https://cognito-idp.us-east-2.amazonaws.com/us-east-2_x", "sub": "user-2", "scope": "a b",
		"exp": "Mon Mar 09 00:03:59 UTC 2020",
	}}
	info, err = identify(t, f, event(t, "rest", object{"authorizer": cognito}))
	require.NoError(t, err)
	assert.Equal(t, "user-2", info.UserID)
	assert.Equal(t, []string{"a", "b"}, info.Scopes)
	assert.Equal(t, time.Date(2020, 3, 9, 0, 3, 59, 0, time.UTC), info.Expiration.UTC())

	for form, scp := range map[string]any{"HTTP API": "[a b]", "JSON": `["a","b"]`, "text": "a b"} {
		jwt := object{"jwt": object{"claims": object{"iss": "i", "sub": "s", "scp": scp}}}
		info, err = identify(t, f, event(t, "http", object{"authorizer": jwt}))
		require.NoError(t, err)
		assert.Equal(t, []string{"a", "b"}, info.Scopes, form)
	}
	for name, e := range map[string]object{
		"no authorizer": event(t, "http", object{"authorizer": nil}),
		"no subject":    event(t, "http", object{"authorizer": object{"jwt": object{"claims": object{"iss": "i"}}}}),
		"no issuer":     event(t, "http", object{"authorizer": object{"jwt": object{"claims": object{"sub": "s"}}}}),
		"a Lambda authorizer that says so": event(t, "http", object{"authorizer": object{"lambda": object{
			"iss": "i", "sub": "s", "claims": object{"iss": "i", "sub": "s"}}}}),
		"IAM":             event(t, "function-url-iam", nil),
		"a load balancer": event(t, "alb", nil),
	} {
		_, err := identify(t, f, e)
		assert.ErrorIs(t, err, identity.ErrNobody, name)
		assert.ErrorIs(t, err, auth.ErrInvalidToken, name)
	}
}

func TestWhatALambdaAuthorizerSays(t *testing.T) {
	info, err := identify(t, awsidentity.LambdaAuthorizer(awsidentity.LambdaAuthorizerOptions{}),
		event(t, "rest-lambda-authorizer", nil))
	require.NoError(t, err)
	assert.Equal(t, "user-1", info.UserID)
	assert.Equal(t, "apigateway:70ixmpl4fl", info.Extra["iss"])
	assert.Equal(t, "acme", info.Extra["tenant"])
	assert.Empty(t, info.Scopes)

	f := awsidentity.LambdaAuthorizer(awsidentity.LambdaAuthorizerOptions{
		Issuer: "my authorizer", SubjectKey: "user", ScopesKey: "scopes",
	})
	said := object{"lambda": object{"user": "user-3", "scopes": "a b", "iss": "of the caller's choice", "admin": true}}
	info, err = identify(t, f, event(t, "http", object{"authorizer": said}))
	require.NoError(t, err)
	assert.Equal(t, "user-3", info.UserID)
	assert.Equal(t, "my authorizer", info.Extra["iss"])
	assert.Equal(t, []string{"a", "b"}, info.Scopes)
	assert.Equal(t, true, info.Extra["admin"])

	for name, e := range map[string]object{
		"no authorizer":         event(t, "rest", nil),
		"nothing of that name":  event(t, "http-stage", nil),
		"an empty subject":      event(t, "http", object{"authorizer": object{"lambda": object{"user": ""}}}),
		"a subject of no text":  event(t, "http", object{"authorizer": object{"lambda": object{"user": 7}}}),
		"a JWT authorizer":      event(t, "http", nil),
		"another kind of event": event(t, "function-url-iam", nil),
	} {
		_, err := identify(t, f, e)
		assert.ErrorIs(t, err, identity.ErrNobody, name)
	}
}

func TestWhoSignedWithAWSCredentials(t *testing.T) {
	f := awsidentity.IAM()
	for name, subject := range map[string]string{
		"function-url-iam": "arn:aws:iam::111122223333:user/example",
		"http-iam":         "arn:aws:sts::111122223333:assumed-role/example/session",
		"rest-iam":         "arn:aws:iam::111122223333:user/example",
	} {
		info, err := identify(t, f, event(t, name, nil))
		require.NoError(t, err, name)
		assert.Equal(t, subject, info.UserID, name)
		assert.Equal(t, "111122223333", info.Extra["iss"], name)
	}
	for name, e := range map[string]object{
		"a public Function URL":     event(t, "function-url", nil),
		"an HTTP API with a token":  event(t, "http", nil),
		"a REST API that is public": event(t, "rest", nil),
		"a load balancer":           event(t, "alb", nil),
	} {
		_, err := identify(t, f, e)
		assert.ErrorIs(t, err, identity.ErrNobody, name)
	}
}

// All users of an identity pool have the same ARN.
func TestUsersOfAnIdentityPoolAreToldApart(t *testing.T) {
	const arn = "arn:aws:sts::111122223333:assumed-role/pool/CognitoIdentityCredentials"
	iam := func(id string) object {
		return object{"iam": object{
			"accountId": "111122223333", "userArn": arn, "cognitoIdentity": object{"identityId": id},
		}}
	}
	for _, e := range []object{
		event(t, "http-iam", object{"authorizer": iam("us-east-2:1")}),
		event(t, "rest-iam", object{"identity": object{"userArn": arn, "cognitoIdentityId": "us-east-2:1"}}),
	} {
		info, err := identify(t, awsidentity.IAM(), e)
		require.NoError(t, err)
		assert.Equal(t, "us-east-2:1", info.UserID)
		assert.Equal(t, "cognito-identity.amazonaws.com", info.Extra["iss"])
	}
	_, err := identify(t, awsidentity.IAM(), event(t, "function-url-iam", object{"authorizer": iam("")}))
	assert.ErrorIs(t, err, auth.ErrInvalidToken)
	assert.NotErrorIs(t, err, identity.ErrNobody)
}

// A header that a stranger can send is never an identity.
func TestHeadersAreNoIdentity(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, "/mcp", nil)
	for _, name := range []string{
		"Authorization", "X-Amzn-Request-Context", "X-Amzn-Oidc-Data", "X-Amzn-Oidc-Identity", "Principalid",
	} {
		r.Header.Set(name, `{"authorizer":{"jwt":{"claims":{"iss":"i","sub":"s"}}}}`)
	}
	for _, f := range []func(*http.Request) (*auth.TokenInfo, error){
		awsidentity.JWTAuthorizer(), awsidentity.IAM(), awsidentity.LambdaAuthorizer(awsidentity.LambdaAuthorizerOptions{}),
	} {
		_, err := f(r)
		assert.ErrorIs(t, err, identity.ErrNobody)
	}
	assert.Empty(t, awsidentity.BaseURL(r))
}

// newHandler is Hydrant's, with what a function says about who is asking.
func newHandler(t *testing.T, identify func(*http.Request) (*auth.TokenInfo, error)) http.Handler {
	t.Helper()
	m, err := identity.ProtectedResource(identity.ResourceOptions{
		BaseURLOf: awsidentity.BaseURL, AuthorizationServers: []string{"https://issuer.example"},
	})
	require.NoError(t, err)
	s := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	return m.Wrap(handler.New(s, nil, &handler.Options{
		Legacy: handler.LegacyStateless, Identify: identify, ResourceMetadata: m.MetadataURL,
		Logger: slog.New(slog.DiscardHandler),
	}))
}

// authorized is what a JWT authorizer says of a token that is good until a time.
func authorized(until time.Time) object {
	return object{"authorizer": object{"jwt": object{"claims": object{
		"iss": "https://issuer.example", "sub": "alice", "exp": strconv.FormatInt(until.Unix(), 10),
	}}}}
}

func TestARouteWithoutItsAuthorizerServesNobody(t *testing.T) {
	h := newHandler(t, awsidentity.JWTAuthorizer())
	assert.Equal(t, http.StatusOK, invoke(t, h, event(t, "http", authorized(time.Now().Add(time.Hour)))).StatusCode)
	expired := invoke(t, h, event(t, "http", authorized(time.Now().Add(-time.Second))))
	assert.Equal(t, http.StatusUnauthorized, expired.StatusCode, "whatever the gateway still has in its cache")
	assert.Contains(t, expired.header("WWW-Authenticate"), `error="invalid_token"`)
	assert.Equal(t, http.StatusUnauthorized, invoke(t, h, event(t, "http", object{"authorizer": nil})).StatusCode)
	h = newHandler(t, identity.Optional(awsidentity.JWTAuthorizer()))
	assert.Equal(t, http.StatusOK, invoke(t, h, event(t, "http", object{"authorizer": nil})).StatusCode)
}

func TestAScopeIsOneWhateverIsInIt(t *testing.T) {
	for scope, want := range map[string][]string{
		"notes:read,admin": {"notes:read,admin"}, `x"admin"`: {`x"admin"`}, "read write": {"read", "write"},
		"[read write]": {"read", "write"}, `["read","write,all"]`: {"read", "write,all"},
	} {
		var got *auth.TokenInfo
		h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got, _ = awsidentity.JWTAuthorizer()(r) })
		invoke(t, h, event(t, "http", object{"authorizer": object{"jwt": object{"claims": object{"iss": "i", "sub": "s", "scope": scope}}}}))
		require.NotNil(t, got)
		assert.Equal(t, want, got.Scopes)
	}
}

func TestLAMBDA41TheMetadataURLHasTheStageWhereItIsFetched(t *testing.T) {
	h := newHandler(t, awsidentity.IAM()) // which refuses all of these
	for name, base := range map[string]string{
		"http-stage":         "https://r3pmxmplak.execute-api.us-east-2.amazonaws.com/prod",
		"http":               "https://r3pmxmplak.execute-api.us-east-2.amazonaws.com",
		"rest":               "https://70ixmpl4fl.execute-api.us-east-2.amazonaws.com/prod",
		"function-url":       "https://xmplid5x2bjyuqj2q2ywfxmpl4.lambda-url.us-east-2.on.aws",
		"http-custom-domain": "https://api.example.com/v1",
		"rest-custom-domain": "https://api.example.com/v1",
	} {
		mapping := lambda.WithBasePath("/v1")
		e := event(t, name, nil)
		r := invoke(t, h, e, mapping)
		require.Equal(t, http.StatusUnauthorized, r.StatusCode, name)
		all, err := oauthex.ParseWWWAuthenticate([]string{r.header("WWW-Authenticate")})
		require.NoError(t, err)
		at := all[0].Params["resource_metadata"]
		assert.Equal(t, base+"/.well-known/oauth-protected-resource/mcp", at, name)

		// The gateway turns that URL into an event for the same path as before, but for its end.
		doc := invoke(t, h, get(e, strings.TrimPrefix(at, base)), mapping)
		require.Equal(t, http.StatusOK, doc.StatusCode, "%s: %s", name, doc.Body)
		var metadata oauthex.ProtectedResourceMetadata
		require.NoError(t, json.Unmarshal([]byte(doc.Body), &metadata), name)
		assert.Equal(t, base+"/mcp", metadata.Resource, name)
	}
}

// get makes of the event of a POST to …/mcp that of a GET of another path.
func get(e object, path string) object {
	text, _ := json.Marshal(e)
	replaced := strings.ReplaceAll(string(text), `/mcp"`, path+`"`)
	var out object
	_ = json.Unmarshal([]byte(replaced), &out)
	if about := out["requestContext"].(object); about["http"] != nil {
		about["http"].(object)["method"] = http.MethodGet
	} else {
		out["httpMethod"] = http.MethodGet
	}
	out["body"] = ""
	return out
}

func Example() {
	s := mcp.NewServer(&mcp.Implementation{Name: "notes", Version: "1.0.0"}, nil)
	h := handler.New(s, nil, &handler.Options{
		Legacy: handler.LegacyStateless,
		// People come through the HTTP API's JWT authorizer, machines through the Function URL.
		Identify: identity.First(awsidentity.JWTAuthorizer(), awsidentity.IAM()),
	})
	fmt.Printf("%T\n", h) // lambda.Start(h)
	// Output: *handler.Handler
}
