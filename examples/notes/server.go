package notes

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	name    = "notes"
	version = "1.0.0"

	mimeType = "text/plain"
	// maxFound is how many notes a search returns.
	maxFound = 50
)

// NewServer returns the MCP server of some notes. All that it needs to know between two messages is in the storage, so it
// may run in any number of processes.
func NewServer(storage Storage) *mcp.Server {
	s := server{storage}
	m := mcp.NewServer(&mcp.Implementation{Name: name, Title: "Notes", Version: version}, &mcp.ServerOptions{
		Instructions: "Keeps short notes. Search before you add one, and ask before you delete one.",
		// Without these the SDK promises that changes of the lists will be announced. They never change, and a client that
		// waits for news holds an instance.
		Capabilities: &mcp.ServerCapabilities{
			Tools: &mcp.ToolCapabilities{}, Resources: &mcp.ResourceCapabilities{}, Prompts: &mcp.PromptCapabilities{},
		},
	})
	mcp.AddTool(m, &mcp.Tool{
		Name: "add_note", Title: "Add a note", Description: "Keeps a note, and returns its ID.",
		Annotations: &mcp.ToolAnnotations{DestructiveHint: new(false), OpenWorldHint: new(false)},
	}, s.add)
	mcp.AddTool(m, &mcp.Tool{
		Name: "search_notes", Title: "Search the notes",
		Description: fmt.Sprintf("Finds the notes that have all the words of a query, the newest first, at most %d. "+
			"Without a query it finds them all.", maxFound),
		Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: new(false)},
	}, s.search)
	mcp.AddTool(m, &mcp.Tool{
		Name: "delete_note", Title: "Delete a note", Description: "Deletes a note for good.",
		Annotations: &mcp.ToolAnnotations{DestructiveHint: new(true), IdempotentHint: true, OpenWorldHint: new(false)},
	}, s.delete)
	m.AddResourceTemplate(&mcp.ResourceTemplate{
		Name: "note", Title: "A note", Description: "One note, by its ID.", URITemplate: "notes://{id}", MIMEType: mimeType,
	}, s.read)
	m.AddPrompt(&mcp.Prompt{
		Name: "summarize_notes", Title: "Summarize the notes",
		Description: "Asks for a summary of the notes about something.",
		Arguments: []*mcp.PromptArgument{
			{Name: "about", Description: "words that the notes have; all notes without them"},
		},
	}, s.summarize)
	return m
}

type server struct{ storage Storage }

type addInput struct {
	Text string `json:"text" jsonschema:"what to write down"`
}

// add is a tool. An error that a tool returns becomes a result that the model reads, so its text speaks to the model.
func (s server) add(ctx context.Context, req *mcp.CallToolRequest, in addInput) (*mcp.CallToolResult, Note, error) {
	text := strings.TrimSpace(in.Text)
	switch {
	case text == "":
		return nil, Note{}, errors.New("the note is empty")
	case len(text) > MaxText:
		return nil, Note{}, fmt.Errorf("the note has %d bytes; at most %d are kept", len(text), MaxText)
	}
	// Milliseconds are what every storage keeps.
	n := Note{ID: newID(), Text: text, Created: time.Now().UTC().Truncate(time.Millisecond)}
	if err := s.storage.Add(ctx, owner(req.Extra), n); err != nil {
		return nil, Note{}, outage(ctx, err)
	}
	return &mcp.CallToolResult{Content: []mcp.Content{
		&mcp.TextContent{Text: "Kept as " + n.ID + "."}, link(n),
	}}, n, nil
}

type searchInput struct {
	Query string `json:"query,omitempty" jsonschema:"words that the notes have"`
}

type searchOutput struct {
	Notes []Note `json:"notes"`
	Total int    `json:"total" jsonschema:"how many notes have the words, also those that are not returned"`
}

func (s server) search(
	ctx context.Context, req *mcp.CallToolRequest, in searchInput,
) (*mcp.CallToolResult, searchOutput, error) {
	found, err := s.find(ctx, owner(req.Extra), in.Query)
	if err != nil {
		return nil, searchOutput{}, err
	}
	out := searchOutput{Notes: found[:min(len(found), maxFound)], Total: len(found)}
	content := []mcp.Content{&mcp.TextContent{Text: fmt.Sprintf("%d of %d notes.", len(out.Notes), out.Total)}}
	for _, n := range out.Notes {
		content = append(content, &mcp.TextContent{Text: n.ID + ": " + n.Text}, link(n))
	}
	return &mcp.CallToolResult{Content: content}, out, nil
}

