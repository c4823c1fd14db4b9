package lambdafront

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"mime"
	"net"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-lambda-go/events"
)

// A Source is a front door.
type Source string

// The front doors. A load balancer's comes in the two forms that its target group can be set to.
const (
	FunctionURL Source = "url"
	REST        Source = "rest" // API Gateway REST API
	HTTP        Source = "http" // API Gateway HTTP API, payload format 2.0
	ALB         Source = "alb"
	ALBMulti    Source = "alb-multi" // with multi-value headers
)

// Sources are all of them.
func Sources() []Source { return []Source{FunctionURL, REST, HTTP, ALB, ALBMulti} }

// stage is the one that API Gateway has its APIs in here; a Function URL and a load balancer have none.
func (s Source) stage() string {
	if s == REST || s == HTTP {
		return "prod"
	}
	return ""
}

func (s Source) canStream() bool { return s == FunctionURL || s == REST }

const (
	apiID     = "a1b2c3d4e5"
	accountID = "123456789012"
)

// event makes the event of a request whose path has no stage any more.
func (s Source) event(r *http.Request, body []byte) ([]byte, error) {
	text, isBase64 := encodeBody(r.Header.Get("Content-Type"), body)
	ip, _, _ := net.SplitHostPort(r.RemoteAddr)
	now := time.Now()
	path := r.URL.EscapedPath()
	header := r.Header.Clone()
	header.Set("Host", r.Host)
	header.Set("X-Forwarded-For", strings.TrimPrefix(header.Get("X-Forwarded-For")+", "+ip, ", "))
	header.Set("X-Forwarded-Proto", "https")
	header.Set("X-Forwarded-Port", "443")
	switch s {
	case FunctionURL:
		headers, cookies := v2Headers(header)
		return json.Marshal(events.LambdaFunctionURLRequest{
			Version: "2.0", RawPath: path, RawQueryString: r.URL.RawQuery, Headers: headers, Cookies: cookies,
			QueryStringParameters: lastOf(r.URL.Query()), Body: text, IsBase64Encoded: isBase64,
			RequestContext: events.LambdaFunctionURLRequestContext{
				AccountID: "anonymous", APIID: apiID, DomainPrefix: apiID,
				DomainName: apiID + ".lambda-url.us-east-1.on.aws",
				RequestID:  "e1506fd5-9e7b-434f-bd42-4f8fa224b599",
				Time:       now.UTC().Format("02/Jan/2006:15:04:05 +0000"), TimeEpoch: now.UnixMilli(),
				HTTP: events.LambdaFunctionURLRequestContextHTTPDescription{
					Method: r.Method, Path: path, Protocol: "HTTP/1.1", SourceIP: ip, UserAgent: r.UserAgent(),
				},
			},
		})
	case HTTP:
		headers, cookies := v2Headers(header)
		path = "/" + s.stage() + path
		return json.Marshal(events.APIGatewayV2HTTPRequest{
			Version: "2.0", RouteKey: "$default", RawPath: path, RawQueryString: r.URL.RawQuery, Headers: headers,
			Cookies: cookies, QueryStringParameters: lastOf(r.URL.Query()), Body: text, IsBase64Encoded: isBase64,
			RequestContext: events.APIGatewayV2HTTPRequestContext{
				RouteKey: "$default", AccountID: accountID, Stage: s.stage(), APIID: apiID, DomainPrefix: apiID,
				DomainName: apiID + ".execute-api.us-east-1.amazonaws.com", RequestID: "JKJaXmPLvHcESHA=",
				Time: now.UTC().Format("02/Jan/2006:15:04:05 +0000"), TimeEpoch: now.UnixMilli(),
				HTTP: events.APIGatewayV2HTTPRequestContextHTTPDescription{
					Method: r.Method, Path: path, Protocol: "HTTP/1.1", SourceIP: ip, UserAgent: r.UserAgent(),
				},
			},
		})
	case REST:
		return json.Marshal(events.APIGatewayProxyRequest{
			Resource: "/{proxy+}", Path: path, HTTPMethod: r.Method, Headers: lastOf(header), MultiValueHeaders: header,
			QueryStringParameters:           nullable(lastOf(r.URL.Query())),
			MultiValueQueryStringParameters: nullable(map[string][]string(r.URL.Query())),
			PathParameters:                  map[string]string{"proxy": strings.TrimPrefix(path, "/")},
			Body:                            text, IsBase64Encoded: isBase64,
			RequestContext: events.APIGatewayProxyRequestContext{
				AccountID: accountID, APIID: apiID, ResourceID: "123456", ResourcePath: "/{proxy+}", HTTPMethod: r.Method,
				Stage: s.stage(), Path: "/" + s.stage() + path, Protocol: "HTTP/1.1", DomainPrefix: apiID,
				DomainName: apiID + ".execute-api.us-east-1.amazonaws.com", RequestID: "c6af9ac6-7b61-11e6-9a41-93e8deadbeef",
				RequestTime: now.UTC().Format("02/Jan/2006:15:04:05 +0000"), RequestTimeEpoch: now.UnixMilli(),
				Identity: events.APIGatewayRequestIdentity{SourceIP: ip, UserAgent: r.UserAgent()},
			},
		})
	case ALB, ALBMulti:
		e := events.ALBTargetGroupRequest{
			HTTPMethod: r.Method, Path: path, Body: text, IsBase64Encoded: isBase64,
			RequestContext: events.ALBTargetGroupRequestContext{ELB: events.ELBContext{
				TargetGroupArn: "arn:aws:elasticloadbalancing:us-east-1:123456789012:targetgroup/hydrant/6d0ecf831eec9f09",
			}},
		}
		if s == ALB {
			e.Headers, e.QueryStringParameters = lower(lastOf(header)), lastOf(rawQuery(r.URL.RawQuery))
		} else {
			e.MultiValueHeaders, e.MultiValueQueryStringParameters = lower(header), rawQuery(r.URL.RawQuery)
		}
		return json.Marshal(e)
	}
	return nil, fmt.Errorf("lambdafront: unknown source %q: one of %v", s, Sources())
}

