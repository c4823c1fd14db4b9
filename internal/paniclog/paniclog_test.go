package paniclog

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestOnlyTheRuntimesOwnErrorsAreShown(t *testing.T) {
	secret := "secret"
	for want, panics := range map[string]func(){
		"a value of type string":              func() { panic(secret) },
		"a value of type *errors.errorString": func() { panic(errors.New(secret)) },
		"a value of type *fmt.wrapError":      func() { panic(fmt.Errorf("%w", errors.New(secret))) },
		"runtime error: integer divide by zero": func() {
			zero := len("")
			_ = 1 / zero
		},
	} {
		func() {
			defer func() { assert.Equal(t, want, Value(recover())) }()
			panics()
		}()
	}
}
