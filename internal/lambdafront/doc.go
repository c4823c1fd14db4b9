// Package lambdafront stands in for AWS Lambda and the front doors before it, so that what was built for Lambda runs on a
// developer's machine as it will there:
//
//	front, err := lambdafront.Start(ctx, lambdafront.Config{
//		Bootstrap: path, Source: lambdafront.FunctionURL, Streaming: true, Instances: 2,
//	})
//	client.Connect(front.URL()) // plain HTTP
//
// [Front] is an HTTP server. It turns each request into the event that the front door would send, hands it to one of
// several processes of the function, and passes on what comes back as it comes. As on Lambda, a process handles one event
// at a time, is frozen in between, is killed when it overruns its time, and more of them are started when all are busy.
//
// [API] is the Runtime API that such a process polls, for tests that look at a single invocation.
//
// What Amazon's own emulator (aws-lambda-rie) cannot show is why this is here: it buffers, hides errors in the middle of a
// stream, and has no front door.
package lambdafront
