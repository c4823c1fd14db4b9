package notes_test

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	gcfirestore "cloud.google.com/go/firestore"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/examples/notes"
	notesdynamo "github.com/hydrant-mcp/hydrant/examples/notes/dynamo"
	notesfirestore "github.com/hydrant-mcp/hydrant/examples/notes/firestore"
	notesmemory "github.com/hydrant-mcp/hydrant/examples/notes/memory"
	"github.com/hydrant-mcp/hydrant/handler"
	"github.com/hydrant-mcp/hydrant/internal/emulator"
	"github.com/hydrant-mcp/hydrant/store"
	"github.com/hydrant-mcp/hydrant/store/dynamo"
	"github.com/hydrant-mcp/hydrant/store/firestore"
	"github.com/hydrant-mcp/hydrant/store/memory"
)

func TestMain(m *testing.M) { os.Exit(emulator.Main(m)) }

// A database has both the sessions and the notes.
type database struct {
	sessions store.Store
	notes    notes.Storage
}

// databases opens each of the databases for a test, with a table or a prefix of the test's own.
var databases = map[string]func(*testing.T) database{
	"memory": func(*testing.T) database { return database{memory.New(), &notesmemory.Storage{}} },
	"DynamoDB": func(t *testing.T) database {
		client := dynamodb.New(dynamodb.Options{
			BaseEndpoint: aws.String(emulator.DynamoDBForTest(t)),
			Region:       "us-east-1",
			Credentials:  credentials.NewStaticCredentialsProvider("local", "local", ""),
		})
		table := "test-" + rand.Text()
		require.NoError(t, dynamo.CreateTable(t.Context(), client, table))
		return database{dynamo.New(client, table), notesdynamo.New(client, table)}
	},
	"Firestore": func(t *testing.T) database {
		t.Setenv("FIRESTORE_EMULATOR_HOST", emulator.FirestoreForTest(t))
		client, err := gcfirestore.NewClient(t.Context(), "hydrant-test")
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, client.Close()) })
		prefix := "test" + rand.Text()
		return database{firestore.New(client, prefix), notesfirestore.New(client, prefix+"_notes")}
	},
}

func eachDatabase(t *testing.T, test func(*testing.T, database)) {
	for name, open := range databases {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

// serve serves the notes as a platform does that starts an instance for every request.
func serve(t *testing.T, db database) (url string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		notes.NewHandler(db.notes, db.sessions, &handler.Options{Verifier: subject}).ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// subject takes the token itself for the name of whoever has it.
func subject(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
	return &auth.TokenInfo{UserID: token, Expiration: time.Now().Add(time.Hour)}, nil
}

func connect(t *testing.T, url, version, user string) *mcp.ClientSession {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint: url, DisableStandaloneSSE: true, MaxRetries: -1,
		HTTPClient: &http.Client{Transport: bearer(user)},
	}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, session.Close()) })
	return session
}

// A bearer sends a token with every request.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

func call(t *testing.T, session *mcp.ClientSession, tool string, arguments map[string]any) *mcp.CallToolResult {
	t.Helper()
	result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: arguments})
	require.NoError(t, err)
	return result
}

// add adds a note and returns its URI.
func add(t *testing.T, session *mcp.ClientSession, text string) (uri string) {
	t.Helper()
	result := call(t, session, "add_note", map[string]any{"text": text})
	require.False(t, result.IsError, "%v", texts(result))
	for _, c := range result.Content {
		if link, ok := c.(*mcp.ResourceLink); ok {
			return link.URI
		}
	}
	require.Fail(t, "no link to the note")
	return ""
}

func texts(result *mcp.CallToolResult) string {
	var all []string
	for _, c := range result.Content {
		if text, ok := c.(*mcp.TextContent); ok {
			all = append(all, text.Text)
		}
	}
	return strings.Join(all, "\n")
}

func TestNotesAreKept(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		url := serve(t, db)
		for _, version := range []string{"2025-11-25", "2026-07-28"} {
			t.Run(version, func(t *testing.T) {
				session := connect(t, url, version, "ann-"+version)
				milk := add(t, session, "Buy milk and bread.\nAnd butter.")
				add(t, session, "Milk the cow.")

				found := call(t, session, "search_notes", map[string]any{"query": "MILK bread"})
				assert.Contains(t, texts(found), "1 of 1 notes.")
				assert.Contains(t, texts(found), "And butter.")
				found = call(t, session, "search_notes", nil)
				assert.Contains(t, texts(found), "2 of 2 notes.")
				assert.Less(t, strings.Index(texts(found), "cow"), strings.Index(texts(found), "butter"), "the newest first")

				read, err := session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: milk})
				require.NoError(t, err)
				assert.Equal(t, "Buy milk and bread.\nAnd butter.", read.Contents[0].Text)

				prompt, err := session.GetPrompt(t.Context(), &mcp.GetPromptParams{
					Name: "summarize_notes", Arguments: map[string]string{"about": "butter"},
				})
				require.NoError(t, err)
				require.Len(t, prompt.Messages, 2)
				assert.Equal(t, milk, prompt.Messages[1].Content.(*mcp.EmbeddedResource).Resource.URI)

				id := map[string]any{"id": strings.TrimPrefix(milk, "notes://")}
				assert.False(t, call(t, session, "delete_note", id).IsError)
				assert.True(t, call(t, session, "delete_note", id).IsError, "it is gone")
				_, err = session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: milk})
				assert.Error(t, err)
				assert.Contains(t, texts(call(t, session, "search_notes", nil)), "1 of 1 notes.")
			})
		}
	})
}

