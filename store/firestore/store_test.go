package firestore_test

import (
	"context"
	"crypto/rand"
	"os"
	"sync"
	"testing"

	"cloud.google.com/go/firestore"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/hydrant-mcp/hydrant/internal/emulator"
	"github.com/hydrant-mcp/hydrant/store"
	hydrant "github.com/hydrant-mcp/hydrant/store/firestore"
	"github.com/hydrant-mcp/hydrant/store/internal/drivertest"
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
	st := newStore(t, emulator.FirestoreForTest(t), newPrefix())
	storetest.Run(t, func(*testing.T) store.Store { return st })
}

func newPrefix() string { return "test" + rand.Text() }

// newClient connects to an address, without TLS and without looking at the environment.
func newClient(t testing.TB, address string, opts ...grpc.DialOption) *firestore.Client {
	t.Helper()
	client, err := withoutEnvironment(func() (*firestore.Client, error) {
		return firestore.NewClient(t.Context(), "project", options(address, opts)...)
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

// newStore opens a store, and a client for itself, at an address.
func newStore(t testing.TB, address, prefix string, opts ...grpc.DialOption) *hydrant.Store {
	t.Helper()
	st := hydrant.New(newClient(t, address, opts...), prefix, options(address, opts)...)
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	return st
}

func options(address string, opts []grpc.DialOption) []option.ClientOption {
	all := []option.ClientOption{option.WithEndpoint("passthrough:///" + address), option.WithoutAuthentication()}
	for _, opt := range append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithPerRPCCredentials(owner{}), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20))) {
		all = append(all, option.WithGRPCDialOption(opt))
	}
	return all
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

// callAll makes every call at once.
func callAll(ctx context.Context, st store.Store) map[string]error {
	errs := make(map[string]error)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for name, call := range drivertest.EveryCall(st, hydrant.Revision) {
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
