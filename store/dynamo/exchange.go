package dynamo

import (
	"context"
	"encoding/json"
	"time"

	"github.com/hydrant-mcp/hydrant/store"
)

// The attributes of an exchange.
const (
	attrSession = "session"
	attrState   = "state"
	attrRound   = "round"
	attrOwner   = "owner"
	attrLease   = "lease" // milliseconds since the epoch
)

func exchangeItem(key string) item { return newItem(exchangeKey(key), "x") }

// CreateExchange implements [store.Exchanges]. It is one conditional write.
func (st *Store) CreateExchange(ctx context.Context, x *store.Exchange) error {
	const op = "dynamo: create exchange"
	if len(x.Data) > store.MaxExchangeData {
		return store.Wrap(op, store.ErrTooLarge, nil)
	}
	it := exchangeItem(x.Key)
	it[attrSession] = str(x.Session)
	it[attrState] = str(x.State)
	it[attrRound] = number(int64(x.Round))
	it[attrOwner] = str(x.Owner)
	it[attrLease] = number(x.Lease.UnixMilli())
	it[attrData] = binary(x.Data)
	first, err := st.createRecord(ctx, op, it, x.Expires)
	if err != nil {
		return err
	}
	x.Revision = first
	return nil
}

// Exchange implements [store.Exchanges]. It is one strongly consistent read.
func (st *Store) Exchange(ctx context.Context, key string) (*store.Exchange, error) {
	const op = "dynamo: get exchange"
	r, err := st.get(ctx, op, exchangeItem(key))
	if err != nil {
		return nil, err
	}
	x := &store.Exchange{
		Key:      key,
		Session:  r.str(attrSession),
		State:    r.str(attrState),
		Round:    int(r.number(attrRound)),
		Owner:    r.str(attrOwner),
		Lease:    r.time(attrLease),
		Data:     json.RawMessage(r.binary(attrData)),
		Expires:  r.time(attrExpires),
		Revision: r.revision(),
	}
	if r.err != nil {
		return nil, corrupt(op, r.err)
	}
	if store.Expired(x.Expires, time.Now()) {
		return nil, store.Wrap(op, store.ErrNotFound, nil)
	}
	return x, nil
}

// UpdateExchange implements [store.Exchanges]. It is one conditional write.
func (st *Store) UpdateExchange(ctx context.Context, x *store.Exchange) error {
	fresh, err := st.updateRecord(ctx, "dynamo: update exchange", exchangeItem(x.Key), x.Revision, x.Expires, item{
		attrState: str(x.State),
		attrRound: number(int64(x.Round)),
		attrOwner: str(x.Owner),
		attrLease: number(x.Lease.UnixMilli()),
	})
	if err != nil {
		return err
	}
	x.Revision = fresh
	return nil
}