// encodeBody does as the front doors do: text where the type says text, else base64.
func encodeBody(contentType string, body []byte) (text string, isBase64 bool) {
	t, _, _ := mime.ParseMediaType(contentType)
	isText := strings.HasPrefix(t, "text/") || t == "application/json" || t == "application/xml" ||
		t == "application/javascript"
	if len(body) == 0 || isText && utf8.Valid(body) {
		return string(body), false
	}
	return base64.StdEncoding.EncodeToString(body), true
}

func v2Headers(h http.Header) (headers map[string]string, cookies []string) {
	headers = map[string]string{}
	for name, values := range h {
		if name == "Cookie" {
			for _, v := range values {
				cookies = append(cookies, strings.Split(v, "; ")...)
			}
			continue
		}
		headers[strings.ToLower(name)] = strings.Join(values, ",")
	}
	return headers, cookies
}

// lastOf is for maps with one value a name. The front doors keep the last.
func lastOf(values map[string][]string) map[string]string {
	out := make(map[string]string, len(values))
	for name, v := range values {
		out[name] = v[len(v)-1]
	}
	return out
}

func lower[T any](m map[string]T) map[string]T {
	out := make(map[string]T, len(m))
	for name, v := range m {
		out[strings.ToLower(name)] = v
	}
	return out
}

// nullable is null instead of empty.
func nullable[T any](m map[string]T) map[string]T {
	if len(m) == 0 {
		return nil
	}
	return m
}

// rawQuery takes a query string apart without decoding it.
func rawQuery(q string) map[string][]string {
	out := map[string][]string{}
	for pair := range strings.SplitSeq(q, "&") {
		if name, value, _ := strings.Cut(pair, "="); name != "" {
			out[name] = append(out[name], value)
		}
	}
	return out
}
