package model

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"perdure.dev/perdure/internal/clock"
	"perdure.dev/perdure/internal/sse"
)

// Endpoint is where an API of models is, as the providers that speak HTTP reach it.
type Endpoint struct {
	Client *http.Client
	URL    string
	Header http.Header
	Idle   time.Duration // how long nothing may arrive
	Clock  clock.Clock
	// Fault reads the API's own words out of an error object. Empty words: it is none.
	Fault func(body []byte) (kind, message string)
}

// ErrDone is what a reader of events returns once the answer is whole.
var ErrDone = errors.New("done")

// maxFault is how much of an error answer is read, in bytes.
const maxFault = 64 << 10

// Stream sends a request and passes the events of the answer to read, until read returns ErrDone or the stream ends. Errors are *Error.
func (e Endpoint) Stream(ctx context.Context, request any, read func(sse.Message) error) error {
	body, err := json.Marshal(request)
	if err != nil {
		return NewError(BadRequest, err, "the request cannot be written")
	}
	watched, alive, stop := WatchIdle(ctx, e.Idle)
	defer stop()
	req, err := http.NewRequestWithContext(watched, http.MethodPost, e.URL, bytes.NewReader(body))
	if err != nil {
		return NewError(BadRequest, err, "the model's endpoint %s is no URL", e.URL)
	}
	req.Header = e.Header.Clone()
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("User-Agent", "perdure")
	res, err := e.Client.Do(req)
	if err != nil {
		return StreamError(ctx, watched, err)
	}
	defer res.Body.Close()
	if err := e.refused(res); err != nil {
		return err
	}
	d := sse.NewDecoder(res.Body)
	for {
		m, err := d.Next()
		switch {
		case errors.Is(err, io.EOF) && ctx.Err() == nil:
			return nil // whether the answer is whole, its reader knows
		case err != nil:
			return StreamError(ctx, watched, err)
		}
		alive()
		if err := read(m); errors.Is(err, ErrDone) {
			return nil
		} else if err != nil {
			return StreamError(ctx, watched, err)
		}
	}
}

// refused returns the error of an answer that is no stream, or nil.
func (e Endpoint) refused(res *http.Response) error {
	media, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")) // no type: it may be a stream all the same
	if res.StatusCode < 300 && media != "application/json" && media != "text/html" {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxFault))
	if err != nil {
		return NewError(Network, err, "the connection to the model failed")
	}
	kind, message := e.Fault(body)
	if kind+message == "" {
		message = strings.TrimSpace(string(body[:min(len(body), 300)]))
	}
	if res.StatusCode < 300 && kind == "" {
		kind = "and did not stream" // another kind of endpoint, or one that ignores "stream"
	}
	return FromStatus(res.StatusCode, res.Header, kind, message, e.Clock.Now())
}