// The clients' sessions are of different eras, and the notes are the same.
func TestNotesBelongToWhoeverWroteThem(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		url := serve(t, db)
		ann, bob := connect(t, url, "2025-11-25", "ann"), connect(t, url, "2026-07-28", "bob")
		uri := add(t, ann, "Ann's secret")

		assert.Contains(t, texts(call(t, bob, "search_notes", nil)), "0 of 0 notes.")
		_, err := bob.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri})
		assert.Error(t, err)
		assert.True(t, call(t, bob, "delete_note", map[string]any{"id": strings.TrimPrefix(uri, "notes://")}).IsError)

		again := connect(t, url, "2026-07-28", "ann")
		read, err := again.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri})
		require.NoError(t, err)
		assert.Equal(t, "Ann's secret", read.Contents[0].Text)
	})
}

func TestWhatCannotBeANoteIsRefused(t *testing.T) {
	session := connect(t, serve(t, databases["memory"](t)), "2026-07-28", "ann")
	for _, text := range []string{"", " \n", strings.Repeat("x", notes.MaxText+1)} {
		assert.True(t, call(t, session, "add_note", map[string]any{"text": text}).IsError, "%.10q", text)
	}
	for _, id := range []string{"", "a", "../../sessions", "AAAAAAAAAAAA", "aaaaaaaaaaa\x00", strings.Repeat("a", 4096)} {
		assert.True(t, call(t, session, "delete_note", map[string]any{"id": id}).IsError, "%.20q", id)
	}
}

func TestStorage(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		ctx := t.Context()
		n := notes.Note{ID: "abc", Text: "ä\n\"\x7f", Created: time.Now().UTC().Truncate(time.Millisecond)}
		_, err := db.notes.Note(ctx, "ann", n.ID)
		require.ErrorIs(t, err, notes.ErrNotFound)
		require.ErrorIs(t, db.notes.Delete(ctx, "ann", n.ID), notes.ErrNotFound)

		require.NoError(t, db.notes.Add(ctx, "ann", n))
		got, err := db.notes.Note(ctx, "ann", n.ID)
		require.NoError(t, err)
		assert.Equal(t, n, got)
		other := n
		other.Text = "other"
		require.Error(t, db.notes.Add(ctx, "ann", other), "the ID is in use")

		_, err = db.notes.Note(ctx, "", n.ID)
		require.ErrorIs(t, err, notes.ErrNotFound)
		require.ErrorIs(t, db.notes.Delete(ctx, "bob", n.ID), notes.ErrNotFound)
		all, err := db.notes.Notes(ctx, "bob")
		require.NoError(t, err)
		assert.Empty(t, all)

		all, err = db.notes.Notes(ctx, "ann")
		require.NoError(t, err)
		assert.Equal(t, []notes.Note{n}, all)
		require.NoError(t, db.notes.Delete(ctx, "ann", n.ID))
		require.ErrorIs(t, db.notes.Delete(ctx, "ann", n.ID), notes.ErrNotFound)
		all, err = db.notes.Notes(ctx, "ann")
		require.NoError(t, err)
		assert.Empty(t, all)
	})
}

// More than one page of what a database returns at a time.
func TestManyNotes(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		const many = 80 // of 16 KB: 1.3 MB
		for range many {
			require.NoError(t, db.notes.Add(t.Context(), "", notes.Note{
				ID: rand.Text(), Text: strings.Repeat("x", notes.MaxText), Created: time.Now(),
			}))
		}
		all, err := db.notes.Notes(t.Context(), "")
		require.NoError(t, err)
		assert.Len(t, all, many)
	})
}

// broken is a storage whose database names an account in its errors.
type broken struct{ notes.Storage }

var errDatabase = errors.New("role arn:aws:iam::123456789012:role/notes may not read table notes")

func (broken) Add(context.Context, string, notes.Note) error       { return errDatabase }
func (broken) Delete(context.Context, string, string) error        { return errDatabase }
func (broken) Notes(context.Context, string) ([]notes.Note, error) { return nil, errDatabase }
func (broken) Note(context.Context, string, string) (notes.Note, error) {
	return notes.Note{}, errDatabase
}

func TestErrorsOfTheDatabaseStayInTheLog(t *testing.T) {
	session := connect(t, serve(t, database{memory.New(), broken{}}), "2026-07-28", "ann")
	for tool, arguments := range map[string]map[string]any{
		"add_note":     {"text": "x"},
		"search_notes": {},
		"delete_note":  {"id": "aaaaaaaaaaaa"},
	} {
		result := call(t, session, tool, arguments)
		assert.True(t, result.IsError, tool)
		assert.Contains(t, texts(result), "try again later", tool)
	}
	_, err := session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "notes://aaaaaaaaaaaa"})
	require.Error(t, err)
	assert.NotContains(t, err.Error(), "arn:")
	_, err = session.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "summarize_notes"})
	require.Error(t, err)
	assert.NotContains(t, err.Error(), "arn:")
}
