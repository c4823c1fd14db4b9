// Package dynamo keeps notes in the DynamoDB table that Hydrant keeps its sessions in: one table to create, to pay for,
// to back up and to give a role access to.
//
//	pk                sk        item
//	note#<owner>      <id>      a note
//
// Hydrant's own partition keys begin with one letter and "#", so the two never meet.
package dynamo

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/hydrant-mcp/hydrant/examples/notes"
)

// The attributes of a note. ttl is the one that the table's time to live looks at; only what is left of a deleted note
// has it.
const (
	attrPK      = "pk"
	attrSK      = "sk"
	attrText    = "text"
	attrCreated = "created" // milliseconds since the epoch
	attrTTL     = "ttl"     // seconds since the epoch
)

// Client is what a [Storage] needs of a *[dynamodb.Client]. The role needs no permission that Hydrant's own store does
// not need.
type Client interface {
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
	PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
	Query(context.Context, *dynamodb.QueryInput, ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error)
}

// Storage is a [notes.Storage] in a DynamoDB table.
type Storage struct {
	client Client
	table  string
}

var _ notes.Storage = (*Storage)(nil)

// New returns the storage in a table that has the keys of Hydrant's (see store/dynamo).
func New(client Client, table string) *Storage { return &Storage{client, table} }

type item = map[string]types.AttributeValue

// itemKey is where a note is. An owner is hashed: a key has a maximal length, an owner's name has none.
func itemKey(owner, id string) item {
	return item{attrPK: str(partition(owner)), attrSK: str(id)}
}

func partition(owner string) string {
	sum := sha256.Sum256([]byte(owner))
	return "note#" + base64.RawURLEncoding.EncodeToString(sum[:])
}

// Add implements [notes.Storage].
func (s *Storage) Add(ctx context.Context, owner string, n notes.Note) error {
	it := itemKey(owner, n.ID)
	it[attrText] = str(n.Text)
	it[attrCreated] = number(n.Created.UnixMilli())
	_, err := s.client.PutItem(ctx, &dynamodb.PutItemInput{
		TableName: &s.table,
		Item:      it,
		// The client repeats what failed. If a repeated write finds its own, it was done.
		ConditionExpression:      aws.String("attribute_not_exists(#pk) OR (#text = :text AND #created = :created)"),
		ExpressionAttributeNames: map[string]string{"#pk": attrPK, "#text": attrText, "#created": attrCreated},
		ExpressionAttributeValues: item{
			":text": it[attrText], ":created": it[attrCreated],
		},
	})
	if err != nil {
		return fmt.Errorf("adding a note: %w", err)
	}
	return nil
}

// Note implements [notes.Storage].
func (s *Storage) Note(ctx context.Context, owner, id string) (notes.Note, error) {
	out, err := s.client.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: &s.table, Key: itemKey(owner, id), ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		return notes.Note{}, fmt.Errorf("reading a note: %w", err)
	}
	return decode(out.Item)
}

// Notes implements [notes.Storage].
func (s *Storage) Notes(ctx context.Context, owner string) ([]notes.Note, error) {
	var all []notes.Note
	pages := dynamodb.NewQueryPaginator(s.client, &dynamodb.QueryInput{
		TableName:                 &s.table,
		KeyConditionExpression:    aws.String("#pk = :pk"),
		ExpressionAttributeNames:  map[string]string{"#pk": attrPK},
		ExpressionAttributeValues: item{":pk": str(partition(owner))},
		ConsistentRead:            aws.Bool(true),
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("listing the notes: %w", err)
		}
		for _, it := range page.Items {
			n, err := decode(it)
			if errors.Is(err, notes.ErrNotFound) {
				continue
			}
			if err != nil {
				return nil, err
			}
			all = append(all, n)
		}
	}
	return all, nil
}

// Delete implements [notes.Storage]. What was written goes at once; the key stays for as long as the table's time to live
// takes to find it, a few days. That is a write, so a server that may delete notes needs no permission to delete items.
func (s *Storage) Delete(ctx context.Context, owner, id string) error {
	it := itemKey(owner, id)
	it[attrTTL] = number(time.Now().Unix())
	_, err := s.client.PutItem(ctx, &dynamodb.PutItemInput{
		TableName:                &s.table,
		Item:                     it,
		ConditionExpression:      aws.String("attribute_exists(#text)"),
		ExpressionAttributeNames: map[string]string{"#text": attrText},
	})
	if _, missing := errors.AsType[*types.ConditionalCheckFailedException](err); missing {
		return notes.ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("deleting a note: %w", err)
	}
	return nil
}

// decode reads an item; what is missing, or left of a deleted note, is [notes.ErrNotFound].
func decode(it item) (notes.Note, error) {
	text, ok := it[attrText].(*types.AttributeValueMemberS)
	if !ok {
		return notes.Note{}, notes.ErrNotFound
	}
	id, _ := it[attrSK].(*types.AttributeValueMemberS)
	created, ok := it[attrCreated].(*types.AttributeValueMemberN)
	if id == nil || !ok {
		return notes.Note{}, errors.New("the record of a note cannot be read")
	}
	millis, err := strconv.ParseInt(created.Value, 10, 64)
	if err != nil {
		return notes.Note{}, fmt.Errorf("the record of a note cannot be read: %w", err)
	}
	return notes.Note{ID: id.Value, Text: text.Value, Created: time.UnixMilli(millis).UTC()}, nil
}

func str(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

func number(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}
