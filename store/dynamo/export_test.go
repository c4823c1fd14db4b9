package dynamo

import "time"

// SetTimeout changes how long one call of a store may take.
func (st *Store) SetTimeout(timeout time.Duration) { st.timeout = timeout }

// Revision returns the revision of a record that was read and ends then.
func Revision(expires time.Time) any { return revision{1, expires.UnixMilli()} }
