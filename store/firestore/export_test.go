package firestore

import "time"

// SetTimeout changes how long one call of a store may take.
func (st *Store) SetTimeout(timeout time.Duration) { st.timeout = timeout }

// Revision returns the revision of a record that was read and ends then.
func Revision(expires time.Time) any { return revision{time.Unix(1, 0), expires.UnixMicro()} }

// Listening returns how many listeners there are.
func (st *Store) Listening() int64 { return st.listening.Load() }

// MaxListeners is how many there may be.
const MaxListeners = maxListeners
