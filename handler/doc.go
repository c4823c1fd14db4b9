// Package handler serves an MCP server over HTTP, in both protocol eras from one endpoint, on any number of instances that
// share nothing but a store.
//
//	server := mcp.NewServer(&mcp.Implementation{Name: "notes", Version: "1.0.0"}, nil)
//	h := handler.At("/mcp", handler.New(server, memory.New(), nil))
//	log.Fatal(http.ListenAndServe("127.0.0.1:8080", h))
//
// A [Handler] takes the place of the SDK's own HTTP handler. It keeps no session in memory: every request, notification and
// response of a legacy client (protocol 2025-03-26 to 2025-11-25) reads its session from the store, and every message of a
// modern client (2026-07-28) describes itself. So it does not matter which instance a message meets, or whether the one
// that served the message before still lives.
//
// # The pipeline
//
// One straight way in, one way out; each stage is a file:
//
//	admit.go      method, Origin, media types, size                   no store, no parsing
//	identify.go   who is asking
//	read.go       one strict JSON-RPC message, its bytes kept
//	era.go        the table that decides the era
//	era_*.go      everything that differs between the eras: rehydrating, checks, statuses
//	run.go        from a message to the engine
//	call.go       a request that runs: the engine, the client, the store in between
//	answer.go     one JSON body, or an event stream
//	errors.go     every failure, in one table
//	limits.go     how much a client can make a process hold, and the store keep
//
// and beside it what makes streams survive:
//
//	outbox.go     the writing end of a stream that can be resumed     resume.go   the reading end
//	ask.go        questions to the client, and their answers          rounds.go   several rounds of them
//	suspend.go    questions while which nothing runs                  cancel.go   cancellation
//	listener.go   a stream that carries announcements                 listen.go   the two kinds of it
//	topics.go     announcing                                          wait.go     how often to look, and being told
//	keys.go       what passes through clients cannot be forged        seal.go     nor read
package handler
