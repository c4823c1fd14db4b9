// Package clients holds no code, only tests: real clients, none of them ours, against three processes of
// examples/everything behind a proxy that sends every request to the next one.
package clients
