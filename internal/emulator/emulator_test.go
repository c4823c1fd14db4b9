package emulator

import (
	"context"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEmulatorAnswersUntilStopped(t *testing.T) {
	for name, start := range map[string]func(context.Context) (string, func(), error){
		"DynamoDB": DynamoDB, "Firestore": Firestore,
	} {
		t.Run(name, func(t *testing.T) {
			s := shared{start: start}
			where := s.forTest(t)
			defer s.end()
			if u, err := url.Parse(where); err == nil && u.Host != "" {
				where = u.Host
			}
			conn, err := net.Dial("tcp", where)
			require.NoError(t, err)
			require.NoError(t, conn.Close())
			s.end()
			assertGone(t, where)
		})
	}
}

func TestMissingEmulatorSaysHowToGetIt(t *testing.T) {
	ctx := t.Context()
	t.Chdir(t.TempDir())
	_, stop, err := DynamoDB(ctx)
	stop()
	require.ErrorIs(t, err, ErrMissing)

	t.Setenv("FIRESTORE_EMULATOR_JAR", "/nowhere/emulator.jar")
	_, stop, err = Firestore(ctx)
	stop()
	require.ErrorIs(t, err, ErrMissing)

	t.Setenv("FIRESTORE_EMULATOR_JAR", "")
	t.Setenv("PATH", "")
	_, _, err = DynamoDB(ctx)
	require.ErrorIs(t, err, ErrMissing)
	assert.ErrorContains(t, err, "Node.js")
	_, _, err = Firestore(ctx)
	require.ErrorIs(t, err, ErrMissing)
	assert.ErrorContains(t, err, "Java")
	_, err = firestoreJar(ctx)
	require.ErrorIs(t, err, ErrMissing)
	assert.ErrorContains(t, err, "gcloud components install")
}

func TestEmulatorThatEndsEarlySaysWhy(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("no shell")
	}
	never := func(context.Context) error { return assert.AnError }
	stop, err := start(t.Context(), never, "sh", "-c", "echo the reason >&2; exit 3")
	defer stop()
	require.ErrorContains(t, err, "the reason")

	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	stop, err = start(ctx, never, "sleep", "600")
	defer stop()
	require.ErrorContains(t, err, "does not answer")
}

// A test binary that panics or times out runs no cleanup.
func TestEmulatorEndsWithItsProcess(t *testing.T) {
	const child = "EMULATOR_TEST_CHILD"
	if os.Getenv(child) != "" {
		endpoint, _, err := DynamoDB(context.Background())
		if err != nil {
			os.Exit(3)
		}
		_, _ = os.Stdout.WriteString(endpoint + "\n")
		os.Exit(0)
	}
	s := shared{start: DynamoDB}
	s.forTest(t) // skips where it cannot be started
	s.end()
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), child+"=1")
	out, err := cmd.Output()
	require.NoError(t, err)
	u, err := url.Parse(strings.TrimSpace(string(out)))
	require.NoError(t, err)
	require.NotEmpty(t, u.Host)
	assertGone(t, u.Host)
}

func TestOnLoopback(t *testing.T) {
	for hostport, want := range map[string]bool{
		"127.0.0.1:8000": true, "localhost:1": true, "[::1]:8": true, "127.0.0.1": true,
		"dynamodb.eu-west-1.amazonaws.com": false, "10.0.0.1:80": false, "": false,
	} {
		assert.Equal(t, want, onLoopback(hostport), hostport)
	}
}

func assertGone(t *testing.T, address string) {
	t.Helper()
	assert.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	}, 10*time.Second, 20*time.Millisecond)
}
