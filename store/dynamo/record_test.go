package dynamo_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/store"
	"github.com/hydrant-mcp/hydrant/store/dynamo"
	"github.com/hydrant-mcp/hydrant/store/storetest"
)

type attributes = map[string]types.AttributeValue

func TestUnknownAttributesSurviveAnUpdate(t *testing.T) {
	client, table := newTable(t)
	st := dynamo.New(client, table)
	s := storetest.NewSession()
	require.NoError(t, st.CreateSession(t.Context(), s))
	raw := rawItems(t, client, table)[0]
	raw["v"] = &types.AttributeValueMemberN{Value: "7"}
	raw["later"] = &types.AttributeValueMemberM{Value: attributes{"a": &types.AttributeValueMemberS{Value: "b"}}}
	put(t, client, table, raw)

	read, err := st.Session(t.Context(), s.Key)
	require.NoError(t, err, "a record of a later version is read as far as it is understood")
	read.LogLevel = "critical"
	require.NoError(t, st.UpdateSession(t.Context(), read))

	got := rawItems(t, client, table)[0]
	assert.Equal(t, raw["later"], got["later"])
	assert.Equal(t, raw["v"], got["v"])
	read, err = st.Session(t.Context(), s.Key)
	require.NoError(t, err)
	assert.Equal(t, "critical", read.LogLevel)
}

func TestUnknownAttributesOfAnExchangeSurviveAnUpdate(t *testing.T) {
	client, table := newTable(t)
	st := dynamo.New(client, table)
	x := storetest.NewExchange()
	require.NoError(t, st.CreateExchange(t.Context(), x))
	raw := rawItems(t, client, table)[0]
	raw["v"] = &types.AttributeValueMemberN{Value: "7"}
	raw["later"] = &types.AttributeValueMemberS{Value: "b"}
	put(t, client, table, raw)

	read, err := st.Exchange(t.Context(), x.Key)
	require.NoError(t, err)
	read.Owner = "me"
	require.NoError(t, st.UpdateExchange(t.Context(), read))
	got := rawItems(t, client, table)[0]
	assert.Equal(t, raw["later"], got["later"])
	assert.Equal(t, raw["v"], got["v"])
	assert.Equal(t, &types.AttributeValueMemberS{Value: "me"}, got["owner"])
}

func TestRecordsHaveATimeToLiveNotBeforeTheyExpire(t *testing.T) {
	client, table := newTable(t)
	st := dynamo.New(client, table)
	expires := time.Unix(4102444800, 1)
	s := storetest.NewSession()
	s.Expires = expires
	require.NoError(t, st.CreateSession(t.Context(), s))
	x := storetest.NewExchange()
	x.Expires = expires
	require.NoError(t, st.CreateExchange(t.Context(), x))
	require.NoError(t, st.AppendEvent(t.Context(), "x", store.Event{Seq: 1, Data: make([]byte, 1<<20)}, expires))
	require.NoError(t, st.PutAnswer(t.Context(), "x", "q", nil, expires))
	items := rawItems(t, client, table)
	require.Len(t, items, 7, "a session, an exchange, an answer, an event and its three parts")
	for _, it := range items {
		want := "4102444801"
		if strings.HasPrefix(it["pk"].(*types.AttributeValueMemberS).Value, "p#") {
			want = "4102448401" // a part does not go before its event
		}
		assert.Equal(t, &types.AttributeValueMemberN{Value: want}, it["ttl"])
		assert.Equal(t, &types.AttributeValueMemberN{Value: "1"}, it["v"])
	}
}

