// Package cloudrun serves an MCP handler in a Google Cloud Run container, or in any other container that is told its port
// by PORT and its end by SIGTERM.
//
//	func main() {
//		slog.SetDefault(slog.New(cloudrun.NewLogHandler(os.Stderr, nil)))
//		h := handler.New(server, firestore.New(client, ""), nil)
//		if err := cloudrun.Serve(context.Background(), h, cloudrun.WithPath("/mcp")); err != nil {
//			slog.Error("the server failed", "error", err)
//			os.Exit(1)
//		}
//	}
//
// # The end of an instance
//
// Cloud Run sends SIGTERM, and SIGKILL ten seconds later. [Serve] uses that time so that nobody loses anything:
//
//  1. [handler.Runtime].Draining is closed: streams that wait for something end, and their clients come back elsewhere.
//     Health checks fail from now on, and a connection that carries a response is closed after it.
//  2. Half a second later, or as soon as no connection is left, the listener and all idle connections are closed. What
//     arrived until then is served.
//  3. Calls may go on until the grace is over (8 s from the signal). The contexts of those that are left are cancelled
//     then, with [ErrShutdown] as their cause, and they have one more second to say so to their clients.
//
// # Logs
//
// [NewLogHandler] makes log/slog write what Cloud Logging understands. Records that are logged with a request's context
// carry its trace, so that the console shows them below the request that they belong to.
package cloudrun
