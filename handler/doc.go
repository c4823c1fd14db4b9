// Package handler serves an MCP server over HTTP, in both protocol eras from one endpoint, on any number of instances that
// share nothing but a store.
//
//	server := mcp.NewServer(&mcp.Implementation{Name: "notes", Version: "1.0.0"}, nil)
//	http.Handle("/mcp", handler.New(server, memory.New(), nil))
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
//	admit.go      method, Origin, credentials, media types, size      no store, no parsing
//	read.go       one strict JSON-RPC message, its bytes kept
//	era.go        the table that decides the era
//	era_*.go      everything that differs between the eras: rehydrating, checks, statuses
//	run.go        the engine, and what comes of it
//	answer.go     one JSON body, or an event stream
//	errors.go     every failure, in one table
package handler
