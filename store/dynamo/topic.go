package dynamo

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/hydrant-mcp/hydrant/store"
)

const attrCount = "n" // the version

func topicItem(topic string) item { return newItem("t#"+digest(topic), "t") }

// RaiseTopic implements [store.Store]. It is one write. A retry of the client's may raise the topic twice, which no
// reader minds.
func (st *Store) RaiseTopic(ctx context.Context, topic string) error {
	now := time.Now()
	_, err := call(ctx, st, "dynamo: raise topic", st.client.UpdateItem, &dynamodb.UpdateItemInput{
		TableName:                &st.table,
		Key:                      topicItem(topic),
		UpdateExpression:         aws.String("SET #v = :v, #n = if_not_exists(#n, :now) + :one, #ttl = :ttl"),
		ExpressionAttributeNames: map[string]string{"#v": attrVersion, "#n": attrCount, "#ttl": attrTTL},
		ExpressionAttributeValues: item{
			":v": number(store.SchemaVersion), ":now": number(now.UnixMilli()), ":one": number(1),
			":ttl": number(seconds(now.Add(store.TopicLife))),
		},
	})
	return err
}

// TopicVersions implements [store.Store]. It is one strongly consistent batch for every 100 topics; each topic costs a
// read unit.
func (st *Store) TopicVersions(ctx context.Context, topics []string) (map[string]int64, error) {
	const op = "dynamo: read topics"
	versions := make(map[string]int64, len(topics))
	var names []string
	var keys []item
	for _, topic := range topics {
		if _, known := versions[topic]; !known {
			versions[topic] = 0
			names = append(names, topic)
			keys = append(keys, topicItem(topic))
		}
	}
	items, err := st.getBatch(ctx, op, keys)
	if err != nil {
		return nil, err
	}
	for i, it := range items {
		if it == nil {
			continue
		}
		r := read(it)
		versions[names[i]] = r.number(attrCount)
		if r.err != nil {
			return nil, corrupt(op, r.err)
		}
	}
	return versions, nil
}
