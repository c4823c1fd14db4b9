package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// A printer writes whole lines of several sources, each with the name of its source.
type printer struct {
	mu  sync.Mutex
	out io.Writer
}

func (p *printer) line(source, format string, args ...any) {
	text := fmt.Sprintf("%-5s | "+format, append([]any{source}, args...)...)
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = io.WriteString(p.out, strings.TrimRight(text, " \n")+"\n")
}

// followEvery is how often a log is looked into.
const followEvery = 50 * time.Millisecond

// follow prints what is written into a log file, until ctx ends.
func follow(ctx context.Context, path string, out *printer, source string) {
	file, err := os.Open(path)
	if err != nil {
		out.line("dev", "the log of %s: %v", source, err)
		return
	}
	defer file.Close()
	reader := bufio.NewReader(file)
	var partial string
	for {
		text, err := reader.ReadString('\n')
		partial += text
		switch {
		case err == nil:
			out.line(source, "%s", partial)
			partial = ""
		case !errors.Is(err, io.EOF):
			out.line("dev", "the log of %s: %v", source, err)
			return
		case !wait(ctx, followEvery):
			return
		}
	}
}
