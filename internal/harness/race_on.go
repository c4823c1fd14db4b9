//go:build race

package harness

// raceEnabled says that the tests run under the race detector: the servers they start then do too.
const raceEnabled = true
