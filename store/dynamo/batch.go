package dynamo

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/hydrant-mcp/hydrant/store"
)

const (
	batchSize    = 100 // the database's limit for one BatchGetItem
	batchTries   = 6   // in a row that give nothing
	batchBackoff = 25 * time.Millisecond
)

// getBatch reads items by their keys, which are all different, strongly consistent. The result is in the order of the
// keys, nil where there is no item.
func (st *Store) getBatch(ctx context.Context, op string, keys []item) ([]item, error) {
	found := make(map[string]item, len(keys))
	for chunk := range slices.Chunk(keys, batchSize) {
		if err := st.getChunk(ctx, op, chunk, found); err != nil {
			return nil, err
		}
	}
	items := make([]item, len(keys))
	for i, key := range keys {
		items[i] = found[name(key)]
	}
	return items, nil
}

// getChunk repeats a batch for the keys that the database leaves unprocessed, because the answer became too large, which
// is no reason to wait, or because it throttles.
func (st *Store) getChunk(ctx context.Context, op string, keys []item, found map[string]item) error {
	backoff := batchBackoff
	for tries := 0; ; {
		out, err := call(ctx, st, op, st.client.BatchGetItem, &dynamodb.BatchGetItemInput{
			RequestItems: map[string]types.KeysAndAttributes{
				st.table: {Keys: keys, ConsistentRead: aws.Bool(true)},
			},
		})
		if err != nil {
			return err
		}
		for _, items := range out.Responses { // of one table, whether it was named by its name or by its ARN
			for _, it := range items {
				found[name(it)] = it
			}
		}
		var rest []item
		for _, unprocessed := range out.UnprocessedKeys {
			rest = append(rest, unprocessed.Keys...)
		}
		if len(rest) == 0 {
			return nil
		}
		if len(rest) < len(keys) {
			keys, tries, backoff = rest, 0, batchBackoff
			continue
		}
		if tries++; tries == batchTries {
			return store.Wrap(op, store.ErrThrottled, nil)
		}
		timer := time.NewTimer(backoff/2 + rand.N(backoff/2))
		select {
		case <-ctx.Done():
			timer.Stop()
			return store.WrapContext(ctx, op)
		case <-timer.C:
		}
		backoff *= 2
	}
}

// name tells an item from others by its key.
func name(it item) string {
	r := reader{item: it}
	return r.str(attrPK) + "\n" + r.str(attrSK)
}
