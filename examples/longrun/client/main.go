// Command client calls a tool that takes its time on one instance, loses its connection in the middle, and fetches the
// rest of the answer from another one.
//
//	go run ./examples/longrun/client [-cancel] [http://127.0.0.1:8081/mcp http://127.0.0.1:8082/mcp]
//
// It is written with net/http alone, to show what goes over the wire in protocol 2025-11-25; the SDKs' clients do the
// same by themselves. With -cancel it keeps the connection, and cancels the call through the other instance.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "client:", err)
		os.Exit(1)
	}
}

const (
	steps = 10
	// enough is how many events the client takes before it loses its connection, or its patience.
	enough = 3
)

func run(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("client", flag.ContinueOnError)
	cancels := flags.Bool("cancel", false, "cancel the call")
	if err := flags.Parse(args); err != nil {
		return err
	}
	one, two := "http://127.0.0.1:8081/mcp", "http://127.0.0.1:8082/mcp"
	if flags.NArg() == 2 {
		one, two = flags.Arg(0), flags.Arg(1)
	} else if flags.NArg() != 0 {
		return errors.New("give the URLs of two instances, or none")
	}
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(stdout, format+"\n", args...) }

	c := &client{}
	if err := c.connect(ctx, one); err != nil {
		return err
	}
	say("%s: a session", one)
	connection, drop := context.WithCancel(ctx)
	defer drop()
	stream, err := c.post(connection, one, fmt.Sprintf(`{"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
		"name": "work", "arguments": {"steps": %d}, "_meta": {"progressToken": "p"}}}`, steps))
	if err != nil {
		return err
	}
	defer stream.Close()
	say("%s: a call of %d steps", one, steps)
	last := "" // the id of the last event: the place to come back to
	for range enough {
		e, err := stream.next()
		if err != nil {
			return fmt.Errorf("the call: %w", err)
		}
		last = e.id
		say("%s: %s", one, e.text())
	}
	if *cancels {
		return cancel(ctx, c, stream, one, two, say)
	}
	drop()
	say("the connection is lost; the call goes on")
	for {
		stream, err := c.resume(ctx, two, last)
		if err != nil {
			return err
		}
		last, err = rest(stream, two, last, say)
		if last == "" || err != nil {
			return err
		}
		// The stream has ended before the answer, as one does before a limit of the platform: there is more to come.
		say("%s: the stream ended; again in %v", two, c.retry)
		if err := c.pause(ctx); err != nil {
			return err
		}
	}
}

// rest reads a stream to its end. last is the place to come back to, or "" when the response has come.
func rest(stream *stream, url, last string, say func(string, ...any)) (string, error) {
	defer stream.Close()
	for {
		e, err := stream.next()
		if errors.Is(err, io.EOF) {
			return last, nil
		}
		if err != nil {
			return "", err
		}
		if e.id != "" {
			last = e.id
		}
		say("%s: %s", url, e.text())
		if e.isResponse() {
			return "", nil
		}
	}
}

// cancel cancels the call through another instance than the one that runs it. An error follows, and no
// result.
func cancel(ctx context.Context, c *client, stream *stream, one, two string, say func(string, ...any)) error {
	ended, err := c.post(ctx, two, `{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {
		"requestId": 2, "reason": "it takes too long"}}`)
	if err != nil {
		return err
	}
	if err := ended.Close(); err != nil {
		return err
	}
	say("%s: the call is cancelled", two)
	for {
		e, err := stream.next()
		if err != nil {
			return fmt.Errorf("the end of the cancelled call: %w", err)
		}
		text := e.text()
		say("%s: %s", one, text)
		if !e.isResponse() {
			continue
		}
		if !strings.HasPrefix(text, failed) {
			return errors.New("the call was not cancelled")
		}
		say("%s: the call ended, without a result", one)
		return nil
	}
}

const failed = "error: "

// text is an event as a person reads it.
func (e event) text() string {
	var m struct {
		Method string
		Params struct{ Message string }
		Result struct{ Content []struct{ Text string } }
		Error  *struct{ Message string }
	}
	switch err := json.Unmarshal([]byte(e.data), &m); {
	case e.data == "":
		return "an id to come back to"
	case err != nil:
		return e.data
	case m.Error != nil:
		return failed + m.Error.Message
	case len(m.Result.Content) > 0:
		return "result: " + m.Result.Content[0].Text
	case m.Params.Message != "":
		return m.Params.Message
	}
	return m.Method
}

func (e event) isResponse() bool {
	var m struct{ Result, Error json.RawMessage }
	return json.Unmarshal([]byte(e.data), &m) == nil && (m.Result != nil || m.Error != nil)
}
