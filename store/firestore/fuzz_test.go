package firestore_test

import (
	"context"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gcfirestore "cloud.google.com/go/firestore"
	"cloud.google.com/go/firestore/apiv1/firestorepb"
	"github.com/stretchr/testify/require"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/hydrant-mcp/hydrant/store"
	hydrant "github.com/hydrant-mcp/hydrant/store/firestore"
	"github.com/hydrant-mcp/hydrant/store/internal/drivertest"
	"github.com/hydrant-mcp/hydrant/store/storetest"
)

// tape is a database that keeps the fields of the last document that was written, and gives them to whoever reads anything.
type tape struct {
	firestorepb.UnimplementedFirestoreServer
	mu     sync.Mutex
	fields map[string]*firestorepb.Value
}

func (d *tape) Commit(_ context.Context, in *firestorepb.CommitRequest) (*firestorepb.CommitResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := &firestorepb.CommitResponse{CommitTime: timestamppb.Now()}
	for _, w := range in.Writes {
		d.fields = w.GetUpdate().GetFields()
		out.WriteResults = append(out.WriteResults, &firestorepb.WriteResult{UpdateTime: timestamppb.Now()})
	}
	return out, nil
}

func (d *tape) document(name string) *firestorepb.Document {
	d.mu.Lock()
	defer d.mu.Unlock()
	return &firestorepb.Document{Name: name, Fields: d.fields, CreateTime: timestamppb.Now(), UpdateTime: timestamppb.Now()}
}

func (d *tape) BatchGetDocuments(
	in *firestorepb.BatchGetDocumentsRequest, out firestorepb.Firestore_BatchGetDocumentsServer,
) error {
	for _, name := range in.Documents {
		err := out.Send(&firestorepb.BatchGetDocumentsResponse{
			ReadTime: timestamppb.Now(), Result: &firestorepb.BatchGetDocumentsResponse_Found{Found: d.document(name)},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *tape) RunQuery(in *firestorepb.RunQueryRequest, out firestorepb.Firestore_RunQueryServer) error {
	name := in.Parent + "/any/thing"
	return out.Send(&firestorepb.RunQueryResponse{ReadTime: timestamppb.Now(), Document: d.document(name)})
}

// valueOf makes a value of each kind that the database has.
func valueOf(kind uint8, value []byte) *firestorepb.Value {
	switch kind % 8 {
	case 0:
		return &firestorepb.Value{ValueType: &firestorepb.Value_StringValue{StringValue: strings.ToValidUTF8(string(value), "?")}}
	case 1:
		n := int64(0)
		for _, c := range value {
			n = n<<8 | int64(c)
		}
		return &firestorepb.Value{ValueType: &firestorepb.Value_IntegerValue{IntegerValue: n}}
	case 2:
		return &firestorepb.Value{ValueType: &firestorepb.Value_BytesValue{BytesValue: value}}
	case 3:
		return &firestorepb.Value{ValueType: &firestorepb.Value_BooleanValue{BooleanValue: len(value) > 0}}
	case 4:
		return &firestorepb.Value{ValueType: &firestorepb.Value_NullValue{}}
	case 5:
		elements := []*firestorepb.Value{valueOf(uint8(len(value))%5, nil)}
		return &firestorepb.Value{ValueType: &firestorepb.Value_ArrayValue{ArrayValue: &firestorepb.ArrayValue{Values: elements}}}
	case 6:
		return &firestorepb.Value{ValueType: &firestorepb.Value_TimestampValue{TimestampValue: &timestamppb.Timestamp{Seconds: int64(len(value))}}}
	}
	return nil
}

// Whatever is in a document: reading gives a record, or says that it cannot be read or is not there, and never panics.
func FuzzRecord(f *testing.F) {
	d := &tape{}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(32 << 20))
	firestorepb.RegisterFirestoreServer(server, d)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(f, err)
	served := make(chan error)
	go func() { served <- server.Serve(l) }()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(f, err)
	client, err := withoutEnvironment(func() (*gcfirestore.Client, error) {
		return gcfirestore.NewClient(f.Context(), "project", option.WithGRPCConn(conn))
	})
	require.NoError(f, err)
	f.Cleanup(func() {
		_ = client.Close()
		_ = conn.Close()
		server.Stop()
		<-served
	})
	st := hydrant.New(client, "fuzz")
	inAnHour := time.Now().Add(time.Hour)
	write := []func(context.Context) error{
		func(ctx context.Context) error { return st.CreateSession(ctx, storetest.NewSession()) },
		func(ctx context.Context) error { return st.CreateExchange(ctx, storetest.NewExchange()) },
		func(ctx context.Context) error {
			return st.AppendEvent(ctx, "x", store.Event{Seq: 1, Data: []byte("event")}, inAnHour)
		},
		func(ctx context.Context) error { return st.PutAnswer(ctx, "x", "q", []byte("answer"), inAnHour) },
		func(ctx context.Context) error { return st.RaiseTopic(ctx, "t") },
	}
	for record := range write {
		for at := range uint8(14) {
			f.Add(uint8(record), at, uint8(1), []byte("7"), at+1, uint8(2), []byte("x"))
			f.Add(uint8(record), at, uint8(7), []byte(nil), at, uint8(7), []byte(nil))
			f.Add(uint8(record), at, uint8(5), []byte("xx"), at, uint8(6), []byte("9"))
		}
	}
	f.Fuzz(func(t *testing.T, record, at, kind uint8, value []byte, alsoAt, alsoKind uint8, alsoValue []byte) {
		ctx := t.Context()
		if write[int(record)%len(write)](ctx) != nil {
			return // a topic is raised by a write that this database does not know
		}
		d.mu.Lock()
		if d.fields == nil {
			d.fields = map[string]*firestorepb.Value{}
		}
		names := append(slices.Sorted(maps.Keys(d.fields)), "deleted", "upload", "parts", "n")
		for _, change := range []struct {
			at, kind uint8
			value    []byte
		}{{at, kind, value}, {alsoAt, alsoKind, alsoValue}} {
			name := names[int(change.at)%len(names)]
			if v := valueOf(change.kind, change.value); v != nil {
				d.fields[name] = v
			} else {
				delete(d.fields, name)
			}
		}
		d.mu.Unlock()
		drivertest.ReadAll(t, st)
	})
}