func TestTopicsAreForgottenAndNeverGoBack(t *testing.T) {
	client, table := newTable(t)
	st := dynamo.New(client, table)
	raise := func() int64 {
		t.Helper()
		require.NoError(t, st.RaiseTopic(t.Context(), "t"))
		versions, err := st.TopicVersions(t.Context(), []string{"t"})
		require.NoError(t, err)
		return versions["t"]
	}
	before := time.Now()
	first := raise()
	raw := rawItems(t, client, table)[0]
	ttl, err := strconv.ParseInt(raw["ttl"].(*types.AttributeValueMemberN).Value, 10, 64)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, ttl, before.Add(store.TopicLife).Unix())
	assert.LessOrEqual(t, ttl, time.Now().Add(store.TopicLife+time.Second).Unix())
	assert.Equal(t, first+1, raise())

	_, err = client.DeleteItem(t.Context(), &dynamodb.DeleteItemInput{
		TableName: &table, Key: attributes{"pk": raw["pk"], "sk": raw["sk"]},
	})
	require.NoError(t, err)
	assert.Greater(t, raise(), first+1)

	delete(raw, "ttl")
	raw["n"] = &types.AttributeValueMemberN{Value: "7"}
	put(t, client, table, raw)
	assert.EqualValues(t, 8, raise(), "one from before there was a time to live counts on")
	assert.Contains(t, rawItems(t, client, table)[0], "ttl")
}

func TestDeleteLeavesATombstoneWithoutWhatTheClientSaid(t *testing.T) {
	client, table := newTable(t)
	st := dynamo.New(client, table)
	s := storetest.NewSession()
	require.NoError(t, st.CreateSession(t.Context(), s))
	ttl := rawItems(t, client, table)[0]["ttl"]
	require.NoError(t, st.DeleteSession(t.Context(), s.Key))
	it := rawItems(t, client, table)[0]
	assert.Equal(t, ttl, it["ttl"])
	for name := range it {
		assert.Contains(t, []string{"pk", "sk", "v", "ttl", "rev", "mark", "deleted"}, name)
	}
}

func TestUnreadableSessionIsCorruptAndNotMissing(t *testing.T) {
	client, table := newTable(t)
	st := dynamo.New(client, table)
	s := storetest.NewSession()
	require.NoError(t, st.CreateSession(t.Context(), s))
	good := rawItems(t, client, table)[0]
	assertCorrupt := func(t *testing.T, kind string) {
		t.Helper()
		_, err := st.Session(t.Context(), s.Key)
		requireCorrupt(t, err, s.Key, kind)
	}
	spoil(t, client, table, good, assertCorrupt)
	t.Run("deleted", func(t *testing.T) {
		bad := clone(good)
		bad["deleted"] = &types.AttributeValueMemberNULL{Value: true}
		put(t, client, table, bad)
		assertCorrupt(t, "wrong type")
	})
	t.Run("nothing but the key", func(t *testing.T) {
		put(t, client, table, attributes{"pk": good["pk"], "sk": good["sk"]})
		assertCorrupt(t, "empty")
		require.NoError(t, st.DeleteSession(t.Context(), s.Key), "it can be deleted")
	})
}

func TestUnreadableExchangeIsCorruptAndNotMissing(t *testing.T) {
	client, table := newTable(t)
	st := dynamo.New(client, table)
	x := storetest.NewExchange()
	require.NoError(t, st.CreateExchange(t.Context(), x))
	spoil(t, client, table, rawItems(t, client, table)[0], func(t *testing.T, kind string) {
		t.Helper()
		_, err := st.Exchange(t.Context(), x.Key)
		requireCorrupt(t, err, x.Key, kind)
	})
}

