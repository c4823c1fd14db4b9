package handler

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// LegacyMode is how clients of the legacy era are served.
type LegacyMode int

const (
	// LegacySessions gives each legacy client a durable session. The default.
	LegacySessions LegacyMode = iota
	// LegacyStateless gives them none: no store is needed, and what a session carries is lost from message to message
	// (client info and capabilities, log level, subscriptions, and with them questions to the client). GET and DELETE
	// are answered 405.
	LegacyStateless
)

// Options of [New]. The zero value, and nil, are sound defaults.
type Options struct {
	// Logger takes what the handler has to say; docs/failures.md lists the levels. Default: slog.Default().
	Logger *slog.Logger
	// TracerProvider and MeterProvider take OpenTelemetry's spans and metrics: a server span and a duration for each
	// message, named as the semantic conventions for MCP say, with the operations of the store below it; docs/telemetry.md
	// lists them. Default: otel.GetTracerProvider() and otel.GetMeterProvider(), which do nothing until the process
	// installs an SDK of OpenTelemetry.
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider

	// Name is the server's name in the store: it is part of every session's key, so that several servers can share a
	// table without seeing each other's sessions. All instances of one server need the same. Default: "default".
	Name string
	// Tenant picks the name and the server of each HTTP request, for several tenants behind one handler. It takes the
	// place of Name and of New's server, which may be nil then. A nil server is answered 404, an error 503: a client takes
	// 404 for the end of its session.
	Tenant func(*http.Request) (name string, server *mcp.Server, err error)

	// Versions are the protocol versions that are served. Default: all of [SupportedVersions].
	Versions []string
	// Legacy is how clients of the legacy era are served.
	Legacy LegacyMode

	// SessionTTL is how long a session may be idle. Default: 24 hours. At least a second.
	SessionTTL time.Duration
	// SessionLifetime is how long a session may live, however busy it is. Default: no limit.
	SessionLifetime time.Duration

	// CallTimeout bounds one call of the server. The runtime's own deadline bounds it too (see [Runtime]). Default: 15
	// minutes.
	CallTimeout time.Duration
	// StreamAfter is how long a call of a 2025-11-25 client may be silent before its answer becomes a stream, so that the
	// client holds an event id and can fetch the response if its connection breaks. It costs two writes to the store for
	// such a call, and one every 10 seconds. Default: 1 second. Negative: never.
	StreamAfter time.Duration
	// AliveAfter is how long any call may be silent before its answer becomes a stream, so that comments can keep the
	// connection open. Default: 20 seconds. Negative: never.
	AliveAfter time.Duration

	// Ask is how questions that handlers return (InputRequests) are put to clients of 2025-11-25; AskFor, if not nil, decides
	// by method and by tool, prompt or resource.
	Ask    AskMode
	AskFor func(method, name string) AskMode
	// AskTimeout is how long a suspended call waits for its answers. Default: 10 minutes.
	AskTimeout time.Duration
	// HoldPolls makes a GET that asks for a suspended call wait up to 20 seconds where the runtime does not stream: answers
	// go on sooner, and compute is paid for waiting. Default: off, the client is told when to come back.
	HoldPolls bool

	// StateTimeout is how long a 2026-07-28 client has for the answers that a handler asks for. Default: 1 hour.
	StateTimeout time.Duration
	// SingleUseState makes each requestState good for one retry. It costs a write to the store for each.
	SingleUseState bool
	// AnswersWithoutState passes a client's inputResponses to the handler also when no requestState comes with them. A client
	// can then answer what nobody has asked, so it is only for handlers that do not mind. Default: refused.
	AnswersWithoutState bool

	// LateNotifications delivers the progress and the log messages of a call, where the runtime does not stream and the client
	// takes an event stream, together with the response, in one finite stream. Default: off, they are dropped.
	LateNotifications bool

	// Keys protect what passes through clients: they seal the requestState of handlers, and sign event ids and the ids of
	// questions. The first is used, all are good; 32 bytes each. All instances need the same. To rotate, add a new key at the
	// end everywhere, then move it to the front, then drop the old one.
	//
	// Default: one key that the instances make and share through the store, and read once per process. Whoever can read the
	// store can then forge what clients carry. Without a store it is a random key: what one process has sealed no other
	// opens.
	Keys [][]byte

	// MaxBody is the size of the largest body that a client may send, in bytes. Default: 4 MiB.
	MaxBody int64
	// MaxDepth is how deep a message's objects and arrays may be nested. Default: 512; at most 990, the limit of the
	// SDK's decoder being 1000.
	MaxDepth int
	// MaxID is the longest id of a request and the longest progress token that a client may choose, in bytes. Default: 256.
	MaxID int
	// MaxHeader is the longest value of a header, in bytes; a longer one is 431. Default: 16 KiB. What all headers may take
	// together is for the HTTP server ([http.Server.MaxHeaderBytes]) or the platform.
	MaxHeader int
	// MaxBatch is the largest number of messages in a batch (2025-03-26 only). Default: 100.
	MaxBatch int
	// MaxCalls is how many calls of one session one process runs at a time; further ones are 429. Default: 100.
	MaxCalls int
	// MaxStreams is how many streams one process holds open for clients that wait for something: standalone ones, listening
	// ones, resumed ones. Further ones are 429. Default: 10,000.
	MaxStreams int
	// MaxSessionStreams is how many of them may be one session's, in one process. Default: 100.
	MaxSessionStreams int
	// MaxStored is how much of one call's stream is kept for resumption, in bytes, beside its response. Notifications beyond
	// it go out and cannot be fetched again. Default: 16 MiB.
	MaxStored int64
	// MaxSessionEvents and MaxSessionStored (bytes) are how much one process may store of the streams of a session in 15
	// minutes, which is how long they can be resumed. Beyond it, notifications go out and cannot be fetched again, and new
	// calls are 429. Default: 100,000, and 256 MiB.
	MaxSessionEvents int
	MaxSessionStored int64
	// MaxSubscriptions is the largest number of resources that a session may subscribe to. Default: 500.
	MaxSubscriptions int

	// AllowedOrigins are the values of the Origin header that browsers may come with, each a scheme and host
	// ("https://app.example"). A request with any other Origin is refused with 403; one without passes, and so does a page
	// that the same loopback address has served. Default: none.
	AllowedOrigins []string

	// AllowedHosts makes the handler refuse, on connections to a loopback address, every host name but the loopback names
	// and these. What it guards against (a page that has its own name resolve to 127.0.0.1) is caught by its Origin as well,
	// so this is for those who want both; behind a proxy on the same machine list the public name. Default: not checked.
	AllowedHosts []string

	// Verifier checks the bearer token that every request must then carry, and says who is asking: TokenInfo.UserID is
	// the subject, TokenInfo.Extra["iss"] the issuer. Without it the handler takes the token info that middleware of the
	// SDK's auth package, or of yours, has put into the request's context; where there is none, nobody owns the session.
	Verifier auth.TokenVerifier
	// AllowAnonymous, with Verifier, serves requests without a token too; nobody owns their sessions. A token that is bad is
	// refused all the same.
	AllowAnonymous bool
	// Identify, without Verifier, says who is asking by what the platform has verified; nil for nobody. An error that is
	// auth.ErrInvalidToken is 401, any other 503. Never trust a header that a stranger can send.
	Identify func(*http.Request) (*auth.TokenInfo, error)
	// Scopes are what a token must have, with Verifier or Identify.
	Scopes []string
	// ToolScopes gives the scopes that calling a tool needs, nil for none. A call without them is 403, and so is the
	// resumption of its stream.
	ToolScopes func(tool string) []string
	// ResourceMetadataURL is named in the WWW-Authenticate header of refusals (RFC 9728); ResourceMetadata, if not nil, gives
	// it by request.
	ResourceMetadataURL string
	ResourceMetadata    func(*http.Request) string
}

