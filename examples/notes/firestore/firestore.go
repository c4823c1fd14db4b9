// Package firestore keeps notes in the Firestore database that Hydrant keeps its sessions in.
//
//	notes/<owner>/notes/<id>     a note
//
// The notes of an owner are a collection of their own: listing them needs no index.
package firestore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"cloud.google.com/go/firestore"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hydrant-mcp/hydrant/examples/notes"
)

// Storage is a [notes.Storage] in a Firestore database.
type Storage struct{ root *firestore.CollectionRef }

var _ notes.Storage = (*Storage)(nil)

// New returns the storage in a collection at the root of the database. The service account needs roles/datastore.user,
// which it has already for the sessions.
func New(client *firestore.Client, collection string) *Storage {
	return &Storage{client.Collection(collection)}
}

// record is a note without its ID, which is the document's.
type record struct {
	Text    string    `firestore:"text"`
	Created time.Time `firestore:"created"`
}

// of is the collection of an owner, who is hashed: the name of a document has a maximal length and no slash.
func (s *Storage) of(owner string) *firestore.CollectionRef {
	sum := sha256.Sum256([]byte(owner))
	return s.root.Doc(hex.EncodeToString(sum[:])).Collection("notes")
}

// Add implements [notes.Storage].
func (s *Storage) Add(ctx context.Context, owner string, n notes.Note) error {
	if _, err := s.of(owner).Doc(n.ID).Create(ctx, record{n.Text, n.Created}); err != nil {
		return fmt.Errorf("adding a note: %w", err)
	}
	return nil
}

// Note implements [notes.Storage].
func (s *Storage) Note(ctx context.Context, owner, id string) (notes.Note, error) {
	snap, err := s.of(owner).Doc(id).Get(ctx)
	if status.Code(err) == codes.NotFound {
		return notes.Note{}, notes.ErrNotFound
	}
	if err != nil {
		return notes.Note{}, fmt.Errorf("reading a note: %w", err)
	}
	return decode(snap)
}

// Notes implements [notes.Storage].
func (s *Storage) Notes(ctx context.Context, owner string) ([]notes.Note, error) {
	snaps, err := s.of(owner).Documents(ctx).GetAll()
	if err != nil {
		return nil, fmt.Errorf("listing the notes: %w", err)
	}
	var all []notes.Note
	for _, snap := range snaps {
		n, err := decode(snap)
		if err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	return all, nil
}

// Delete implements [notes.Storage].
func (s *Storage) Delete(ctx context.Context, owner, id string) error {
	_, err := s.of(owner).Doc(id).Delete(ctx, firestore.Exists)
	if status.Code(err) == codes.NotFound {
		return notes.ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("deleting a note: %w", err)
	}
	return nil
}

func decode(snap *firestore.DocumentSnapshot) (notes.Note, error) {
	var r record
	if err := snap.DataTo(&r); err != nil {
		return notes.Note{}, errors.Join(errors.New("the record of a note cannot be read"), err)
	}
	return notes.Note{ID: snap.Ref.ID, Text: r.Text, Created: r.Created.UTC()}, nil
}
