package dynamo

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/hydrant-mcp/hydrant/store"
)

// errCondition is what an operation fails with whose condition did not hold. What that means is up to the operation.
var errCondition = errors.New("condition failed")

// failure gives an error of the client its operation and its kind.
//
// What is wrong with the configuration (no such table, no permission) is an outage as well: it says nothing about the
// record, and a client of ours must not take it for the end of its session.
func (st *Store) failure(ctx context.Context, op string, err error) error {
	if _, failed := errors.AsType[*types.ConditionalCheckFailedException](err); failed {
		return errCondition
	}
	if ended := store.WrapContext(ctx, op); ended != nil {
		return ended
	}
	kind := store.ErrUnavailable
	if throttled(err) {
		kind = store.ErrThrottled
	}
	return store.Wrap(op, kind, fmt.Errorf("%s: %w", st.describe(err), err))
}

func throttled(err error) bool {
	// The SDK's list has what any service may answer.
	if retry.IsErrorThrottles(retry.DefaultThrottles).IsErrorThrottle(err) == aws.TrueTernary {
		return true
	}
	_, replicated := errors.AsType[*types.ReplicatedWriteConflictException](err)
	return replicated
}

func (st *Store) describe(err error) string {
	if _, missing := errors.AsType[*types.ResourceNotFoundException](err); missing {
		return fmt.Sprintf("there is no table %q in this account and region", st.table)
	}
	if api, ok := errors.AsType[smithy.APIError](err); ok && api.ErrorCode() == "AccessDeniedException" {
		return fmt.Sprintf("no permission to use table %q", st.table)
	}
	return fmt.Sprintf("table %q", st.table)
}

// corrupt says that a record cannot be read. The cause names the attribute and not its value.
func corrupt(op string, cause error) error { return store.Wrap(op, store.ErrCorrupt, cause) }
