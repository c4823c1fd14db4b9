package handler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/hydrant-mcp/hydrant/engine"
	"github.com/hydrant-mcp/hydrant/internal/paniclog"
	"github.com/hydrant-mcp/hydrant/store"
)

// A failure is a line of the failure table (docs/failures.md): what the client gets, and how it is logged. Everything
// that goes wrong between the request and its answer ends as one; this file has all of them.
type failure struct {
	status  int
	code    int64
	message string
	data    any // of the JSON-RPC error
	header  http.Header
	level   slog.Level
	cause   error // for the log; never sent
	private bool  // the message is the server's own, about a call, and not for the log
	noID    bool  // the body carries no id even where it is known
}

// JSON-RPC codes that MCP adds to the standard ones.
const (
	codeSessionNotFound = -32001
)

func refuse(status int, code int64, level slog.Level, format string, args ...any) *failure {
	return &failure{status: status, code: code, level: level, message: fmt.Sprintf(format, args...)}
}

func (f *failure) because(err error) *failure { f.cause = err; return f }

func (f *failure) with(key, value string) *failure {
	if f.header == nil {
		f.header = http.Header{}
	}
	f.header.Set(key, value)
	return f
}

// At the door: nothing has been parsed yet.

func errMethod(allow ...string) *failure {
	return refuse(http.StatusMethodNotAllowed, jsonrpc.CodeInvalidRequest, slog.LevelDebug,
		"method not allowed here; allowed: %s", strings.Join(allow, ", ")).with("Allow", strings.Join(allow, ", "))
}

func errOrigin() *failure {
	return refuse(http.StatusForbidden, jsonrpc.CodeInvalidRequest, slog.LevelInfo,
		"requests from this Origin are not allowed").with("Vary", "Origin")
}

func errHost() *failure {
	return refuse(http.StatusForbidden, jsonrpc.CodeInvalidRequest, slog.LevelInfo,
		"requests to this host name are not allowed on a loopback address")
}

func errVerifier(err error) *failure {
	// What a verifier says may hold parts of the token: it is neither sent nor logged.
	if err == nil || !errors.Is(err, errVerifierPanic) {
		err = errors.New("handler: the function that identifies clients failed")
	}
	return retryable("who is asking could not be verified at the moment: try again").because(err)
}

// errBusy refuses one call, or one stream; the session lives.
func errBusy(format string, args ...any) *failure {
	return refuse(http.StatusTooManyRequests, jsonrpc.CodeInternalError, slog.LevelInfo, format, args...).tryAgain()
}

// errTopics: there may be room elsewhere, or in a while.
func errTopics() *failure {
	return errBusy("this process watches %d resources for its streams already", maxTopics)
}

func errMediaType(got string) *failure {
	return refuse(http.StatusUnsupportedMediaType, jsonrpc.CodeInvalidRequest, slog.LevelDebug,
		"Content-Type must be application/json in UTF-8, without Content-Encoding, not %q", got)
}

func errAccept() *failure {
	return refuse(http.StatusNotAcceptable, jsonrpc.CodeInvalidRequest, slog.LevelDebug,
		"Accept must allow application/json or text/event-stream")
}

func errAcceptStream() *failure {
	return refuse(http.StatusNotAcceptable, jsonrpc.CodeInvalidRequest, slog.LevelDebug,
		"Accept must allow text/event-stream")
}

func errBodyTimeout(wait time.Duration) *failure {
	return refuse(http.StatusRequestTimeout, jsonrpc.CodeParseError, slog.LevelInfo,
		"the body has not arrived in time: it has %v, and no longer than the runtime gives the request", wait)
}

func errTooLarge(limit int64) *failure {
	return refuse(http.StatusRequestEntityTooLarge, jsonrpc.CodeInvalidRequest, slog.LevelInfo,
		"the body is larger than %d bytes", limit)
}

