package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/actor"
	"perdure.dev/perdure/internal/errdefs"
)

const (
	idempotencyHeader = "Idempotency-Key"
	replayedHeader    = "Idempotency-Replayed"
	maxKey            = 255     // bytes
	maxKeyedBody      = 8 << 20 // bytes; no JSON request is larger

	// codeUnknown is the store's: the daemon died during the first request with the key.
	codeUnknown = "idempotency_unknown"
)

// once lets a keyed request happen once. recognised says that the backend knows a repeat by its key, or does no harm by doing it again.
func (r *router) once(w http.ResponseWriter, req *http.Request, key string, recognised bool, call http.HandlerFunc) {
	if len(key) > maxKey {
		writeProblem(w, errdefs.New(errdefs.Invalid, "idempotency_key_too_long", "the Idempotency-Key is longer than %d bytes", maxKey))
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxKeyedBody))
	if err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			err = errdefs.New(errdefs.Invalid, "request_too_large", "the request is larger than %d bytes", maxKeyedBody)
		} else {
			err = errdefs.Wrap(err, errdefs.Invalid, "invalid_request", "reading the request")
		}
		writeProblem(w, err)
		return
	}
	req.Body = io.NopCloser(bytes.NewReader(body))

	who := actor.From(req.Context())
	stored := scopedKey(who, key)
	print := fingerprint(req, body)
	// The store must learn the outcome also when the client has gone.
	ctx := context.WithoutCancel(req.Context())
	old, err := r.begin(ctx, stored, print, recognised)
	if err != nil {
		writeProblem(w, err)
		return
	}
	if old != nil {
		replay(w, *old, print)
		return
	}
	// The backend sees the key too: where a crash cuts between its commit and Finish, it can tell the repeat by it.
	who.Request = stored
	req = req.WithContext(actor.With(req.Context(), who))
	rec := &recorder{header: http.Header{}, status: http.StatusOK}
	finished := false
	defer func() {
		if !finished { // a panic: free the key, let guard answer
			r.keys.Abandon(ctx, stored)
		}
	}()
	call(rec, req)
	finished = true
	if rec.status >= http.StatusInternalServerError {
		err = r.keys.Abandon(ctx, stored)
	} else {
		err = r.keys.Finish(ctx, stored, Answer{
			Fingerprint: print, Status: rec.status, Body: rec.body.Bytes(),
			Header: map[string]string{"Content-Type": rec.header.Get("Content-Type")},
		})
	}
	if err != nil {
		writeProblem(w, err)
		return
	}
	rec.send(w)
}

// begin claims a key. A claim of a daemon that died is taken over where the backend recognises the repeat.
func (r *router) begin(ctx context.Context, key string, print []byte, recognised bool) (*Answer, error) {
	old, err := r.keys.Begin(ctx, key, print)
	if !recognised || errdefs.CodeOf(err) != codeUnknown {
		return old, err
	}
	r.takeover.Lock()
	defer r.takeover.Unlock()
	if old, err = r.keys.Begin(ctx, key, print); errdefs.CodeOf(err) != codeUnknown {
		return old, err // another repeat was faster
	}
	if err := r.keys.Abandon(ctx, key); err != nil {
		return nil, err
	}
	return r.keys.Begin(ctx, key, print)
}

// unrecognised are the operations of which a repeat after a crash cannot be told from a new request. Nobody knows then whether they
// took effect, and idempotency_unknown says so.
func unrecognised(operation string) bool {
	return operation == "signal-exec" || operation == "import-session"
}

func replay(w http.ResponseWriter, old Answer, print []byte) {
	switch {
	case !bytes.Equal(old.Fingerprint, print):
		p := api.NewProblem(errdefs.New(errdefs.Invalid, "idempotency_mismatch", "this Idempotency-Key was used for another request").
			WithHint("Use a new key for a new request."))
		p.Status, p.Title = http.StatusUnprocessableEntity, http.StatusText(http.StatusUnprocessableEntity)
		writeProblem(w, p)
	case old.Status == 0:
		w.Header().Set("Retry-After", "1")
		writeProblem(w, errdefs.New(errdefs.Conflict, "idempotency_in_flight", "the first request with this Idempotency-Key is still in progress").
			WithHint("Ask again with the same key to get its answer."))
	default:
		rec := &recorder{header: http.Header{}, status: old.Status}
		for k, v := range old.Header {
			if v != "" {
				rec.header.Set(k, v)
			}
		}
		rec.header.Set(replayedHeader, "true")
		rec.body.Write(old.Body)
		rec.send(w)
	}
}

// scopedKey keeps the keys of different actors apart, and gives them one length and alphabet.
func scopedKey(who actor.Actor, key string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d:%s:%s", len(who.ID), who.ID, key))
	return hex.EncodeToString(sum[:])
}

func fingerprint(req *http.Request, body []byte) []byte {
	h := sha256.New()
	fmt.Fprintf(h, "%s %s?%s\n", req.Method, req.URL.Path, req.URL.RawQuery)
	h.Write(body)
	return h.Sum(nil)
}

// recorder keeps an answer until it is stored.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) WriteHeader(status int)      { r.status = status }
func (r *recorder) Write(b []byte) (int, error) { return r.body.Write(b) }

func (r *recorder) send(w http.ResponseWriter) {
	for k, v := range r.header {
		w.Header()[k] = v
	}
	w.WriteHeader(r.status)
	w.Write(r.body.Bytes()) // the client is gone if this fails
}
