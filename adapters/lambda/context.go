package lambda

import (
	"context"
	"encoding/json"

	"github.com/aws/aws-lambda-go/events"
)

type eventKey struct{}

// RequestContext gives what the front door says about the request that ctx belongs to: who called, from where, with which
// claims. Use it with the context of a request, or of a tool that runs for one. Without an event it is nil, of which every
// method gives the zero value.
//
// The invocation's own data (request id, function, remaining time) is in the same context: see package lambdacontext of
// aws-lambda-go.
func RequestContext(ctx context.Context) *EventContext {
	c, _ := ctx.Value(eventKey{}).(*EventContext)
	return c
}

// An EventContext is the "requestContext" of an event.
type EventContext struct {
	kind    kind
	raw     json.RawMessage
	source  string
	baseURL string
}

// SourceIP is the client's address as the front door saw it: for a load balancer the last of X-Forwarded-For.
func (c *EventContext) SourceIP() string {
	if c == nil {
		return ""
	}
	return c.source
}

// BaseURL is the URL that clients have for the handler's "/", without a slash at the end: the stage and the base path of
// [WithBasePath] are part of it ("https://abc123.execute-api.eu-central-1.amazonaws.com/prod"). It is what to advertise
// where no public URL is configured; a CDN in front of the front door is not known here.
func (c *EventContext) BaseURL() string {
	if c == nil {
		return ""
	}
	return c.baseURL
}

// FunctionURL gives the request context of a Function URL; false when the event is none.
func (c *EventContext) FunctionURL() (events.LambdaFunctionURLRequestContext, bool) {
	return decodeContext[events.LambdaFunctionURLRequestContext](c, functionURL)
}

// REST gives the request context of a REST API, or of an HTTP API with payload format 1.0; false when the event is none.
func (c *EventContext) REST() (events.APIGatewayProxyRequestContext, bool) {
	return decodeContext[events.APIGatewayProxyRequestContext](c, rest, httpAPI1)
}

// HTTP gives the request context of an HTTP API with payload format 2.0; false when the event is none.
func (c *EventContext) HTTP() (events.APIGatewayV2HTTPRequestContext, bool) {
	return decodeContext[events.APIGatewayV2HTTPRequestContext](c, httpAPI)
}

// ALB gives the request context of a load balancer; false when the event is none.
func (c *EventContext) ALB() (events.ALBTargetGroupRequestContext, bool) {
	return decodeContext[events.ALBTargetGroupRequestContext](c, alb)
}

// decodeContext decodes when it is asked: most requests never are. It is false too for what AWS might add and the type
// does not take: no reason to fail a request.
func decodeContext[T any](c *EventContext, kinds ...kind) (v T, ok bool) {
	if c == nil {
		return v, false
	}
	for _, k := range kinds {
		if c.kind == k && json.Unmarshal(c.raw, &v) == nil {
			return v, true
		}
	}
	var zero T
	return zero, false
}

// Claims are those of the token that a JWT authorizer (HTTP API) or a Cognito authorizer (REST API) has checked. Nil
// without one. A claim that is no string is in its JSON form.
func (c *EventContext) Claims() map[string]string {
	if h, ok := c.HTTP(); ok && h.Authorizer != nil && h.Authorizer.JWT != nil {
		return h.Authorizer.JWT.Claims
	}
	r, ok := c.REST()
	if !ok {
		return nil
	}
	found, ok := r.Authorizer["claims"].(map[string]any)
	if !ok {
		if jwt, isJWT := r.Authorizer["jwt"].(map[string]any); isJWT { // format 1.0 of an HTTP API
			found, ok = jwt["claims"].(map[string]any)
		}
	}
	if !ok {
		return nil
	}
	claims := make(map[string]string, len(found))
	for name, v := range found {
		if s, isString := v.(string); isString {
			claims[name] = s
		} else if text, err := json.Marshal(v); err == nil {
			claims[name] = string(text)
		}
	}
	return claims
}

// Authorizer is what a Lambda authorizer has said about the request. Nil without one.
func (c *EventContext) Authorizer() map[string]any {
	if h, ok := c.HTTP(); ok && h.Authorizer != nil {
		return h.Authorizer.Lambda
	}
	r, _ := c.REST()
	return r.Authorizer
}

// An IAMIdentity is who signed a request with AWS credentials.
type IAMIdentity struct {
	AccountID string // of the caller
	CallerID  string
	UserARN   string
	UserID    string
}

// IAM is the identity of a front door whose authorization is AWS_IAM; false without one.
func (c *EventContext) IAM() (IAMIdentity, bool) {
	if u, ok := c.FunctionURL(); ok && u.Authorizer != nil && u.Authorizer.IAM != nil {
		iam := u.Authorizer.IAM
		return IAMIdentity{iam.AccountID, iam.CallerID, iam.UserARN, iam.UserID}, true
	}
	if h, ok := c.HTTP(); ok && h.Authorizer != nil && h.Authorizer.IAM != nil {
		iam := h.Authorizer.IAM
		return IAMIdentity{iam.AccountID, iam.CallerID, iam.UserARN, iam.UserID}, true
	}
	if r, ok := c.REST(); ok && r.Identity.UserArn != "" {
		id := r.Identity
		return IAMIdentity{id.AccountID, id.Caller, id.UserArn, id.User}, true
	}
	return IAMIdentity{}, false
}
