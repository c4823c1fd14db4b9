package client

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"
)

// Modern makes a request of the modern era, with as many rounds as the server asks for. Nothing of it can be resumed: when
// a connection breaks, the round is cancelled.
func (c *Client) Modern(ctx context.Context, q Request) *Outcome {
	ctx, cancel := context.WithTimeout(ctx, c.patience())
	defer cancel()
	o := &Outcome{Began: time.Now()}
	defer func() { o.Ended = time.Now() }()
	for {
		f := &follower{session: &Session{Client: c}, request: q, outcome: o, answered: map[string]bool{}}
		f.request.ID = ""
		c.round(ctx, f)
		if o.Fate != Answered {
			return o
		}
		var asks struct {
			ResultType    string                                      `json:"resultType"`
			RequestState  json.RawMessage                             `json:"requestState"`
			InputRequests map[string]struct{ Params json.RawMessage } `json:"inputRequests"`
		}
		if json.Unmarshal(o.Result, &asks) != nil || asks.ResultType != "input_required" {
			return o
		}
		answers := make(map[string]json.RawMessage, len(asks.InputRequests))
		for key, r := range asks.InputRequests {
			answers[key] = json.RawMessage(q.answer(r.Params))
		}
		responses, _ := json.Marshal(answers) // of JSON: cannot fail
		var params map[string]json.RawMessage
		_ = json.Unmarshal([]byte(q.Params), &params) // our own
		params["inputResponses"], params["requestState"] = responses, asks.RequestState
		again, _ := json.Marshal(params)
		q.Params = string(again)
		o.Fate, o.Result, o.Error = "", nil, nil
	}
}

func (c *Client) metaFields() string {
	return `"io.modelcontextprotocol/protocolVersion":"` + Modern + `","io.modelcontextprotocol/clientCapabilities":` +
		c.capabilities()
}

func (q *Request) modernHeaders() []string {
	var params struct{ Name, URI string }
	_ = json.Unmarshal([]byte(q.Params), &params)
	headers := []string{headerVersion, Modern, headerMethod, q.Method}
	if name := params.Name + params.URI; name != "" {
		headers = append(headers, headerName, name)
	}
	return headers
}

// round makes one HTTP request, and repeats it while it is refused for now.
func (c *Client) round(ctx context.Context, f *follower) {
	o := f.outcome
	body := f.request.body(c.metaFields())
	for {
		r, err := c.send(ctx, http.MethodPost, body, f.request.modernHeaders()...)
		if err != nil {
			o.broke(ctx, err)
			return
		}
		o.heard("POST", r)
		after, again := r.retryAfter()
		if !again {
			err = f.modern(ctx, r)
			r.close()
			if !f.done {
				o.broke(ctx, err)
			}
			return
		}
		drain(r)
		r.close()
		o.Retries++
		if !pause(ctx, after) {
			o.Fate = Unavailable
			return
		}
	}
}

func (f *follower) modern(ctx context.Context, r *response) error {
	if r.status == http.StatusOK && r.stream() {
		return f.read(ctx, r)
	}
	body, err := io.ReadAll(r)
	return f.inline(r, body, err)
}

// Subscribe holds a subscription to resources until ctx or the stream ends. opened is called when it is acknowledged.
func (c *Client) Subscribe(
	ctx context.Context, uris []string, opened func(), heard func(method string, params json.RawMessage),
) (status int, err error) {
	list, _ := json.Marshal(uris)
	q := Request{Method: "subscriptions/listen", Params: `{"notifications":{"resourceSubscriptions":` + string(list) + `}}`}
	r, err := c.send(ctx, http.MethodPost, q.body(c.metaFields()), q.modernHeaders()...)
	if err != nil {
		return 0, err
	}
	defer r.close()
	return r.status, r.listen(q.ID, nil, func(method string, params json.RawMessage) {
		if strings.HasSuffix(method, "/acknowledged") {
			opened()
			return
		}
		heard(method, params)
	})
}
