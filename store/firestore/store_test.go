package firestore_test

import (
	"context"
	"crypto/rand"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/firestore"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/hydrant-mcp/hydrant/internal/emulator"
	"github.com/hydrant-mcp/hydrant/store"
	hydrant "github.com/hydrant-mcp/hydrant/store/firestore"
	"github.com/hydrant-mcp/hydrant/store/storetest"
)

func TestMain(m *testing.M) {
	code := emulator.Main(m)
	if err := goleak.Find(); code == 0 && err != nil {
		_, _ = os.Stderr.WriteString(err.Error() + "\n")
		code = 1
	}
	os.Exit(code)
}

func TestContract(t *testing.T) {
	st := hydrant.New(newClient(t, emulator.FirestoreForTest(t)), newPrefix())
	storetest.Run(t, func(*testing.T) store.Store { return st })
}

func newPrefix() string { return "test" + rand.Text() }

// newClient connects to an address, without TLS and without looking at the environment.
func newClient(t testing.TB, address string, opts ...grpc.DialOption) *firestore.Client {
	t.Helper()
	opts = append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithPerRPCCredentials(owner{}), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	conn, err := grpc.NewClient("passthrough:///"+address, opts...)
	require.NoError(t, err)
	client, err := withoutEnvironment(func() (*firestore.Client, error) {
		return firestore.NewClient(t.Context(), "project", option.WithGRPCConn(conn))
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

var environment sync.Mutex

// withoutEnvironment hides the emulator's variable: where it is set, the client dials that address too, and never closes
// the connection.
func withoutEnvironment(open func() (*firestore.Client, error)) (*firestore.Client, error) {
	const variable = "FIRESTORE_EMULATOR_HOST"
	environment.Lock()
	defer environment.Unlock()
	if host, ok := os.LookupEnv(variable); ok {
		os.Unsetenv(variable)
		defer os.Setenv(variable, host)
	}
	return open()
}

// owner is the emulator's administrator.
type owner struct{}

func (owner) RequireTransportSecurity() bool { return false }
func (owner) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer owner"}, nil
}

// closedPort returns an address that nobody listens on.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

// callAll makes every call at once.
func callAll(ctx context.Context, st store.Store) map[string]error {
	errs := make(map[string]error)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for name, call := range everyCall(st) {
		wg.Go(func() {
			err := call(ctx)
			mu.Lock()
			defer mu.Unlock()
			errs[name] = err
		})
	}
	wg.Wait()
	return errs
}

// everyCall makes every call of a store, with arguments that are in order.
func everyCall(st store.Store) map[string]func(context.Context) error {
	s, known := storetest.NewSession(), storetest.NewSession()
	known.Revision = hydrant.Revision(known.Expires)
	x, knownX := storetest.NewExchange(), storetest.NewExchange()
	knownX.Revision = hydrant.Revision(knownX.Expires)
	inAnHour := time.Now().Add(time.Hour)
	return map[string]func(context.Context) error{
		"CreateSession":  func(ctx context.Context) error { return st.CreateSession(ctx, s) },
		"Session":        func(ctx context.Context) error { _, err := st.Session(ctx, s.Key); return err },
		"UpdateSession":  func(ctx context.Context) error { return st.UpdateSession(ctx, known) },
		"DeleteSession":  func(ctx context.Context) error { return st.DeleteSession(ctx, s.Key) },
		"CreateExchange": func(ctx context.Context) error { return st.CreateExchange(ctx, x) },
		"Exchange":       func(ctx context.Context) error { _, err := st.Exchange(ctx, x.Key); return err },
		"UpdateExchange": func(ctx context.Context) error { return st.UpdateExchange(ctx, knownX) },
		"AppendEvent": func(ctx context.Context) error {
			return st.AppendEvent(ctx, "x", store.Event{Seq: 1}, inAnHour)
		},
		"AppendEvent, large": func(ctx context.Context) error {
			return st.AppendEvent(ctx, "x", store.Event{Seq: 1, Data: make([]byte, 1<<20)}, inAnHour)
		},
		"Events":        func(ctx context.Context) error { _, err := st.Events(ctx, "x", 0, 0); return err },
		"PutAnswer":     func(ctx context.Context) error { return st.PutAnswer(ctx, "x", "q", nil, inAnHour) },
		"Answer":        func(ctx context.Context) error { _, err := st.Answer(ctx, "x", "q"); return err },
		"RaiseTopic":    func(ctx context.Context) error { return st.RaiseTopic(ctx, "t") },
		"TopicVersions": func(ctx context.Context) error { _, err := st.TopicVersions(ctx, []string{"t"}); return err },
	}
}
