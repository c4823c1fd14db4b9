// Package casecheck holds no code, only a test: an external checker, where there is one, against three processes of
// examples/everything. A checker is a Go program that asks a running server from outside; it is no part of this repository.
package casecheck
