package firestore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"cloud.google.com/go/firestore"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hydrant-mcp/hydrant/store"
)

const (
	abortedTries   = 6 // the client does not repeat what was aborted because others write the same document
	abortedBackoff = 10 * time.Millisecond
)

// write makes one write, in bounded time. A write that fails with one of the codes that the caller knows what to do about
// gives that code and no error.
func (st *Store) write(ctx context.Context, op string, f func(context.Context) (*firestore.WriteResult, error),
	known ...codes.Code,
) (*firestore.WriteResult, codes.Code, error) {
	bounded, cancel := context.WithTimeout(ctx, st.timeout)
	defer cancel()
	backoff := abortedBackoff
	for try := 1; ; try++ {
		result, err := f(bounded)
		if err == nil {
			return result, codes.OK, nil
		}
		code := status.Code(err)
		for _, k := range known {
			if k == code {
				return nil, code, nil
			}
		}
		// A cancellation that is none of ours comes from the other end: nothing of it is known but that it may go better now.
		again := code == codes.Aborted || code == codes.Canceled && bounded.Err() == nil
		if !again || try == abortedTries {
			return nil, code, st.failure(ctx, op, err)
		}
		timer := time.NewTimer(rand.N(backoff))
		select {
		case <-bounded.Done():
			timer.Stop()
			return nil, code, st.failure(ctx, op, err)
		case <-timer.C:
		}
		backoff *= 2
	}
}

// failure gives an error of the client its operation and its kind.
//
// What is wrong with the configuration (no such database, no permission) is an outage as well: it says nothing about the
// record, and a client of ours must not take it for the end of its session.
func (st *Store) failure(ctx context.Context, op string, err error) error {
	if ended := store.WrapContext(ctx, op); ended != nil {
		return ended
	}
	kind := store.ErrUnavailable
	database, _, _ := strings.Cut(st.sessions.Path, "/documents/")
	says := fmt.Sprintf("database %q", database)
	switch status.Code(err) {
	case codes.ResourceExhausted:
		// Of a write, the client repeats this one until time is up, and then does not say why.
		kind = store.ErrThrottled
	case codes.PermissionDenied, codes.Unauthenticated:
		says = fmt.Sprintf("no permission to use database %q", database)
	case codes.NotFound:
		says = fmt.Sprintf("there is no database %q", database)
	}
	return store.Wrap(op, kind, fmt.Errorf("%s: %w", says, err))
}

// corrupt says that a record cannot be read. The cause names the field and not its value.
func corrupt(op string, cause error) error { return store.Wrap(op, store.ErrCorrupt, cause) }
