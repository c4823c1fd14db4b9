package handler

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/internal/cmd/soak/client"
	"github.com/hydrant-mcp/hydrant/internal/rawjson"
	"github.com/hydrant-mcp/hydrant/store"
	"github.com/hydrant-mcp/hydrant/store/memory"
)

// farAway is a time in Unix seconds.
const farAway = 1 << 40

var fuzzKeys = keyring{bytes.Repeat([]byte{1}, keySize), bytes.Repeat([]byte{2}, keySize)}

// tokenBytes is what a token stands for: base64 has several spellings of some, and breaks of lines mean nothing to it.
func tokenBytes(t *testing.T, token string) []byte {
	t.Helper()
	raw, err := base64.RawURLEncoding.DecodeString(token)
	require.NoError(t, err, "what opens is base64")
	return raw
}

// Whatever a client sends as an event id, or as the id of an answer: only what was signed for that purpose opens.
func FuzzLastEventID(f *testing.F) {
	st := memory.New()
	h := New(testServer(), st, &Options{Keys: fuzzKeys})
	// Several processes fuzz, each with its own of these: they must be the same.
	session := strings.Repeat("A", sessionIDLength)
	require.NoError(f, st.CreateSession(f.Context(), &store.Session{
		Key: sessionKey(defaultName, session), ProtocolVersion: version20251125, InitializeParams: json.RawMessage(`{}`),
		Created: time.Now(), Expires: time.Now().Add(24 * time.Hour),
	}))
	id := eventID{
		Exchange: "0123456789abcdef", Session: short(sessionKey(defaultName, session)), Principal: short(""),
		ID: json.RawMessage(`1`), Until: farAway, Seq: store.Final,
	}
	event := fuzzKeys.sign(purposeEvent, id)
	question := fuzzKeys.sign(purposeQuestion, questionID{Exchange: id.Exchange, Session: id.Session, Slot: "0"})
	payload, err := json.Marshal(id)
	require.NoError(f, err)
	for _, seed := range []string{
		event, question, fuzzKeys[1:].sign(purposeEvent, id), keyring{make([]byte, keySize)}.sign(purposeEvent, id),
		event[:len(event)-1], event + "A", event + "\n", strings.ToUpper(event), event + event, "", "A", "....",
		base64.RawURLEncoding.EncodeToString(append(make([]byte, macSize), payload...)),
		base64.RawURLEncoding.EncodeToString(make([]byte, macSize)), strings.Repeat("A", 10_000),
	} {
		f.Add(seed)
	}
	signed := [][]byte{}
	for _, token := range []string{event, fuzzKeys[1:].sign(purposeEvent, id)} {
		raw, err := base64.RawURLEncoding.DecodeString(token)
		require.NoError(f, err)
		signed = append(signed, raw)
	}
	questionRaw, err := base64.RawURLEncoding.DecodeString(question)
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, token string) {
		var e eventID
		genuine := fuzzKeys.open(purposeEvent, token, &e)
		if genuine {
			raw := tokenBytes(t, token)
			require.True(t, slices.ContainsFunc(signed, func(s []byte) bool { return bytes.Equal(s, raw) }), "a forged event id")
		}
		var q questionID
		if fuzzKeys.open(purposeQuestion, token, &q) {
			require.Equal(t, questionRaw, tokenBytes(t, token), "a forged id of a question")
		}
		if token == "" || strings.ContainsAny(token, "\r\n\x00") {
			return // no value of a header
		}
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Accept", typeStream)
		r.Header.Set(headerSession, session)
		r.Header[http.CanonicalHeaderKey(headerLastEvent)] = []string{token}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if genuine {
			require.Equal(t, 200, w.Code)
			require.Empty(t, w.Body.String(), "it has everything")
			return
		}
		require.Equal(t, 400, w.Code, w.Body)
	})
}

func jsonPost(body string, headers ...string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
	r.Header.Set("Content-Type", typeJSON)
	r.Header.Set("Accept", typeJSON+", "+typeStream)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return r
}

// sealAlways is keyring.seal without its random nonce: several processes fuzz, and must seal the same.
func sealAlways(f *testing.F, key, plain, binding []byte) []byte {
	derived, err := hkdf.Key(sha256.New, key, nil, "hydrant "+purposeState, keySize)
	require.NoError(f, err)
	block, err := aes.NewCipher(derived)
	require.NoError(f, err)
	gcm, err := cipher.NewGCM(block)
	require.NoError(f, err)
	nonce := make([]byte, gcm.NonceSize())
	return gcm.Seal(nonce, nonce, plain, binding)
}

