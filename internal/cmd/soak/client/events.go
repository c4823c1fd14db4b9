package client

import (
	"bufio"
	"errors"
	"io"
	"strconv"
	"strings"
	"time"
)

// An Event is one block of an event stream (WHATWG HTML, server-sent events).
type Event struct {
	// ID is the last event id as of this event.
	ID string
	// Name is the event's type, "" for the default.
	Name string
	// Data is what its data fields say, joined by line feeds.
	Data string
	// Retry is what the stream says about coming back in this block, 0 without.
	Retry time.Duration
}

// ReadEvents parses an event stream and hands over every complete block that has an id, data or a retry, until yield
// returns false or the stream ends. A block that breaks off is none. The error is nil at the stream's proper end.
func ReadEvents(r io.Reader, yield func(Event) bool) error {
	in := lines{r: bufio.NewReader(r)}
	var e Event
	var data []string
	id, fields := "", false
	for {
		line, err := in.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if line == "" {
			if fields {
				e.ID, e.Data = id, strings.Join(data, "\n")
				if !yield(e) {
					return nil
				}
			}
			e, data, fields = Event{}, nil, false
			continue
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "id":
			if !strings.Contains(value, "\x00") {
				id, fields = value, true
			}
		case "event":
			e.Name = value
		case "data":
			data, fields = append(data, value), true
		case "retry":
			if ms, err := strconv.ParseUint(value, 10, 32); err == nil {
				e.Retry, fields = time.Duration(ms)*time.Millisecond, true
			}
		}
	}
}

// lines splits at line feeds, carriage returns, and both together.
type lines struct {
	r      *bufio.Reader
	wasCR  bool // the last line ended with a carriage return: a line feed that follows is part of that
	text   []byte
	noMark bool // the stream has begun: a byte order mark is one no longer
}

func (l *lines) next() (string, error) {
	l.text = l.text[:0]
	for {
		c, err := l.r.ReadByte()
		if err != nil {
			return "", err
		}
		if c == '\n' && l.wasCR {
			l.wasCR = false
			continue
		}
		l.wasCR = c == '\r'
		if c != '\n' && c != '\r' {
			l.text = append(l.text, c)
			continue
		}
		line := string(l.text)
		if !l.noMark {
			l.noMark, line = true, strings.TrimPrefix(line, "\ufeff")
		}
		return line, nil
	}
}
