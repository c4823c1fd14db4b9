package firestore_test

import (
	"encoding/json"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/firestore"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/internal/emulator"
	"github.com/hydrant-mcp/hydrant/store"
	hydrant "github.com/hydrant-mcp/hydrant/store/firestore"
	"github.com/hydrant-mcp/hydrant/store/storetest"
)

// A database is a store in collections of its own, and a client that looks at them.
type database struct {
	*hydrant.Store
	client *firestore.Client
	prefix string
}

func newDatabase(t *testing.T) database {
	t.Helper()
	address, prefix := emulator.FirestoreForTest(t), newPrefix()
	return database{newStore(t, address, prefix), newClient(t, address), prefix}
}

// documents returns what is in all collections of a name.
func (db database) documents(t *testing.T, collection string) []*firestore.DocumentSnapshot {
	t.Helper()
	docs, err := db.client.CollectionGroup(db.prefix + "_" + collection).Documents(t.Context()).GetAll()
	require.NoError(t, err)
	require.NotEmpty(t, docs)
	return docs
}

func TestUnknownFieldsSurviveAnUpdate(t *testing.T) {
	db := newDatabase(t)
	s := storetest.NewSession()
	require.NoError(t, db.CreateSession(t.Context(), s))
	later := map[string]any{"a": "b"}
	_, err := db.documents(t, "sessions")[0].Ref.Update(t.Context(),
		[]firestore.Update{{Path: "later", Value: later}, {Path: "v", Value: 7}})
	require.NoError(t, err)

	read, err := db.Session(t.Context(), s.Key)
	require.NoError(t, err, "a record of a later version is read as far as it is understood")
	read.LogLevel = "critical"
	require.NoError(t, db.UpdateSession(t.Context(), read))

	got := db.documents(t, "sessions")[0].Data()
	assert.Equal(t, later, got["later"])
	assert.EqualValues(t, 7, got["v"])
	assert.Equal(t, "critical", got["level"])
}

func TestUnknownFieldsOfAnExchangeSurviveAnUpdate(t *testing.T) {
	db := newDatabase(t)
	x := storetest.NewExchange()
	require.NoError(t, db.CreateExchange(t.Context(), x))
	_, err := db.documents(t, "exchanges")[0].Ref.Update(t.Context(),
		[]firestore.Update{{Path: "later", Value: "b"}, {Path: "v", Value: 7}})
	require.NoError(t, err)
	read, err := db.Exchange(t.Context(), x.Key)
	require.NoError(t, err)
	read.Owner = "me"
	require.NoError(t, db.UpdateExchange(t.Context(), read))
	got := db.documents(t, "exchanges")[0].Data()
	assert.Equal(t, "b", got["later"])
	assert.EqualValues(t, 7, got["v"])
	assert.Equal(t, "me", got["owner"])
}

func TestRecordsHaveATimeToLiveNotBeforeTheyExpire(t *testing.T) {
	db := newDatabase(t)
	expires := time.Unix(4102444800, 0).UTC()
	s := storetest.NewSession()
	s.Expires = expires
	require.NoError(t, db.CreateSession(t.Context(), s))
	x := storetest.NewExchange()
	x.Expires = expires
	require.NoError(t, db.CreateExchange(t.Context(), x))
	require.NoError(t, db.AppendEvent(t.Context(), "x", store.Event{Seq: 1, Data: make([]byte, 1<<20)}, expires))
	require.NoError(t, db.PutAnswer(t.Context(), "x", "q", nil, expires))
	for collection, want := range map[string]time.Time{
		"sessions": expires, "exchanges": expires, "events": expires, "answers": expires, "parts": expires.Add(time.Hour),
	} {
		for _, doc := range db.documents(t, collection) {
			assert.Equal(t, want, doc.Data()["ttl"], collection)
			assert.EqualValues(t, 1, doc.Data()["v"], collection)
		}
	}
}

func TestTopicsAreForgottenAndNeverGoBack(t *testing.T) {
	db := newDatabase(t)
	raise := func() int64 {
		t.Helper()
		require.NoError(t, db.RaiseTopic(t.Context(), "t"))
		versions, err := db.TopicVersions(t.Context(), []string{"t"})
		require.NoError(t, err)
		return versions["t"]
	}
	first := raise()
	doc := db.documents(t, "topics")[0]
	assert.WithinDuration(t, time.Now().Add(store.TopicLife), doc.Data()["ttl"].(time.Time), time.Minute)
	assert.Equal(t, first+1, raise())

	_, err := doc.Ref.Delete(t.Context())
	require.NoError(t, err)
	assert.Greater(t, raise(), first+1)

	_, err = doc.Ref.Set(t.Context(), map[string]any{"v": 1, "n": 7})
	require.NoError(t, err)
	assert.EqualValues(t, 8, raise(), "one from before there was a time to live counts on")
	assert.Contains(t, db.documents(t, "topics")[0].Data(), "ttl")
}

