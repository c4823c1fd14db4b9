package firestore

import (
	"bytes"
	"fmt"
	"time"

	"cloud.google.com/go/firestore"

	"github.com/hydrant-mcp/hydrant/store"
)

// The fields of documents of several kinds.
const (
	fieldVersion = "v"    // store.SchemaVersion
	fieldTTL     = "ttl"  // when the record ends; the database's time to live goes by it
	fieldMark    = "mark" // of the call that wrote last
)

type fields = map[string]any

// A reader decodes a document. It keeps the first error and goes on, so that callers check once, at the end.
type reader struct {
	fields fields
	err    error
}

// read begins to decode a document and checks that this code can know its form.
func read(snap *firestore.DocumentSnapshot) *reader {
	r := &reader{fields: snap.Data()}
	if v := get[int64](r, fieldVersion); v < 1 && r.err == nil {
		r.err = fmt.Errorf("field %q is out of range", fieldVersion)
	}
	return r
}

func (r *reader) has(name string) bool {
	_, ok := r.fields[name]
	return ok
}

// expired says that the document's time to live has passed. Documents are read until the database removes them.
func (r *reader) expired() bool { return store.Expired(get[time.Time](r, fieldTTL), time.Now()) }

func (r *reader) texts(name string) []string {
	var texts []string
	for _, element := range get[[]any](r, name) {
		text, ok := element.(string)
		if !ok {
			r.err = fmt.Errorf("field %q has an element of the wrong type", name)
			return nil
		}
		texts = append(texts, text)
	}
	return texts
}

func get[T string | int64 | bool | []byte | time.Time | []any](r *reader, name string) T {
	value, ok := r.fields[name].(T)
	if !ok && r.err == nil {
		if r.has(name) {
			r.err = fmt.Errorf("field %q has the wrong type", name)
		} else {
			r.err = fmt.Errorf("field %q is missing", name)
		}
	}
	return value
}

// marked says that a document was written last by the call that has the mark.
func marked(snap *firestore.DocumentSnapshot, mark []byte) bool {
	if snap == nil {
		return false
	}
	got, _ := snap.Data()[fieldMark].([]byte)
	return bytes.Equal(got, mark)
}

// list never returns nil, which the client stores as a null.
func list(texts []string) []string { return append([]string{}, texts...) }

// filled never returns nil, which the client stores as a null.
func filled(data []byte) []byte {
	if data == nil {
		return []byte{}
	}
	return data
}
