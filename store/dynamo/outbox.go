package dynamo

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/hydrant-mcp/hydrant/store"
)

const (
	// pageBytes ends a page of events that has no other limit. The database returns 1 MB at most in one go, but the
	// parts of large events come on top.
	pageBytes = 4 << 20
	// pageEvents is the most that is asked for in one go.
	pageEvents = 1000

	eventPrefix = "e#"
)

func exchangeKey(exchange string) string { return "x#" + digest(exchange) }

// eventKey sorts as the positions do.
func eventKey(seq int64) string { return fmt.Sprintf("%s%019d", eventPrefix, seq) }

// AppendEvent implements [store.Store]. It is one conditional write; for an event that is split it is one read, and if the
// position is free one write more for each part.
func (st *Store) AppendEvent(ctx context.Context, exchange string, e store.Event, expires time.Time) error {
	const op = "dynamo: append event"
	if len(e.Data) > store.MaxEvent {
		return store.Wrap(op, store.ErrTooLarge, nil)
	}
	it := newItem(exchangeKey(exchange), eventKey(e.Seq))
	taken, err := st.setPayload(ctx, op, it, e.Data, expires)
	if err != nil {
		return err
	}
	if taken != nil {
		if sum := sha256.Sum256(e.Data); bytes.Equal(taken.binary(attrDigest), sum[:]) {
			return nil
		}
		return store.Wrap(op, store.ErrConflict, nil)
	}
	_, err = call(ctx, st, op, st.client.PutItem, &dynamodb.PutItemInput{
		TableName: &st.table,
		Item:      it,
		// The same bytes replace themselves: that is cheaper than to read what is there.
		ConditionExpression:       aws.String("attribute_not_exists(#pk) OR #h = :h"),
		ExpressionAttributeNames:  map[string]string{"#pk": attrPK, "#h": attrDigest},
		ExpressionAttributeValues: item{":h": it[attrDigest]},
	})
	if errors.Is(err, errCondition) {
		return store.Wrap(op, store.ErrConflict, nil)
	}
	return err
}

// Events implements [store.Store]. It is one query, a second one to make sure once the final event is in sight, and a
// batch for each event that is split.
func (st *Store) Events(ctx context.Context, exchange string, after int64, limit int) ([]store.Event, error) {
	const op = "dynamo: read events"
	if after == store.Final {
		return nil, nil
	}
	if limit <= 0 || limit > pageEvents {
		limit = pageEvents
	}
	heads, err := st.heads(ctx, op, exchange, after, limit)
	if err != nil {
		return nil, err
	}
	var events []store.Event
	size := 0
	for _, head := range heads {
		data, err := st.payload(ctx, op, head.reader)
		if err != nil {
			return nil, err
		}
		events = append(events, store.Event{Seq: head.seq, Data: data})
		if size += len(data); size >= pageBytes {
			break
		}
	}
	return events, nil
}

// A head is an event's item.
type head struct {
	seq     int64
	expired bool // as good as missing
	*reader
}

// heads returns the heads of the events that follow a position without a gap, and the final one's.
//
// A query is not a snapshot. It may pass the place of an event before that event is written, and then find the final one,
// which was written after it. A reader that takes the final event for the end would never see the other. So what follows
// is read again once the final event has been seen: its one writer had written everything else by then.
func (st *Store) heads(ctx context.Context, op, exchange string, after int64, limit int) ([]head, error) {
	page, more, err := st.query(ctx, op, exchange, after, store.Final, limit)
	if err != nil {
		return nil, err
	}
	heads, rest := gapless(page, after)
	if len(rest) == 0 {
		return heads, nil
	}
	// There is a gap: before the final event as a rule.
	final := rest[len(rest)-1:]
	if final[0].seq != store.Final && more {
		if final, _, err = st.query(ctx, op, exchange, store.Final-1, store.Final, 1); err != nil {
			return nil, err
		}
	}
	if len(final) == 0 || final[0].seq != store.Final || final[0].expired {
		return heads, nil
	}
	if len(heads) > 0 {
		after = heads[len(heads)-1].seq
	}
	page, more, err = st.query(ctx, op, exchange, after, store.Final-1, limit-len(heads))
	if err != nil {
		return nil, err
	}
	late, rest := gapless(page, after)
	heads = append(heads, late...)
	if len(heads) == limit || more && len(rest) == 0 {
		return heads, nil
	}
	return append(heads, final[0]), nil
}

// gapless splits a page where the first gap is.
func gapless(page []head, after int64) (run, rest []head) {
	for i, h := range page {
		if h.seq != after+1 || h.expired {
			return page[:i:i], page[i:]
		}
		after = h.seq
	}
	return page, nil
}

// query reads heads after one position and up to another: one page of the database's. It says whether there may be more.
func (st *Store) query(ctx context.Context, op, exchange string, after, last int64, limit int) ([]head, bool, error) {
	out, err := call(ctx, st, op, st.client.Query, &dynamodb.QueryInput{
		TableName:                &st.table,
		KeyConditionExpression:   aws.String("#pk = :pk AND #sk BETWEEN :first AND :last"),
		ExpressionAttributeNames: map[string]string{"#pk": attrPK, "#sk": attrSK},
		ExpressionAttributeValues: item{
			":pk": str(exchangeKey(exchange)), ":first": str(eventKey(after + 1)), ":last": str(eventKey(last)),
		},
		ConsistentRead: aws.Bool(true),
		Limit:          aws.Int32(int32(limit)),
	})
	if err != nil {
		return nil, false, err
	}
	var page []head
	for _, it := range out.Items {
		r := read(it)
		seq, err := strconv.ParseInt(strings.TrimPrefix(r.str(attrSK), eventPrefix), 10, 64)
		expired := r.expired()
		if r.err == nil {
			r.err = err
		}
		if r.err != nil {
			return nil, false, corrupt(op, r.err)
		}
		page = append(page, head{seq, expired, r})
	}
	return page, len(out.LastEvaluatedKey) > 0, nil
}