func TestDeleteLeavesATombstoneWithoutWhatTheClientSaid(t *testing.T) {
	db := newDatabase(t)
	s := storetest.NewSession()
	require.NoError(t, db.CreateSession(t.Context(), s))
	ttl := db.documents(t, "sessions")[0].Data()["ttl"]
	require.NoError(t, db.DeleteSession(t.Context(), s.Key))
	got := db.documents(t, "sessions")[0].Data()
	assert.Equal(t, ttl, got["ttl"])
	for name := range got {
		assert.Contains(t, []string{"v", "ttl", "mark", "deleted"}, name)
	}
}

func TestUnreadableSessionIsCorruptAndNotMissing(t *testing.T) {
	db := newDatabase(t)
	s := storetest.NewSession()
	require.NoError(t, db.CreateSession(t.Context(), s))
	doc := db.documents(t, "sessions")[0]
	good := doc.Data()
	check := func(t *testing.T, kind string, bad map[string]any) {
		t.Helper()
		_, err := doc.Ref.Set(t.Context(), bad)
		require.NoError(t, err)
		_, err = db.Session(t.Context(), s.Key)
		requireCorrupt(t, err, s.Key, kind)
	}
	spoil(t, good, check)
	t.Run("deleted", func(t *testing.T) {
		bad := maps.Clone(good)
		bad["deleted"] = "yes"
		check(t, "wrong type", bad)
	})
	t.Run("nothing", func(t *testing.T) {
		check(t, "empty", map[string]any{})
		require.NoError(t, db.DeleteSession(t.Context(), s.Key), "it can be deleted")
	})
}

func TestUnreadableExchangeIsCorruptAndNotMissing(t *testing.T) {
	db := newDatabase(t)
	x := storetest.NewExchange()
	require.NoError(t, db.CreateExchange(t.Context(), x))
	doc := db.documents(t, "exchanges")[0]
	spoil(t, doc.Data(), func(t *testing.T, kind string, bad map[string]any) {
		t.Helper()
		_, err := doc.Ref.Set(t.Context(), bad)
		require.NoError(t, err)
		_, err = db.Exchange(t.Context(), x.Key)
		requireCorrupt(t, err, x.Key, kind)
	})
}

// spoil makes records of a good one in which one field after the other is wrong or missing.
func spoil(t *testing.T, good map[string]any, check func(t *testing.T, kind string, bad map[string]any)) {
	t.Helper()
	for name := range good {
		if name == "mark" {
			continue // reading does not need it
		}
		t.Run(name, func(t *testing.T) {
			for kind, value := range map[string]any{"null": nil, "garbage": []any{1.5}, "number": 1.5} {
				bad := maps.Clone(good)
				bad[name] = value
				check(t, kind, bad)
			}
			bad := maps.Clone(good)
			delete(bad, name)
			check(t, "missing", bad)
		})
	}
}

func requireCorrupt(t *testing.T, err error, key, kind string) {
	t.Helper()
	require.ErrorIs(t, err, store.ErrCorrupt, kind)
	assert.NotErrorIs(t, err, store.ErrNotFound)
	assert.NotErrorIs(t, err, store.ErrUnavailable)
	assert.NotContains(t, err.Error(), key)
}

func TestUnreadablePayloadIsCorruptAndNotMissing(t *testing.T) {
	db := newDatabase(t)
	inAnHour := time.Now().Add(time.Hour)
	require.NoError(t, db.AppendEvent(t.Context(), "x", store.Event{Seq: 1, Data: make([]byte, 1<<20)}, inAnHour))
	require.NoError(t, db.PutAnswer(t.Context(), "x", "q", []byte("answer"), inAnHour))
	require.NoError(t, db.RaiseTopic(t.Context(), "t"))
	for collection, reading := range map[string]func() error{
		"events":  func() error { _, err := db.Events(t.Context(), "x", 0, 0); return err },
		"parts":   func() error { _, err := db.Events(t.Context(), "x", 0, 0); return err },
		"answers": func() error { _, err := db.Answer(t.Context(), "x", "q"); return err },
		"topics":  func() error { _, err := db.TopicVersions(t.Context(), []string{"t"}); return err },
	} {
		doc := db.documents(t, collection)[0]
		good := doc.Data()
		check := func(t *testing.T, bad map[string]any) {
			t.Helper()
			_, err := doc.Ref.Set(t.Context(), bad)
			require.NoError(t, err)
			err = reading()
			require.ErrorIs(t, err, store.ErrCorrupt)
			assert.NotErrorIs(t, err, store.ErrNotFound)
		}
		for name := range good {
			if name == "mark" || name == "ttl" && (collection == "parts" || collection == "topics") {
				continue
			}
			t.Run(collection+" "+name, func(t *testing.T) {
				bad := maps.Clone(good)
				bad[name] = true
				check(t, bad)
				delete(bad, name)
				check(t, bad)
			})
		}
		if collection != "topics" {
			t.Run(collection+" other bytes", func(t *testing.T) {
				bad := maps.Clone(good)
				bad["data"], bad["digest"] = []byte("other"), []byte("digest")
				check(t, bad)
			})
		}
		if collection == "parts" {
			t.Run("parts is gone", func(t *testing.T) {
				_, err := doc.Ref.Delete(t.Context())
				require.NoError(t, err)
				require.ErrorIs(t, reading(), store.ErrCorrupt)
			})
		}
		_, err := doc.Ref.Set(t.Context(), good)
		require.NoError(t, err)
		require.NoError(t, reading())
	}
}