// Whatever a client sends as requestState: what was not sealed for this very call does not open, and the tool does not run.
func FuzzRequestState(f *testing.F) {
	var ran atomic.Int64
	server := mcp.NewServer(&mcp.Implementation{Name: "fuzz", Version: "1"}, nil)
	server.AddTool(&mcp.Tool{Name: "t", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			ran.Add(1)
			return textResult("ran"), nil
		})
	h := New(server, memory.New(), &Options{Keys: fuzzKeys})
	call := func(arguments string) *exchange {
		return &exchange{request: &request{h: h, name: defaultName}, msg: message{
			method: "tools/call", params: json.RawMessage(`{"name":"t","arguments":` + arguments + `}`),
		}}
	}
	plain := encode(sealed{Until: farAway, Serial: "0"})
	type minted struct{ raw, binding []byte }
	var all []minted
	mint := func(key, plain []byte, arguments string) string {
		binding := call(arguments).binding()
		raw := sealAlways(f, key, plain, binding)
		all = append(all, minted{raw, binding})
		return base64.RawURLEncoding.EncodeToString(raw)
	}
	const arguments = `{"a":1}`
	good := mint(fuzzKeys[0], plain, arguments)
	for _, seed := range []string{
		good, mint(fuzzKeys[1], plain, arguments), mint(fuzzKeys[0], plain, `{"a":2}`), mint(fuzzKeys[0], []byte(`{`), arguments),
		base64.RawURLEncoding.EncodeToString(sealAlways(f, make([]byte, keySize), plain, call(arguments).binding())), good[:len(good)-1], good + "A", good + "\n", "", "A",
		fuzzKeys.sign(purposeState, sealed{Until: 1 << 40}), strings.Repeat("A", 10_000), "\xff",
		base64.RawURLEncoding.EncodeToString(make([]byte, 28)),
	} {
		f.Add(seed, arguments)
	}
	opened, ok := fuzzKeys.unseal(good, call(arguments).binding())
	require.True(f, ok)
	require.Equal(f, plain, json.RawMessage(opened))
	f.Add(good, `{"a":2}`)
	f.Add(good, `{ "a" : 1.0 }`)
	f.Fuzz(func(t *testing.T, token, arguments string) {
		if !json.Valid([]byte(arguments)) || !rawjson.IsObject(json.RawMessage(strings.TrimSpace(arguments))) {
			arguments = `{}`
		}
		binding := call(arguments).binding()
		ours := false
		if raw, err := base64.RawURLEncoding.DecodeString(token); err == nil {
			ours = slices.ContainsFunc(all, func(m minted) bool { return bytes.Equal(m.raw, raw) && bytes.Equal(m.binding, binding) })
		}
		if _, ok := fuzzKeys.unseal(token, binding); ok {
			require.True(t, ours, "a state opens that was not sealed for this call")
		}
		before := ran.Load()
		body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":` + arguments +
			`,"requestState":` + string(encode(token)) + `,"inputResponses":{},"_meta":{` + metaFields + `{}}}}`
		w := httptest.NewRecorder()
		h.ServeHTTP(w, jsonPost(body, headerVersion, version20260728, headerMethod, "tools/call", headerName, "t"))
		if !ours {
			require.Equal(t, before, ran.Load(), "the tool has run on a state that is none of ours")
			require.Equal(t, 400, w.Code, w.Body)
		}
	})
}

// Whatever message goes into the writer of event streams, a parser of event streams gets exactly it back, as one event.
func FuzzSSE(f *testing.F) {
	for _, seed := range []string{
		`{}`, "{\n\"a\" : \"\\n\"\n}", "{\r\n}\r\n", "[1,\r2]", `"data: x\n\nid: 7"`, `"` + "\u2028\u0085" + `"`, "\n\n1", ` {":":"id: x"}`,
		`{"jsonrpc":"2.0","method":"m","params":{"text":"event: message"}}`, "7",
	} {
		f.Add([]byte(seed), "id-1", int64(0))
	}
	f.Add([]byte(`{}`), "", int64(1500))
	h := New(testServer(), memory.New(), nil)
	f.Fuzz(func(t *testing.T, msg []byte, id string, retry int64) {
		if !json.Valid(msg) || strings.ContainsAny(id, "\r\n\x00") || retry < 0 || retry > 1<<31 {
			return // our ids are base64
		}
		w := httptest.NewRecorder()
		a := &answer{request: &request{h: h, w: w, http: httptest.NewRequest(http.MethodGet, "/", nil)}}
		a.comment()
		a.writeEvent(id, time.Duration(retry)*time.Millisecond, msg)
		a.comment()
		var got []client.Event
		require.NoError(t, client.ReadEvents(w.Body, func(e client.Event) bool {
			got = append(got, e)
			return true
		}))
		require.Len(t, got, 1)
		// A carriage return can only be white space between tokens, and does not survive a stream of lines.
		require.Equal(t, strings.ReplaceAll(string(msg), "\r", ""), got[0].Data)
		require.Equal(t, id, got[0].ID)
		require.Equal(t, time.Duration(retry)*time.Millisecond, got[0].Retry)
		require.Equal(t, "message", got[0].Name)
	})
}