type deleteInput struct {
	ID string `json:"id" jsonschema:"the ID of the note"`
}

func (s server) delete(ctx context.Context, req *mcp.CallToolRequest, in deleteInput) (*mcp.CallToolResult, any, error) {
	if !mintedHere(in.ID) {
		return nil, nil, ErrNotFound
	}
	err := s.storage.Delete(ctx, owner(req.Extra), in.ID)
	if errors.Is(err, ErrNotFound) {
		return nil, nil, err
	}
	if err != nil {
		return nil, nil, outage(ctx, err)
	}
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "Deleted."}}}, nil, nil
}

// read is a resource: a client may attach a note to a conversation without asking the model to call a tool.
func (s server) read(ctx context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	uri := req.Params.URI
	id := strings.TrimPrefix(uri, "notes://")
	if !mintedHere(id) {
		return nil, mcp.ResourceNotFoundError(uri)
	}
	n, err := s.storage.Note(ctx, owner(req.Extra), id)
	if errors.Is(err, ErrNotFound) {
		return nil, mcp.ResourceNotFoundError(uri)
	}
	if err != nil {
		return nil, outage(ctx, err)
	}
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: uri, MIMEType: mimeType, Text: n.Text}}}, nil
}

// summarize is a prompt: it puts what the person asks for, and the notes, before the model.
func (s server) summarize(ctx context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
	found, err := s.find(ctx, owner(req.Extra), req.Params.Arguments["about"])
	if err != nil {
		return nil, err
	}
	found = found[:min(len(found), maxFound)]
	messages := []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{
		Text: fmt.Sprintf("Summarize my %d notes in a few sentences. Say which of them contradict each other.", len(found)),
	}}}
	for _, n := range found {
		messages = append(messages, &mcp.PromptMessage{Role: "user", Content: &mcp.EmbeddedResource{
			Resource: &mcp.ResourceContents{URI: n.URI(), MIMEType: mimeType, Text: n.Text},
		}})
	}
	return &mcp.GetPromptResult{Description: "A summary of the notes", Messages: messages}, nil
}

// find returns the notes that have all the words, the newest first. It looks at all notes of the owner, which is good
// enough for thousands of them.
func (s server) find(ctx context.Context, owner, query string) ([]Note, error) {
	all, err := s.storage.Notes(ctx, owner)
	if err != nil {
		return nil, outage(ctx, err)
	}
	found := []Note{}
	words := strings.Fields(strings.ToLower(query))
	for _, n := range all {
		text := strings.ToLower(n.Text)
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) }) {
			found = append(found, n)
		}
	}
	slices.SortFunc(found, func(a, b Note) int {
		return cmp.Or(b.Created.Compare(a.Created), strings.Compare(a.ID, b.ID))
	})
	return found, nil
}

func link(n Note) mcp.Content {
	return &mcp.ResourceLink{URI: n.URI(), Name: n.ID, MIMEType: mimeType}
}

// owner is who is asking: the issuer and the subject of the access token, or nobody in particular where there is none.
func owner(extra *mcp.RequestExtra) string {
	if extra == nil || extra.TokenInfo == nil {
		return ""
	}
	issuer, _ := extra.TokenInfo.Extra["iss"].(string)
	return strconv.Quote(issuer) + " " + strconv.Quote(extra.TokenInfo.UserID)
}

// outage keeps what went wrong in the log: the text of a database's error names tables, roles and accounts, which are
// nothing for the model and its user.
func outage(ctx context.Context, err error) error {
	slog.ErrorContext(ctx, "the notes cannot be reached", "error", err)
	return errors.New("the notes cannot be reached right now: try again later")
}

const idLength = 12

// newID returns an ID of 60 random bits: nobody guesses it, and a model can repeat it without a mistake.
func newID() string { return strings.ToLower(rand.Text()[:idLength]) }

// mintedHere says whether an ID can be one of ours. What cannot need not be looked for, nor be harmless as a key of a
// database.
func mintedHere(id string) bool {
	return len(id) == idLength && strings.Trim(id, "abcdefghijklmnopqrstuvwxyz234567") == ""
}