// Only time to live removes documents, and it may take a day: what has expired is still there, and is no event any more.
func TestExpiredEventsAreMissingThoughTheyAreThere(t *testing.T) {
	db := newDatabase(t)
	past, inAnHour := time.Now().Add(-time.Minute), time.Now().Add(time.Hour)
	for seq := int64(1); seq <= 3; seq++ {
		require.NoError(t, db.AppendEvent(t.Context(), "x", store.Event{Seq: seq}, past))
	}
	require.NoError(t, db.AppendEvent(t.Context(), "x", store.Event{Seq: 4}, inAnHour))
	require.NoError(t, db.AppendEvent(t.Context(), "x", store.Event{Seq: store.Final}, inAnHour))
	for after, want := range map[int64][]int64{0: {store.Final}, 2: {store.Final}, 3: {4, store.Final}} {
		events, err := db.Events(t.Context(), "x", after, 0)
		require.NoError(t, err)
		var got []int64
		for _, e := range events {
			got = append(got, e.Seq)
		}
		assert.Equal(t, want, got)
	}
	require.NoError(t, db.AppendEvent(t.Context(), "y", store.Event{Seq: store.Final}, past))
	events, err := db.Events(t.Context(), "y", 0, 0)
	require.NoError(t, err)
	assert.Empty(t, events)
	require.NoError(t, db.PutAnswer(t.Context(), "x", "q", nil, past))
	_, err = db.Answer(t.Context(), "x", "q")
	require.ErrorIs(t, err, store.ErrNotFound)
}

// The emulator knows no indexes: what is to be deployed is checked against what is written.
func TestIndexFileExemptsEveryField(t *testing.T) {
	db := newDatabase(t)
	inAnHour := time.Now().Add(time.Hour)
	s, deleted := storetest.NewSession(), storetest.NewSession()
	require.NoError(t, db.CreateSession(t.Context(), s))
	require.NoError(t, db.CreateSession(t.Context(), deleted))
	require.NoError(t, db.DeleteSession(t.Context(), deleted.Key))
	require.NoError(t, db.CreateExchange(t.Context(), storetest.NewExchange()))
	for seq, size := range []int{1, 1 << 20} {
		e := store.Event{Seq: int64(seq + 1), Data: make([]byte, size)}
		require.NoError(t, db.AppendEvent(t.Context(), "x", e, inAnHour))
		require.NoError(t, db.PutAnswer(t.Context(), "x", strings.Repeat("q", seq), e.Data, inAnHour))
	}
	require.NoError(t, db.RaiseTopic(t.Context(), "t"))

	type field struct{ CollectionGroup, FieldPath string }
	var file struct {
		Indexes        []any
		FieldOverrides []struct {
			field
			TTL     bool
			Indexes *[]any
		}
	}
	data, err := os.ReadFile("../../firestore.indexes.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &file))
	assert.Empty(t, file.Indexes, "nothing needs a composite index")
	listed := make(map[field]bool)
	for _, o := range file.FieldOverrides {
		assert.False(t, listed[o.field], "twice: %v", o.field)
		listed[o.field] = true
		assert.Equal(t, o.FieldPath == "ttl", o.TTL)
		require.NotNil(t, o.Indexes)
		assert.Empty(t, *o.Indexes)
	}
	written := make(map[field]bool)
	for _, collection := range []string{"sessions", "exchanges", "events", "answers", "parts", "topics"} {
		for _, doc := range db.documents(t, collection) {
			for name := range doc.Data() {
				written[field{hydrant.DefaultPrefix + "_" + collection, name}] = true
			}
		}
	}
	assert.Equal(t, written, listed)
}
