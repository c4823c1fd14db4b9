// Package paniclog says what of a panic may be logged.
package paniclog

import (
	"fmt"
	"runtime"
)

// Value gives what a log may show of a panic's value. The runtime's own errors say what was wrong with the code. What a
// program panics with can hold anything, a client's arguments too: of that there is only its type, and the stack says where
// it came from.
func Value(p any) string {
	if err, ok := p.(runtime.Error); ok {
		return err.Error()
	}
	return fmt.Sprintf("a value of type %T", p)
}
