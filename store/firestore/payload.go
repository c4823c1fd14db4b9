package firestore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"cloud.google.com/go/firestore"

	"github.com/hydrant-mcp/hydrant/store"
)

// Events and answers carry a payload of any size up to the store's limit. One that fits is a field of its document.
// Another is split: the parts are written first and the document, then called the head, last, so that a payload can be
// seen only when it is complete. Each upload has parts of its own under a random name: a writer that comes late, or that
// gave up half way, touches nobody else's. What it leaves goes by its time to live. The head is read before any part is
// written: whoever repeats what is there does not fill the database.

// The fields of a payload.
const (
	fieldDigest = "digest" // SHA-256 of the payload
	fieldData   = "data"   // the payload, or a part of it
	fieldUpload = "upload" // the random name of the parts, in a head
	fieldParts  = "parts"  // how many there are
)

const (
	// partSize is the most that one document carries, in bytes. The database's limit is 1 MiB with names and ids.
	partSize = 900 << 10
	// partSlack is how much longer parts live than their head: the database removes documents in no particular order.
	partSlack = time.Hour
)

// payloadFields returns the fields of a document that is about to be written, and stores the parts where it needs any. For
// a payload that needs parts it looks first: if the document is there it stores nothing, and gives that too, as taken.
func (st *Store) payloadFields(ctx context.Context, op string, doc *firestore.DocumentRef, data []byte, expires time.Time) (
	f fields, taken *firestore.DocumentSnapshot, err error,
) {
	sum := sha256.Sum256(data)
	f = fields{fieldVersion: store.SchemaVersion, fieldTTL: expires, fieldDigest: sum[:]}
	if len(data) <= partSize {
		f[fieldData] = filled(data)
		return f, nil, nil
	}
	if taken, err = st.get(ctx, op, doc); err != nil || taken != nil {
		return f, taken, err
	}
	upload := hex.EncodeToString(newMark())
	parts := 0
	for rest := data; len(rest) > 0; parts++ {
		n := min(partSize, len(rest))
		part := fields{fieldVersion: store.SchemaVersion, fieldTTL: expires.Add(partSlack), fieldData: rest[:n]}
		doc := st.part(upload, parts)
		rest = rest[n:]
		_, _, err := st.write(ctx, op, func(ctx context.Context) (*firestore.WriteResult, error) {
			return doc.Set(ctx, part)
		})
		if err != nil {
			return nil, nil, err
		}
	}
	f[fieldUpload], f[fieldParts] = upload, parts
	return f, nil, nil
}

func (st *Store) part(upload string, part int) *firestore.DocumentRef {
	return st.parts.Doc(fmt.Sprintf("%s-%d", upload, part))
}

// payload returns the payload of a document that was read, with its parts.
func (st *Store) payload(ctx context.Context, op string, r *reader) ([]byte, error) {
	sum := get[[]byte](r, fieldDigest)
	if !r.has(fieldUpload) {
		data := get[[]byte](r, fieldData)
		if r.err != nil {
			return nil, corrupt(op, r.err)
		}
		return checked(op, data, sum)
	}
	upload, parts := get[string](r, fieldUpload), get[int64](r, fieldParts)
	if r.err == nil && (parts < 1 || parts > store.MaxEvent/partSize+1) {
		r.err = fmt.Errorf("field %q is out of range", fieldParts)
	}
	if _, err := hex.DecodeString(upload); r.err == nil && err != nil {
		r.err = fmt.Errorf("field %q is not an upload's name", fieldUpload)
	}
	if r.err != nil {
		return nil, corrupt(op, r.err)
	}
	docs := make([]*firestore.DocumentRef, parts)
	for i := range docs {
		docs[i] = st.part(upload, i)
	}
	snaps, err := st.getAll(ctx, op, docs)
	if err != nil {
		return nil, err
	}
	var data []byte
	for i, snap := range snaps {
		if snap == nil {
			return nil, corrupt(op, fmt.Errorf("part %d of %d is missing", i+1, parts))
		}
		part := read(snap)
		data = append(data, get[[]byte](part, fieldData)...)
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
