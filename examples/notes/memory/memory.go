// Package memory keeps notes in the memory of one process, for local use and for tests.
package memory

import (
	"context"
	"errors"
	"sync"

	"github.com/hydrant-mcp/hydrant/examples/notes"
)

// Storage is a [notes.Storage] in memory. The zero value is empty and ready.
type Storage struct {
	mu    sync.Mutex
	notes map[key]notes.Note
}

type key struct{ owner, id string }

var _ notes.Storage = (*Storage)(nil)

// Add implements [notes.Storage].
func (s *Storage) Add(_ context.Context, owner string, n notes.Note) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, exists := s.notes[key{owner, n.ID}]; exists {
		return errors.New("a note has this ID already")
	}
	if s.notes == nil {
		s.notes = make(map[key]notes.Note)
	}
	s.notes[key{owner, n.ID}] = n
	return nil
}

// Note implements [notes.Storage].
func (s *Storage) Note(_ context.Context, owner, id string) (notes.Note, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, ok := s.notes[key{owner, id}]
	if !ok {
		return notes.Note{}, notes.ErrNotFound
	}
	return n, nil
}

// Notes implements [notes.Storage].
func (s *Storage) Notes(_ context.Context, owner string) ([]notes.Note, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []notes.Note
	for k, n := range s.notes {
		if k.owner == owner {
			all = append(all, n)
		}
	}
	return all, nil
}

// Delete implements [notes.Storage].
func (s *Storage) Delete(_ context.Context, owner, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.notes[key{owner, id}]; !ok {
		return notes.ErrNotFound
	}
	delete(s.notes, key{owner, id})
	return nil
}
