package emulator

import (
	"context"
	"errors"
	"net"
	"net/url"
	"os"
	"sync"
	"testing"
)

// DynamoDBForTest returns the URL of a DynamoDB emulator: the one that AWS_ENDPOINT_URL_DYNAMODB names if that is on this
// machine, or else one that all tests of the binary share and that ends with it. Tests use tables of their own. Without
// an emulator the test is skipped, or fails where the environment says REQUIRE=all.
func DynamoDBForTest(t testing.TB) string {
	t.Helper()
	if endpoint := os.Getenv("AWS_ENDPOINT_URL_DYNAMODB"); endpoint != "" {
		if u, err := url.Parse(endpoint); err == nil && onLoopback(u.Host) {
			return endpoint
		}
	}
	return dynamoDB.forTest(t)
}

// FirestoreForTest returns the "host:port" of a Firestore emulator, as [DynamoDBForTest] does: that of
// FIRESTORE_EMULATOR_HOST, or one for all tests of the binary. Tests use prefixes of their own.
func FirestoreForTest(t testing.TB) string {
	t.Helper()
	if address := os.Getenv("FIRESTORE_EMULATOR_HOST"); address != "" && onLoopback(address) {
		return address
	}
	return firestore.forTest(t)
}

// Main runs a package's tests and then ends the emulators that they started, if any. It is for TestMain and returns the
// code to exit with. Without it the emulators end a moment after the test binary.
func Main(m *testing.M) int {
	defer dynamoDB.end()
	defer firestore.end()
	return m.Run()
}

var (
	dynamoDB  = shared{start: DynamoDB}
	firestore = shared{start: Firestore}
)

// A shared emulator is started by the first test that needs it.
type shared struct {
	start func(context.Context) (string, func(), error)
	once  sync.Once
	where string
	stop  func()
	err   error
}

func (s *shared) forTest(t testing.TB) string {
	t.Helper()
	// Not the test's context: the emulator outlives the test.
	s.once.Do(func() { s.where, s.stop, s.err = s.start(context.Background()) })
	switch {
	case s.err == nil:
		return s.where
	case errors.Is(s.err, ErrMissing) && os.Getenv("REQUIRE") != "all":
		t.Skip(s.err)
	default:
		t.Fatal(s.err)
	}
	return ""
}

func (s *shared) end() {
	if s.stop != nil {
		s.stop()
	}
}

func onLoopback(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = hostport
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
