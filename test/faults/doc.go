// Package faults holds no code, only tests: what the handler does when its store has a bad day. Every line of
// docs/failures.md that has to do with the store, and every invariant of docs/architecture.md, under a plan of faults.
package faults
