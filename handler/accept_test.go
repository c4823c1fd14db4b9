package handler

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestParseAccept(t *testing.T) {
	both, onlyJSON, onlyStream, neither := acceptable{true, true}, acceptable{json: true}, acceptable{stream: true}, acceptable{}
	cases := []struct {
		accept []string
		want   acceptable
	}{
		{nil, both},
		{[]string{"*/*"}, both},
		{[]string{"application/json, text/event-stream"}, both},
		{[]string{"application/json", "text/event-stream"}, both},
		{[]string{"application/json;q=0.9, TEXT/EVENT-STREAM"}, both},
		{[]string{" APPLICATION/JSON ; q=0.5 , text/* ;q=1"}, both},
		{[]string{"application/json;q=0, text/event-stream"}, onlyStream},
		{[]string{"application/json;q=0.0, */*"}, onlyStream},
		{[]string{"*/*, text/event-stream;Q=0"}, onlyJSON},
		{[]string{"application/*"}, onlyJSON},
		{[]string{"text/html"}, neither},
		{[]string{""}, neither},
		{[]string{"*/*;q=0"}, neither},
		{[]string{"application/json;q=x"}, onlyJSON},
		{[]string{"application/jsonx, text/event-stream2"}, neither},
	}
	for _, c := range cases {
		assert.Equal(t, c.want, parseAccept(http.Header{"Accept": c.accept}), c.accept)
	}
}

func TestIsJSON(t *testing.T) {
	for _, ok := range []string{"application/json", `Application/JSON; charset="UTF-8"`, "application/json;charset=utf-8", "application/json; charset=utf8"} {
		assert.True(t, isJSON(ok), ok)
	}
	for _, bad := range []string{"", "text/plain", "application/json; charset=utf-16", "application/jsonx", "application/x-www-form-urlencoded", "application/json;;;="} {
		assert.False(t, isJSON(bad), bad)
	}
}

func TestDecodeHeader(t *testing.T) {
	for in, want := range map[string]string{"plain": "plain", "=?base64?ZGVsZXRlX2FsbA==?=": "delete_all", "=?base64?x": "=?base64?x", "": ""} {
		got, ok := decodeHeader(in)
		assert.True(t, ok, in)
		assert.Equal(t, want, got)
	}
	for _, bad := range []string{"=?base64?***?=", "=?base64?/w==?="} { // the second is not UTF-8
		_, ok := decodeHeader(bad)
		assert.False(t, ok, bad)
	}
}