func errHeaderTooLarge(limit int) *failure {
	return refuse(http.StatusRequestHeaderFieldsTooLarge, jsonrpc.CodeInvalidRequest, slog.LevelInfo,
		"the value of a header is longer than %d bytes", limit)
}

func errNoTenant() *failure {
	return refuse(http.StatusNotFound, jsonrpc.CodeInvalidRequest, slog.LevelInfo, "no MCP server here")
}

func errTenant(err error) *failure {
	return retryable("which server this is could not be found out at the moment: try again").because(err)
}

// retryable is an outage: of the store, or of something else that we depend on.
func retryable(message string) *failure {
	return refuse(http.StatusServiceUnavailable, jsonrpc.CodeInternalError, slog.LevelError, "%s", message).tryAgain()
}

// tryAgain tells the client that the same request may succeed later.
func (f *failure) tryAgain() *failure {
	f.data = map[string]any{"retryable": true}
	return f.with("Retry-After", fmt.Sprint(retryAfter))
}

// Messages.

func errParse(err error) *failure {
	return refuse(http.StatusBadRequest, jsonrpc.CodeParseError, slog.LevelDebug, "the body is no JSON message: %v", err)
}

func errInvalid(format string, args ...any) *failure {
	return refuse(http.StatusBadRequest, jsonrpc.CodeInvalidRequest, slog.LevelDebug, format, args...)
}

func errParams(format string, args ...any) *failure {
	return refuse(http.StatusBadRequest, jsonrpc.CodeInvalidParams, slog.LevelDebug, format, args...)
}

// errParams is like the function of that name, with the status that the message's era has for it.
func (x *exchange) errParams(format string, args ...any) *failure {
	f := errParams(format, args...)
	f.status = x.era.status(f.code)
	return f
}

func errBatch() *failure {
	return errInvalid("batches exist at protocol version %s only: send one message per request", version20250326)
}

// errSubscriptions refuses the subscriptions of a legacy session, or of one subscriptions/listen.
func errSubscriptions(status, most int) *failure {
	return refuse(status, jsonrpc.CodeInvalidParams, levelLimit,
		"too many subscriptions, or too long ones: at most %d, of %d bytes each and %d together", most, maxURI, maxURIs)
}

// errNoListen: the SDK would serve it in any era, for as long as the call may last.
func errNoListen() *failure {
	return refuse(http.StatusOK, jsonrpc.CodeMethodNotFound, slog.LevelDebug,
		"subscriptions/listen exists from protocol version %s on; before it there is the GET stream", version20260728)
}

// Versions and eras.

func errVersion(requested string, supported []string) *failure {
	f := refuse(http.StatusBadRequest, mcp.CodeUnsupportedProtocolVersion, slog.LevelDebug,
		"unsupported protocol version %q; supported: %s", clip(requested), strings.Join(supported, ", "))
	f.data = map[string]any{"supported": supported, "requested": clip(requested)}
	return f
}

func errSessionVersion(header string) *failure {
	return errInvalid("the MCP-Protocol-Version header says %q, which is not a version that a session can have: "+
		"send the version that initialize negotiated", clip(header))
}

func errMismatch(format string, args ...any) *failure {
	return refuse(http.StatusBadRequest, mcp.CodeHeaderMismatch, slog.LevelInfo, format, args...)
}

func errCapability(required map[string]any) *failure {
	f := refuse(http.StatusBadRequest, mcp.CodeMissingRequiredClientCapabilities, slog.LevelDebug,
		"the server needs a capability that the client has not declared")
	f.data = map[string]any{"requiredCapabilities": required}
	return f
}

// errState refuses a retry. The handler has not run.
func errState(why string) *failure {
	return refuse(http.StatusBadRequest, jsonrpc.CodeInvalidParams, slog.LevelInfo,
		"params.requestState cannot be used: %s. Start the call anew, without requestState and inputResponses.", why)
}

// Sessions and the store.

