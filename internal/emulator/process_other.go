//go:build !unix

package emulator

import (
	"context"
	"fmt"
	"runtime"
)

func start(context.Context, func(context.Context) error, ...string) (stop func(), err error) {
	return func() {}, fmt.Errorf("%w: emulators are not started on %s: start them yourself and set "+
		"AWS_ENDPOINT_URL_DYNAMODB or FIRESTORE_EMULATOR_HOST", ErrMissing, runtime.GOOS)
}
