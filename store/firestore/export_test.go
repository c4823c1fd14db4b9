package firestore

import "time"

// SetTimeout changes how long one call of a store may take.
func (st *Store) SetTimeout(timeout time.Duration) { st.timeout = timeout }

// Revision returns the revision of a record that was read and ends then.
func Revision(expires time.Time) any { return revision{time.Unix(1, 0), expires.UnixMicro()} }

// Listening returns how many targets are listened to, and by how many streams.
func (st *Store) Listening() (targets, streams int) {
	st.listening.mu.Lock()
	defer st.listening.mu.Unlock()
	return len(st.listening.targets), len(st.listening.streams)
}

// SetMaxStreams changes how many streams there may be.
func (st *Store) SetMaxStreams(n int) { st.listening.most = n }

// SetLastID changes which number the streams that there are gave last.
func (st *Store) SetLastID(id int32) {
	st.listening.mu.Lock()
	defer st.listening.mu.Unlock()
	for _, s := range st.listening.streams {
		s.lastID = id
	}
}

// TargetsPerStream is how many targets share a stream.
const TargetsPerStream = targetsPerStream
