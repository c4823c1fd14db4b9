package server

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// A tally is a file that processes append lines to, so that whoever watches from outside sees what ran, and how often.
type tally struct {
	path string // empty: nothing is written
}

// add appends one line. It is one write in append mode: lines of several processes do not mix.
func (t tally) add(line string) (err error) {
	if t.path == "" {
		return nil
	}
	f, err := os.OpenFile(t.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("opening the tally: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.WriteString(line + "\n"); err != nil {
		return fmt.Errorf("appending to the tally: %w", err)
	}
	return nil
}

// checkKey refuses keys that would make more than one line.
func checkKey(key string) error {
	if strings.ContainsAny(key, "\r\n") {
		return errors.New("a key is one line")
	}
	return nil
}