// The protocol versions.
const (
	version20260728 = "2026-07-28"
	version20251125 = "2025-11-25"
	version20250618 = "2025-06-18"
	version20250326 = "2025-03-26"
)

var (
	modernVersions = []string{version20260728}
	legacyVersions = []string{version20251125, version20250618, version20250326}
)

// SupportedVersions gives the protocol versions that a handler can serve, the newest first.
func SupportedVersions() []string { return slices.Concat(modernVersions, legacyVersions) }

const (
	defaultName             = "default"
	defaultSessionTTL       = 24 * time.Hour
	defaultCallTimeout      = 15 * time.Minute
	defaultStreamAfter      = time.Second
	defaultAliveAfter       = 20 * time.Second
	defaultAskTimeout       = 10 * time.Minute
	defaultStateTimeout     = time.Hour
	defaultMaxBody          = 4 << 20
	defaultMaxDepth         = 512
	maxMaxDepth             = 990
	defaultMaxID            = 256
	defaultMaxHeader        = 16 << 10
	defaultMaxBatch         = 100
	defaultMaxCalls         = 100
	defaultMaxStreams       = 10_000
	defaultMaxSession       = 100
	defaultMaxStored        = 16 << 20
	defaultSessionEvents    = 100_000
	defaultSessionStored    = 256 << 20
	defaultMaxSubscriptions = 500
)