// spoil writes a record in which one attribute after the other is wrong or missing.
func spoil(t *testing.T, client *dynamodb.Client, table string, good attributes, check func(*testing.T, string)) {
	t.Helper()
	wrong := map[string]types.AttributeValue{
		"wrong type": &types.AttributeValueMemberNULL{Value: true},
		"garbage":    &types.AttributeValueMemberL{Value: []types.AttributeValue{&types.AttributeValueMemberN{Value: "1.5"}}},
		"fraction":   &types.AttributeValueMemberN{Value: "1.5"},
	}
	for name := range good {
		switch name {
		case "pk", "sk", "ttl", "mark":
			continue // the key, and what reading does not need
		}
		t.Run(name, func(t *testing.T) {
			for kind, value := range wrong {
				bad := clone(good)
				bad[name] = value
				put(t, client, table, bad)
				check(t, kind)
			}
			bad := clone(good)
			delete(bad, name)
			put(t, client, table, bad)
			check(t, "missing")
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
	client, table := newTable(t)
	st := dynamo.New(client, table)
	inAnHour := time.Now().Add(time.Hour)
	require.NoError(t, st.AppendEvent(t.Context(), "x", store.Event{Seq: 1, Data: make([]byte, 1<<20)}, inAnHour))
	require.NoError(t, st.PutAnswer(t.Context(), "x", "q", []byte("answer"), inAnHour))
	require.NoError(t, st.RaiseTopic(t.Context(), "t"))
	check := func(t *testing.T, kind string) {
		_, err := st.Events(t.Context(), "x", 0, 0)
		_, answerErr := st.Answer(t.Context(), "x", "q")
		_, topicErr := st.TopicVersions(t.Context(), []string{"t"})
		switch kind {
		case "a":
			err = answerErr
		case "t":
			err = topicErr
		}
		require.ErrorIs(t, err, store.ErrCorrupt)
		assert.NotErrorIs(t, err, store.ErrNotFound)
	}
	for _, good := range rawItems(t, client, table) {
		kind := string(good["sk"].(*types.AttributeValueMemberS).Value[0])
		for name := range good {
			switch name {
			case "pk", "sk", "mark":
				continue
			case "ttl":
				if kind == "p" || kind == "t" {
					continue
				}
			}
			t.Run(kind+" "+name, func(t *testing.T) {
				defer put(t, client, table, good)
				bad := clone(good)
				bad[name] = &types.AttributeValueMemberBOOL{Value: true}
				put(t, client, table, bad)
				check(t, kind)
				delete(bad, name)
				put(t, client, table, bad)
				check(t, kind)
			})
		}
		if kind == "p" {
			t.Run("p is gone", func(t *testing.T) {
				defer put(t, client, table, good)
				_, err := client.DeleteItem(t.Context(), &dynamodb.DeleteItemInput{
					TableName: &table, Key: attributes{"pk": good["pk"], "sk": good["sk"]},
				})
				require.NoError(t, err)
				check(t, kind)
			})
		}
		if kind != "t" {
			t.Run(kind+" other bytes", func(t *testing.T) {
				defer put(t, client, table, good)
				bad := clone(good)
				bad["d"] = &types.AttributeValueMemberB{Value: []byte("other")}
				bad["h"] = &types.AttributeValueMemberB{Value: []byte("digest")}
				put(t, client, table, bad)
				check(t, kind)
			})
		}
	}
}

// Only time to live removes items, and it may take days: what has expired is still there, and is no event any more.
func TestExpiredEventsAreMissingThoughTheyAreThere(t *testing.T) {
	st := open(t)
	past, inAnHour := time.Now().Add(-time.Minute), time.Now().Add(time.Hour)
	for seq := int64(1); seq <= 5; seq++ { // more than a page of the database
		data := make([]byte, 300<<10)
		require.NoError(t, st.AppendEvent(t.Context(), "x", store.Event{Seq: seq, Data: data}, past))
	}
	require.NoError(t, st.AppendEvent(t.Context(), "x", store.Event{Seq: 6}, inAnHour))
	require.NoError(t, st.AppendEvent(t.Context(), "x", store.Event{Seq: store.Final}, inAnHour))
	for after, want := range map[int64][]int64{0: {store.Final}, 4: {store.Final}, 5: {6, store.Final}} {
		events, err := st.Events(t.Context(), "x", after, 0)
		require.NoError(t, err)
		var got []int64
		for _, e := range events {
			got = append(got, e.Seq)
		}
		assert.Equal(t, want, got)
	}
	require.NoError(t, st.PutAnswer(t.Context(), "x", "q", nil, past))
	_, err := st.Answer(t.Context(), "x", "q")
	require.ErrorIs(t, err, store.ErrNotFound)
}

func rawItems(t *testing.T, client *dynamodb.Client, table string) []attributes {
	t.Helper()
	var items []attributes
	pages := dynamodb.NewScanPaginator(client, &dynamodb.ScanInput{TableName: &table, ConsistentRead: aws.Bool(true)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		require.NoError(t, err)
		items = append(items, page.Items...)
	}
	require.NotEmpty(t, items)
	return items
}

func put(t *testing.T, client *dynamodb.Client, table string, it attributes) {
	t.Helper()
	_, err := client.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &table, Item: it})
	require.NoError(t, err)
}

func clone(it attributes) attributes {
	c := make(attributes, len(it))
	for name, value := range it {
		c[name] = value
	}
	return c
}
