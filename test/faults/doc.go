// Package faults holds no code, only tests: what the handler does when its store has a bad day. Every line of
// docs/failures.md and every invariant of docs/architecture.md, under a plan of faults, over stores that are looked at and
// stores that tell.
package faults
