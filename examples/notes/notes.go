// Package notes is a small real application: an MCP server that keeps notes for whoever is asking.
//
// The server is written with the official SDK and knows nothing of HTTP, sessions or clouds. It keeps its notes in a
// [Storage], and there is one for each database that Hydrant keeps sessions in; so the notes are where the sessions are,
// and any instance can answer any message. The commands put the two together:
//
//	examples/notes/local      http://127.0.0.1:8080/mcp; in memory, or in DynamoDB
//	examples/notes/lambda     AWS Lambda with DynamoDB
//	examples/notes/cloudrun   Google Cloud Run with Firestore
package notes

import (
	"context"
	"errors"
	"time"
)

// A Note is what somebody wrote down.
type Note struct {
	// ID is part of the note's URI, notes://ID.
	ID string `json:"id"`
	// Text is the note itself, 1 to [MaxText] bytes.
	Text string `json:"text"`
	// Created is when it was written, in UTC.
	Created time.Time `json:"created"`
}

// URI is where clients read the note.
func (n Note) URI() string { return "notes://" + n.ID }

// MaxText is how long a note may be, in bytes. Both databases take much larger items; a client's context does not.
const MaxText = 16 << 10

// Storage keeps notes. Each belongs to an owner, and one owner never sees another's: every method looks only at the
// owner's own. The empty owner is everybody, where a server asks for no credentials. IDs are letters and digits.
type Storage interface {
	// Add keeps a note under an ID that is not in use.
	Add(ctx context.Context, owner string, n Note) error
	// Note returns the note with an ID, or [ErrNotFound].
	Note(ctx context.Context, owner, id string) (Note, error)
	// Notes returns all notes of an owner, in no order.
	Notes(ctx context.Context, owner string) ([]Note, error)
	// Delete removes the note with an ID, or returns [ErrNotFound].
	Delete(ctx context.Context, owner, id string) error
}

// ErrNotFound says that an owner has no note with that ID.
var ErrNotFound = errors.New("no such note")
