package dynamo

import (
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/hydrant-mcp/hydrant/store"
)

// The attributes of every item.
const (
	attrPK      = "pk"
	attrSK      = "sk"
	attrVersion = "v"   // store.SchemaVersion
	attrTTL     = "ttl" // seconds since the epoch, rounded up; a reserved word: never bare in an expression

	attrMark = "mark" // of the call that wrote last, where a repeated write must know itself again
)

type item = map[string]types.AttributeValue

func newItem(pk, sk string) item {
	return item{attrPK: str(pk), attrSK: str(sk)}
}

func str(s string) types.AttributeValue   { return &types.AttributeValueMemberS{Value: s} }
func boolean(b bool) types.AttributeValue { return &types.AttributeValueMemberBOOL{Value: b} }

func binary(data []byte) types.AttributeValue {
	if data == nil {
		data = []byte{} // the client sends nil as no value at all
	}
	return &types.AttributeValueMemberB{Value: data}
}

func number(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}

func list(texts []string) types.AttributeValue {
	values := make([]types.AttributeValue, len(texts))
	for i, s := range texts {
		values[i] = str(s)
	}
	return &types.AttributeValueMemberL{Value: values}
}

// seconds is a time for a time to live: the record is not removed before it.
func seconds(t time.Time) int64 { return t.Add(time.Second - 1).Unix() }

// A reader decodes an item. It keeps the first error and goes on, so that callers check once, at the end.
type reader struct {
	item item
	err  error
}

// read begins to decode an item and checks that this code can know its form.
func read(it item) *reader {
	r := &reader{item: it}
	if v := r.number(attrVersion); v < 1 && r.err == nil {
		r.err = fmt.Errorf("attribute %q is out of range", attrVersion)
	}
	return r
}

func (r *reader) has(name string) bool {
	_, ok := r.item[name]
	return ok
}

func (r *reader) str(name string) string {
	v, _ := attribute[*types.AttributeValueMemberS](r, name)
	if v == nil {
		return ""
	}
	return v.Value
}

func (r *reader) boolean(name string) bool {
	v, _ := attribute[*types.AttributeValueMemberBOOL](r, name)
	return v != nil && v.Value
}

func (r *reader) binary(name string) []byte {
	v, _ := attribute[*types.AttributeValueMemberB](r, name)
	if v == nil {
		return nil
	}
	return v.Value
}

func (r *reader) number(name string) int64 {
	v, _ := attribute[*types.AttributeValueMemberN](r, name)
	if v == nil {
		return 0
	}
	n, err := strconv.ParseInt(v.Value, 10, 64)
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("attribute %q is not a whole number", name)
	}
	return n
}

func (r *reader) list(name string) []string {
	v, _ := attribute[*types.AttributeValueMemberL](r, name)
	if v == nil {
		return nil
	}
	var texts []string
	for _, element := range v.Value {
		s, ok := element.(*types.AttributeValueMemberS)
		if !ok {
			r.err = fmt.Errorf("attribute %q has an element of the wrong type", name)
			return nil
		}
		texts = append(texts, s.Value)
	}
	return texts
}

// time decodes milliseconds since the epoch.
func (r *reader) time(name string) time.Time { return time.UnixMilli(r.number(name)) }

// expired says that the item's time to live has passed. Items are read until the database removes them.
func (r *reader) expired() bool {
	return store.Expired(time.Unix(r.number(attrTTL), 0), time.Now())
}

func attribute[T types.AttributeValue](r *reader, name string) (T, bool) {
	value, ok := r.item[name].(T)
	if !ok && r.err == nil {
		if r.has(name) {
			r.err = fmt.Errorf("attribute %q has the wrong type", name)
		} else {
			r.err = fmt.Errorf("attribute %q is missing", name)
		}
	}
	return value, ok
}
