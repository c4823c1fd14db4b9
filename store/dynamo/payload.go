package dynamo

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/hydrant-mcp/hydrant/store"
)

// Events and answers carry a payload of any size up to the store's limit. One that fits is an attribute of its item.
// Another is split: the parts are written first and the item, then called the head, last, so that a payload can be seen
// only when it is complete. Each upload has parts of its own under a random name: a writer that comes late, or that gave
// up half way, touches nobody else's. What it leaves goes by its time to live. The head is read before any part is
// written: whoever repeats what is there does not fill the table.
//
// The parts of an upload have different partition keys, because one partition takes 1,000 units a second and a unit is a
// kilobyte.

// The attributes of a payload.
const (
	attrDigest = "h"      // SHA-256 of the payload
	attrData   = "d"      // the payload, or a part of it
	attrUpload = "upload" // the random name of the parts, in a head
	attrParts  = "parts"  // how many there are
)

const (
	// partSize is the most that one item carries, in bytes. The database's limit is 400 KB with names and keys.
	partSize = 350 << 10
	// partSlack is how much longer parts live than their head: the database removes items in no particular order.
	partSlack = time.Hour
)

// setPayload makes an item that is about to be written of a key and a payload, and stores the parts where it needs any. For
// a payload that needs parts it looks first: if an item is there it stores nothing, and gives that one instead.
func (st *Store) setPayload(ctx context.Context, op string, it item, data []byte, expires time.Time) (*reader, error) {
	if len(data) > partSize {
		if taken, err := st.get(ctx, op, it); !errors.Is(err, store.ErrNotFound) {
			return taken, err
		}
	}
	sum := sha256.Sum256(data)
	it[attrVersion] = number(store.SchemaVersion)
	it[attrTTL] = number(seconds(expires))
	it[attrDigest] = binary(sum[:])
	if len(data) <= partSize {
		it[attrData] = binary(data)
		return nil, nil
	}
	upload := base64.RawURLEncoding.EncodeToString(newMark())
	parts := 0
	for rest := data; len(rest) > 0; parts++ {
		n := min(partSize, len(rest))
		part := partItem(upload, parts)
		part[attrVersion] = number(store.SchemaVersion)
		part[attrTTL] = number(seconds(expires.Add(partSlack)))
		part[attrData] = binary(rest[:n])
		rest = rest[n:]
		_, err := call(ctx, st, op, st.client.PutItem, &dynamodb.PutItemInput{TableName: &st.table, Item: part})
		if err != nil {
			return nil, err
		}
	}
	it[attrUpload] = str(upload)
	it[attrParts] = number(int64(parts))
	return nil, nil
}

func partItem(upload string, part int) item {
	return newItem(fmt.Sprintf("p#%s#%d", upload, part), "p")
}

// payload returns the payload of an item that was read, with its parts.
func (st *Store) payload(ctx context.Context, op string, r *reader) ([]byte, error) {
	sum := r.binary(attrDigest)
	if !r.has(attrUpload) {
		data := r.binary(attrData)
		if r.err != nil {
			return nil, corrupt(op, r.err)
		}
		return checked(op, data, sum)
	}
	upload, parts := r.str(attrUpload), r.number(attrParts)
	if r.err == nil && (parts < 1 || parts > store.MaxEvent/partSize+1) {
		r.err = fmt.Errorf("attribute %q is out of range", attrParts)
	}
	if r.err != nil {
		return nil, corrupt(op, r.err)
	}
	keys := make([]item, parts)
	for i := range keys {
		keys[i] = partItem(upload, i)
	}
	items, err := st.getBatch(ctx, op, keys)
	if err != nil {
		return nil, err
	}
	var data []byte
	for i, it := range items {
		if it == nil {
			return nil, corrupt(op, fmt.Errorf("part %d of %d is missing", i+1, parts))
		}
		part := read(it)
		data = append(data, part.binary(attrData)...)
		if part.err != nil {
			return nil, corrupt(op, fmt.Errorf("part %d of %d: %w", i+1, parts, part.err))
		}
	}
	return checked(op, data, sum)
}

func checked(op string, data, sum []byte) ([]byte, error) {
	if got := sha256.Sum256(data); !bytes.Equal(got[:], sum) {
		return nil, corrupt(op, errors.New("the payload does not have its digest"))
	}
	return data, nil
}
