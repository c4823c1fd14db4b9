package harness

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Store names a store as HYDRANT_STORE does.
type Store string

const (
	Memory    Store = "memory"
	DynamoDB  Store = "dynamodb"
	Firestore Store = "firestore"
)

// ParseStore checks a name that a user gave.
func ParseStore(name string) (Store, error) {
	switch s := Store(name); s {
	case Memory, DynamoDB, Firestore:
		return s, nil
	}
	return "", fmt.Errorf("unknown store %q: memory, dynamodb or firestore", name)
}

// Config says what to start. The zero value is three processes on DynamoDB.
type Config struct {
	// Instances is the number of processes; 0 means 3. In memory nothing is shared, so that store allows one.
	Instances int
	// Store is where the processes keep what they share; empty means DynamoDB.
	Store Store
	// Env is added to the environment of the processes, and may override what the harness sets.
	Env map[string]string
	// Endpoint is where the store's emulator listens: a URL for DynamoDB, host:port for Firestore. StartForTest starts one.
	Endpoint string
	// Dir takes the logs and the tally file. StartForTest uses a temporary folder.
	Dir string
	// Race runs servers that were built with the race detector. StartForTest sets it when the tests run under it.
	Race bool
}

// A Cluster is several processes of the server on one store, behind a proxy.
type Cluster struct {
	Processes []*Process
	Proxy     *Proxy
	// Tally is the file of the diagnostic tools (HYDRANT_TALLY), shared by the processes.
	Tally string
}

// Start starts a cluster and returns when all of its processes are healthy.
func Start(ctx context.Context, cfg Config) (*Cluster, error) {
	if cfg.Instances == 0 {
		cfg.Instances = 3
	}
	if cfg.Store == "" {
		cfg.Store = DynamoDB
	}
	if cfg.Store == Memory && cfg.Instances > 1 {
		return nil, errors.New("harness: processes cannot share the memory store: use one instance")
	}
	binary, err := Server(cfg.Race)
	if err != nil {
		return nil, err
	}
	c := &Cluster{Tally: filepath.Join(cfg.Dir, "tally")}
	// The diagnostic tools append; whoever reads may come first.
	if err := os.WriteFile(c.Tally, nil, 0o644); err != nil {
		return nil, err
	}
	env, err := Environment(cfg, c.Tally)
	if err != nil {
		return nil, err
	}
	var addrs []string
	for i := range cfg.Instances {
		log := filepath.Join(cfg.Dir, fmt.Sprintf("instance-%d.log", i+1))
		p, err := startProcess(ctx, binary, env, log)
		if err != nil {
			c.Stop()
			return nil, err
		}
		c.Processes = append(c.Processes, p)
		addrs = append(addrs, p.Addr())
	}
	if c.Proxy, err = StartProxy(addrs); err != nil {
		c.Stop()
		return nil, err
	}
	return c, nil
}

// Environment is this process's own without what configures the server, and then what this cluster needs. Each cluster has
// a table of its own, so that tests that share an emulator do not meet.
func Environment(cfg Config, tally string) ([]string, error) {
	key, name := make([]byte, 32), make([]byte, 6)
	if _, err := rand.Read(key); err != nil {
		return nil, err
	}
	if _, err := rand.Read(name); err != nil {
		return nil, err
	}
	set := map[string]string{
		"HYDRANT_STORE": string(cfg.Store),
		"HYDRANT_TABLE": "test-" + hex.EncodeToString(name),
		"HYDRANT_KEYS":  base64.StdEncoding.EncodeToString(key),
		"HYDRANT_TALLY": tally,
		// A race ends the process, so that it cannot be overlooked.
		"GORACE": "halt_on_error=1",
	}
	switch cfg.Store {
	case DynamoDB:
		set["AWS_ENDPOINT_URL_DYNAMODB"] = cfg.Endpoint
		set["AWS_REGION"] = "us-east-1"
		set["AWS_ACCESS_KEY_ID"] = "local"
		set["AWS_SECRET_ACCESS_KEY"] = "local"
		set["AWS_EC2_METADATA_DISABLED"] = "true"
	case Firestore:
		set["FIRESTORE_EMULATOR_HOST"] = cfg.Endpoint
		set["GOOGLE_CLOUD_PROJECT"] = "hydrant-test"
	}
	maps.Copy(set, cfg.Env)

	var env []string
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if _, ours := set[name]; ours || configures(name) {
			continue
		}
		env = append(env, entry)
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		env = append(env, name+"="+set[name])
	}
	return env, nil
}

// configures says whether a variable of the surroundings would change what the server does.
func configures(name string) bool {
	for _, prefix := range []string{"HYDRANT_", "AWS_", "FIRESTORE_", "GOOGLE_CLOUD_PROJECT"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return name == "PORT" || name == "HOST"
}

// URL is the MCP endpoint behind the proxy.
func (c *Cluster) URL() string { return c.Proxy.URL() }

// URLs are the endpoints of the processes, past the proxy.
func (c *Cluster) URLs() []string {
	var urls []string
	for _, p := range c.Processes {
		urls = append(urls, p.URL())
	}
	return urls
}

// Kill ends one process with SIGKILL; the proxy finds nobody there from then on.
func (c *Cluster) Kill(i int) {
	c.Processes[i].Kill()
	c.Proxy.Forget()
}

// Ran returns the lines of the tally file.
func (c *Cluster) Ran() ([]string, error) {
	text, err := os.ReadFile(c.Tally)
	if err != nil {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n"), nil
}

// Stop ends the proxy and all processes.
func (c *Cluster) Stop() {
	if c.Proxy != nil {
		c.Proxy.Close()
	}
	for _, p := range c.Processes {
		p.Kill()
	}
}

// logLimit is how much of each log a failing test shows.
const logLimit = 8 << 10

// StartForTest starts a cluster for a test, with the emulator of its store, and stops it when the test ends. A test that
// fails shows the end of the processes' logs; a race in a process, its death by itself, and a session id in its log fail the test.
func StartForTest(t testing.TB, cfg Config) *Cluster {
	t.Helper()
	if cfg.Store == "" {
		cfg.Store = DynamoDB
	}
	if cfg.Endpoint == "" {
		cfg.Endpoint = emulatorForTest(t, cfg.Store)
	}
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	cfg.Race = cfg.Race || raceEnabled
	c, err := Start(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Stop()
		if err := StoreReachable(cfg.Endpoint); err != nil {
			t.Error(err)
		}
		for i, p := range c.Processes {
			log := p.Log()
			for _, sign := range []string{"WARNING: DATA RACE", "fatal error: "} {
				if strings.Contains(log, sign) {
					t.Errorf("instance %d: %s", i+1, sign)
				}
			}
			for _, secret := range c.Proxy.Secrets() {
				if strings.Contains(log, secret) {
					t.Errorf("instance %d has logged a session id or a token", i+1)
				}
			}
			if t.Failed() {
				t.Logf("the end of the log of instance %d:\n%s", i+1, tail(p.log, logLimit))
			}
		}
	})
	return c
}