func errNoSession() *failure {
	return errInvalid("the Mcp-Session-Id header is missing: send the one that the answer to initialize carried")
}

// errSessionMissing is one and the same for a session that is missing, expired, deleted or somebody else's. It carries no
// id: with one, go-sdk clients take it for an ordinary error of the call and keep the dead session.
func errSessionMissing() *failure {
	f := refuse(http.StatusNotFound, codeSessionNotFound, slog.LevelInfo,
		"Session not found: it has ended. Send a new initialize request without the Mcp-Session-Id header.")
	f.noID = true
	return f
}

const retryAfter = 1 // seconds

// errStore says what an error of the store means to the client. Outage is not absence: only a store that has answered can
// make a session missing.
func errStore(err error) *failure {
	switch {
	case errors.Is(err, store.ErrCorrupt), errors.Is(err, engine.ErrState):
		return refuse(http.StatusInternalServerError, jsonrpc.CodeInternalError, slog.LevelError,
			"the session's record cannot be read").because(err)
	case errors.Is(err, store.ErrTooLarge):
		return refuse(http.StatusOK, jsonrpc.CodeInternalError, slog.LevelError,
			"this is too large to be stored").because(err)
	case errors.Is(err, store.ErrNotFound):
		return errSessionMissing().because(err)
	case errors.Is(err, context.Canceled):
		return errGone(err)
	default:
		return retryable("the session store cannot be reached at the moment; the session is not lost: try again").because(err)
	}
}

// Running.

// errGone is for the log: there is nobody left to be answered.
func errGone(err error) *failure {
	return refuse(http.StatusServiceUnavailable, jsonrpc.CodeInternalError, slog.LevelDebug,
		"the client closed the connection").because(err)
}

func errPanic(p any, stack []byte) *failure {
	return refuse(http.StatusInternalServerError, jsonrpc.CodeInternalError, slog.LevelError, "the server failed").
		because(fmt.Errorf("panic: %s\n%s", paniclog.Value(p), stack))
}

func errDeadline(err error) *failure {
	return refuse(http.StatusOK, jsonrpc.CodeInternalError, slog.LevelError, "the call took too long: %v", err)
}

func errResponseSize(size, limit int64) *failure {
	return refuse(http.StatusOK, jsonrpc.CodeInternalError, slog.LevelError,
		"the response has %d bytes; this runtime can return %d", size, limit)
}

// A limit is what ended a call; as the cause of its context it is what the client is told.
type limit struct {
	what string
	at   time.Duration
}

func (l limit) Error() string { return fmt.Sprintf("%s of %v", l.what, l.at.Round(time.Millisecond)) }

var errClientGone = errors.New("the client closed the connection")

// errCall says what an error of the engine means to the client. status is how the era shows a JSON-RPC code.
func errCall(err error, status func(code int64) int) *failure {
	if wire, ok := errors.AsType[*jsonrpc.Error](err); ok {
		f := refuse(status(wire.Code), wire.Code, slog.LevelDebug, "%s", wire.Message)
		if len(wire.Data) > 0 {
			f.data = wire.Data
		}
		f.private = true
		return f
	}
	if l, ok := errors.AsType[limit](err); ok {
		return errDeadline(l).because(err)
	}
	switch {
	case errors.Is(err, errClientGone), errors.Is(err, context.Canceled):
		return errGone(err)
	case errors.Is(err, errShutdown):
		return refuse(http.StatusServiceUnavailable, jsonrpc.CodeInternalError, slog.LevelWarn,
			"the process that ran the call is shutting down; the call may have run, fully or in part").because(err)
	case errors.Is(err, engine.ErrState):
		return errStore(err)
	}
	return refuse(http.StatusInternalServerError, jsonrpc.CodeInternalError, slog.LevelError,
		"the server failed").because(err)
}

// clip bounds what a client sent before it is repeated to it.
func clip(s string) string {
	const most = 64
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