// settle fills in the defaults and refuses what cannot be meant.
func (o Options) settle() (Options, error) {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	o.Name = cmp.Or(o.Name, defaultName)
	o.SessionTTL = cmp.Or(o.SessionTTL, defaultSessionTTL)
	o.CallTimeout = cmp.Or(o.CallTimeout, defaultCallTimeout)
	o.StreamAfter = max(cmp.Or(o.StreamAfter, defaultStreamAfter), 0)
	o.AliveAfter = max(cmp.Or(o.AliveAfter, defaultAliveAfter), 0)
	o.StateTimeout = cmp.Or(o.StateTimeout, defaultStateTimeout)
	o.AskTimeout = cmp.Or(o.AskTimeout, defaultAskTimeout)
	o.MaxBody = cmp.Or(o.MaxBody, defaultMaxBody)
	o.MaxDepth = cmp.Or(o.MaxDepth, defaultMaxDepth)
	o.MaxID = cmp.Or(o.MaxID, defaultMaxID)
	o.MaxHeader = cmp.Or(o.MaxHeader, defaultMaxHeader)
	o.MaxBatch = cmp.Or(o.MaxBatch, defaultMaxBatch)
	o.MaxCalls = cmp.Or(o.MaxCalls, defaultMaxCalls)
	o.MaxStreams = cmp.Or(o.MaxStreams, defaultMaxStreams)
	o.MaxSessionStreams = cmp.Or(o.MaxSessionStreams, defaultMaxSession)
	o.MaxStored = cmp.Or(o.MaxStored, defaultMaxStored)
	o.MaxSessionEvents = cmp.Or(o.MaxSessionEvents, defaultSessionEvents)
	o.MaxSessionStored = cmp.Or(o.MaxSessionStored, defaultSessionStored)
	o.MaxSubscriptions = cmp.Or(o.MaxSubscriptions, defaultMaxSubscriptions)
	if len(o.Versions) == 0 {
		o.Versions = SupportedVersions()
	}
	for _, v := range o.Versions {
		if !slices.Contains(SupportedVersions(), v) {
			return o, fmt.Errorf("handler: Options.Versions: %q is not one of %v", v, SupportedVersions())
		}
	}
	// Newest first, whatever order the user wrote.
	o.Versions = slices.DeleteFunc(SupportedVersions(), func(v string) bool { return !slices.Contains(o.Versions, v) })
	for _, origin := range o.AllowedOrigins {
		if !validOrigin(origin) {
			return o, fmt.Errorf("handler: Options.AllowedOrigins: %q is no origin; write scheme://host[:port]", origin)
		}
	}
	for _, key := range o.Keys {
		if len(key) != keySize {
			return o, fmt.Errorf("handler: Options.Keys: a key has %d bytes instead of %d", len(key), keySize)
		}
	}
	for _, limit := range []struct {
		name string
		most int64
	}{
		{"MaxBody", o.MaxBody}, {"MaxID", int64(o.MaxID)}, {"MaxHeader", int64(o.MaxHeader)}, {"MaxBatch", int64(o.MaxBatch)},
		{"MaxCalls", int64(o.MaxCalls)}, {"MaxStreams", int64(o.MaxStreams)}, {"MaxSessionStreams", int64(o.MaxSessionStreams)},
		{"MaxStored", o.MaxStored}, {"MaxSessionEvents", int64(o.MaxSessionEvents)}, {"MaxSessionStored", o.MaxSessionStored},
		{"MaxSubscriptions", int64(o.MaxSubscriptions)},
	} {
		if limit.most < 0 {
			return o, fmt.Errorf("handler: Options.%s: %d is negative", limit.name, limit.most)
		}
	}
	switch {
	case o.Legacy != LegacySessions && o.Legacy != LegacyStateless:
		return o, fmt.Errorf("handler: Options.Legacy: unknown mode %d", o.Legacy)
	case o.SessionTTL < time.Second:
		return o, fmt.Errorf("handler: Options.SessionTTL: %v is less than a second", o.SessionTTL)
	case o.SessionLifetime < 0:
		return o, fmt.Errorf("handler: Options.SessionLifetime: %v is negative", o.SessionLifetime)
	case o.CallTimeout < 0:
		return o, fmt.Errorf("handler: Options.CallTimeout: %v is negative", o.CallTimeout)
	case o.Ask < AskAuto || o.Ask > AskSuspend:
		return o, fmt.Errorf("handler: Options.Ask: unknown mode %d", o.Ask)
	case o.StateTimeout < time.Second:
		return o, fmt.Errorf("handler: Options.StateTimeout: %v is less than a second", o.StateTimeout)
	case o.AskTimeout < 0:
		return o, fmt.Errorf("handler: Options.AskTimeout: %v is negative", o.AskTimeout)
	case o.MaxDepth < 0 || o.MaxDepth > maxMaxDepth:
		return o, fmt.Errorf("handler: Options.MaxDepth: %d is not between 1 and %d", o.MaxDepth, maxMaxDepth)
	case o.Verifier == nil && o.Identify == nil && len(o.Scopes) > 0:
		return o, fmt.Errorf("handler: Options.Scopes needs Options.Verifier or Identify")
	case o.Verifier == nil && o.AllowAnonymous:
		return o, fmt.Errorf("handler: Options.AllowAnonymous needs Options.Verifier")
	case o.Verifier != nil && o.Identify != nil:
		return o, fmt.Errorf("handler: Options.Verifier and Identify are two answers to one question")
	}
	return o, nil
}

func validOrigin(s string) bool {
	u, err := url.Parse(s)
	// A star would be a wildcard to one of those who read the list, and none to the other.
	return err == nil && u.Scheme != "" && u.Host != "" && u.Path == "" && u.RawQuery == "" && u.Fragment == "" &&
		u.User == nil && !strings.Contains(s, "*")
}
