// Command buildlambda builds the examples for AWS Lambda: `make lambda`.
//
//	go run ./internal/cmd/buildlambda [-out DIR] [EXAMPLE...]
//
// For each example that has a main for Lambda (or those that are named) it makes, under dist/lambda,
//
//	EXAMPLE/bootstrap         EXAMPLE.zip          arm64, which costs less for the same work
//	EXAMPLE-amd64/bootstrap   EXAMPLE-amd64.zip    x86_64
//
// for the runtime provided.al2023. The same source gives the same bytes, so that a deployment which changes nothing is seen
// to change nothing.
package main

import (
	"archive/zip"
	"context"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"time"

	"github.com/hydrant-mcp/hydrant/internal/harness"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "buildlambda:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	root, err := harness.Root()
	if err != nil {
		return err
	}
	out := flag.String("out", filepath.Join(root, "dist", "lambda"), "where to put them")
	flag.Parse()
	examples, err := find(root, flag.Args())
	if err != nil {
		return err
	}
	for _, example := range examples {
		for _, t := range targets {
			name := example + t.suffix
			b := build{
				root: root, arch: t.arch, source: "./examples/" + example + "/lambda",
				binary: filepath.Join(*out, name, "bootstrap"), archive: filepath.Join(*out, name+".zip"),
			}
			if err := b.run(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

var targets = []struct{ arch, suffix string }{{"arm64", ""}, {"amd64", "-amd64"}}

// find gives the examples with a main for Lambda, or checks those that were asked for.
func find(root string, asked []string) ([]string, error) {
	mains, err := filepath.Glob(filepath.Join(root, "examples", "*", "lambda", "main.go"))
	if err != nil {
		return nil, err
	}
	var all []string
	for _, m := range mains {
		all = append(all, filepath.Base(filepath.Dir(filepath.Dir(m))))
	}
	if len(asked) == 0 {
		return all, nil
	}
	for _, name := range asked {
		if !slices.Contains(all, name) {
			return nil, fmt.Errorf("%q is not one of %v", name, all)
		}
	}
	return asked, nil
}

// A build makes one binary and its archive.
type build struct {
	root, arch, source, binary, archive string
}

func (b build) run(ctx context.Context) error {
	// lambda.norpc leaves out what only the retired go1.x runtime needs.
	cmd := exec.CommandContext(ctx, "go", "build", "-tags", "lambda.norpc", "-trimpath", "-ldflags", "-s -w",
		"-o", b.binary, b.source)
	cmd.Dir = b.root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+b.arch)
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s for %s: %w\n%s", b.source, b.arch, err, text)
	}
	size, packed, err := pack(b.binary, b.archive)
	if err != nil {
		return err
	}
	shown, err := filepath.Rel(b.root, b.binary)
	if err != nil {
		shown = b.binary
	}
	fmt.Printf("%-44s %s  %5.1f MB, zipped %4.1f MB\n", shown, b.arch, mb(size), mb(packed))
	return nil
}

func mb(n int64) float64 { return float64(n) / 1e6 }

// packed is the time of everything in an archive: it says nothing about the content.
var packed = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)

// pack makes the archive that Lambda takes: the binary as "bootstrap", executable.
func pack(binary, archive string) (size, zipped int64, err error) {
	in, err := os.Open(binary)
	if err != nil {
		return 0, 0, err
	}
	defer in.Close()
	file, err := os.Create(archive)
	if err != nil {
		return 0, 0, err
	}
	defer file.Close()
	header := &zip.FileHeader{Name: "bootstrap", Method: zip.Deflate, Modified: packed}
	header.SetMode(fs.FileMode(0o755))
	w := zip.NewWriter(file)
	entry, err := w.CreateHeader(header)
	if err != nil {
		return 0, 0, err
	}
	if size, err = io.Copy(entry, in); err != nil {
		return 0, 0, err
	}
	if err := w.Close(); err != nil {
		return 0, 0, err
	}
	if zipped, err = file.Seek(0, io.SeekEnd); err != nil {
		return 0, 0, err
	}
	return size, zipped, file.Close()
}
