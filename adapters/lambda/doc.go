// Package lambda runs an http.Handler, such as Hydrant's, on AWS Lambda.
//
//	func main() {
//		h := handler.New(server, dynamo.New(client, "mcp"), nil)
//		lambda.Start(h)
//	}
//
// One function serves every HTTP event there is, each told by the event itself and answered in its own form:
//
//	front door                        answers                             largest response    time
//	Function URL                      buffered, or a stream               6 MB, or 200 MB     the function's
//	API Gateway REST API              buffered, or a stream               6 MB, or 200 MB     29 s, or 15 min
//	API Gateway HTTP API (1.0, 2.0)   buffered                            6 MB                30 s
//	Application Load Balancer         buffered, in both header forms      1 MB                the function's
//
// Answers are buffered unless [WithStreaming] says that the front door is set up for streams: a function cannot find out
// for itself. What the front door can do travels with each request as its [handler.Runtime], so that Hydrant never starts
// a stream that nobody would see, nor a wait that nobody would outlast.
//
// A request's context has what Lambda says about the invocation (package lambdacontext of aws-lambda-go) and what the
// front door says about the request ([RequestContext]). Both reach the tools of an MCP server. The context ends shortly
// before the platform would end the request.
//
// # What cannot be helped here
//
// API Gateway renames the response header WWW-Authenticate to x-amzn-remapped-www-authenticate, in REST and HTTP APIs
// alike, and Function URLs are reported to do the same. A client that finds its authorization server through that header
// has to find it through the well-known addresses instead, or come through a load balancer.
//
// A client that closes its connection is not noticed: Lambda does not tell. The call goes on, and is billed, to its end.
//
// A REST API takes a body that is no UTF-8 text for binary, in a buffered answer, only where its binary media types say
// so. MCP's bodies are text.
package lambda
