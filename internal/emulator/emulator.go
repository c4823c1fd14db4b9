// Package emulator starts the databases that tests and local runs use in place of the cloud's: dynalite for DynamoDB and
// the Google Cloud CLI's emulator for Firestore. Neither needs Docker.
//
// An emulator listens on a free port of the loopback interface, keeps its data in memory, and ends with the process that
// started it, however that one ends.
package emulator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// ErrMissing says that an emulator, or what it needs to run, is not installed. The error's text says how to get it.
var ErrMissing = errors.New("emulator not installed")

// DynamoDB starts dynalite and returns its URL once it answers. ctx bounds the start; stop, which is never nil, ends the
// emulator. [ErrMissing] without node or dynalite.
func DynamoDB(ctx context.Context) (endpoint string, stop func(), err error) {
	node, err := exec.LookPath("node")
	if err != nil {
		return "", func() {}, fmt.Errorf("%w: dynalite needs node: install Node.js 20 or later", ErrMissing)
	}
	cli, err := findUpwards(filepath.Join("test", "node", "node_modules", "dynalite", "cli.js"))
	if err != nil {
		return "", func() {}, fmt.Errorf("%w: dynalite: run `npm ci` in test/node", ErrMissing)
	}
	host, port, err := freePort()
	if err != nil {
		return "", func() {}, err
	}
	endpoint = "http://" + net.JoinHostPort(host, port)
	keep := filepath.Join(filepath.Dir(cli), "..", "..", "keep.cjs")
	stop, err = start(ctx, func(ctx context.Context) error { return answers(ctx, endpoint) },
		node, "--require", keep, cli, "--host", host, "--port", port, "--createTableMs", "0", "--deleteTableMs", "0", "--updateTableMs", "0")
	return endpoint, stop, err
}

// Firestore starts the Firestore emulator and returns its address, "host:port" as FIRESTORE_EMULATOR_HOST has it, once it
// has answered a request. ctx bounds the start; stop, which is never nil, ends the emulator. The jar is the one that
// FIRESTORE_EMULATOR_JAR names, or else the Google Cloud CLI's. [ErrMissing] without it or without Java.
func Firestore(ctx context.Context) (address string, stop func(), err error) {
	java, err := exec.LookPath("java")
	if err != nil {
		return "", func() {}, fmt.Errorf("%w: the Firestore emulator needs Java 17 or later", ErrMissing)
	}
	jar, err := firestoreJar(ctx)
	if err != nil {
		return "", func() {}, err
	}
	host, port, err := freePort()
	if err != nil {
		return "", func() {}, err
	}
	address = net.JoinHostPort(host, port)
	// A read of a document, so that the first test does not wait for the emulator's classes to load.
	document := "http://" + address + "/v1/projects/warm-up/databases/(default)/documents/warm/up"
	stop, err = start(ctx, func(ctx context.Context) error { return answers(ctx, document) },
		java, "-Duser.language=en", "-cp", jar, firestoreMain, "start", "--host", host, "--port", port)
	return address, stop, err
}

const firestoreMain = "com.google.cloud.datastore.emulator.firestore.CloudFirestore"

func firestoreJar(ctx context.Context) (string, error) {
	if jar := os.Getenv("FIRESTORE_EMULATOR_JAR"); jar != "" {
		if _, err := os.Stat(jar); err != nil {
			return "", fmt.Errorf("%w: FIRESTORE_EMULATOR_JAR: %w", ErrMissing, err)
		}
		return jar, nil
	}
	missing := fmt.Errorf("%w: the Firestore emulator: install the Google Cloud CLI and "+
		"run `gcloud components install cloud-firestore-emulator`, "+
		"or let FIRESTORE_EMULATOR_JAR name its jar", ErrMissing)
	gcloud, err := exec.LookPath("gcloud")
	if err != nil {
		return "", missing
	}
	jarBelow := func(root string) (string, bool) {
		jar := filepath.Join(root, "platform", "cloud-firestore-emulator", "cloud-firestore-emulator.jar")
		_, err := os.Stat(jar)
		return jar, err == nil
	}
	if path, err := filepath.EvalSymlinks(gcloud); err == nil {
		if jar, ok := jarBelow(filepath.Dir(filepath.Dir(path))); ok {
			return jar, nil
		}
	}
	// gcloud may be a wrapper script; asking it takes a second or two.
	root, err := exec.CommandContext(ctx, gcloud, "info", "--format=value(installation.sdk_root)").Output()
	if err == nil {
		if jar, ok := jarBelow(strings.TrimSpace(string(root))); ok {
			return jar, nil
		}
	}
	return "", missing
}

// findUpwards looks for a file below the working directory or one of its parents: tests run in their package's
// directory, tools in the repository's root.
func findUpwards(name string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", os.ErrNotExist
		}
		dir = parent
	}
}

func freePort() (host, port string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", err
	}
	defer l.Close()
	addr := l.Addr().(*net.TCPAddr)
	return addr.IP.String(), strconv.Itoa(addr.Port), nil
}

// answers checks that a server answers, whatever it says.
func answers(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
