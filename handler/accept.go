package handler

import (
	"mime"
	"net/http"
	"strconv"
	"strings"
)

const (
	typeJSON   = "application/json"
	typeStream = "text/event-stream"
)

// acceptable is what the client takes.
type acceptable struct{ json, stream bool }

// parseAccept reads the Accept header as media ranges with weights (RFC 9110, section 12.5.1): the most specific range
// that matches a type decides, and a weight of 0 excludes. No header accepts everything.
func parseAccept(h http.Header) acceptable {
	lines := h.Values("Accept")
	if len(lines) == 0 {
		return acceptable{json: true, stream: true}
	}
	ranges := strings.Split(strings.Join(lines, ","), ",")
	return acceptable{json: accepts(ranges, typeJSON), stream: accepts(ranges, typeStream)}
}

func accepts(ranges []string, mediaType string) bool {
	major, _, _ := strings.Cut(mediaType, "/")
	best, ok := 0, false
	for _, r := range ranges {
		name, params, _ := strings.Cut(r, ";")
		specific := 0
		switch strings.ToLower(strings.TrimSpace(name)) {
		case mediaType:
			specific = 3
		case major + "/*":
			specific = 2
		case "*/*":
			specific = 1
		}
		if specific > best || specific == best && specific > 0 && !ok {
			best, ok = specific, weight(params) > 0
		}
	}
	return ok
}

// weight reads the q parameter; a malformed one counts as 1, as if it were not there.
func weight(params string) float64 {
	for p := range strings.SplitSeq(params, ";") {
		key, value, _ := strings.Cut(p, "=")
		if strings.EqualFold(strings.TrimSpace(key), "q") {
			if q, err := strconv.ParseFloat(strings.TrimSpace(value), 64); err == nil {
				return q
			}
		}
	}
	return 1
}

// isJSON says whether a Content-Type is JSON in UTF-8, however it is spelt.
func isJSON(contentType string) bool {
	name, params, err := mime.ParseMediaType(contentType)
	if err != nil || name != typeJSON {
		return false
	}
	charset, ok := params["charset"]
	return !ok || strings.EqualFold(charset, "utf-8") || strings.EqualFold(charset, "utf8")
}
