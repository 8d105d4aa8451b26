package server

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/errdefs"
)

// problem turns an error of the backend into what is sent.
func problem(err error) *api.Problem {
	var p *api.Problem
	if errors.As(err, &p) {
		return p
	}
	var typed *errdefs.Error
	if !errors.As(err, &typed) {
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			err = errdefs.Wrap(err, errdefs.Timeout, "timeout", "the time limit was reached")
		case errors.Is(err, context.Canceled):
			err = errdefs.Wrap(err, errdefs.Unavailable, "canceled", "the request was given up")
		}
	}
	return api.NewProblem(err)
}

// writeProblem answers with an error.
func writeProblem(w http.ResponseWriter, err error) {
	p := problem(err)
	w.Header().Set("Content-Type", api.ProblemType)
	w.WriteHeader(p.Status)
	json.NewEncoder(w).Encode(p) // the client is gone if this fails
}

// reshape gives every answer its promised form: errors of huma's own become Problems, nil lists become [].
func reshape(_ huma.Context, _ string, v any) (any, error) {
	if e, ok := v.(*huma.ErrorModel); ok {
		return fromHuma(e), nil
	}
	return withoutNulls(v), nil
}

// fromHuma translates the errors that huma makes before a handler is called: validation, body size, media type.
func fromHuma(e *huma.ErrorModel) *api.Problem {
	kind, code := errdefs.Invalid, "invalid_request"
	switch e.Status {
	case http.StatusRequestEntityTooLarge:
		code = "request_too_large"
	case http.StatusUnsupportedMediaType, http.StatusNotAcceptable:
		code = "unsupported_media_type"
	case http.StatusRequestTimeout:
		kind, code = errdefs.Timeout, "request_timeout"
	}
	if e.Status >= 500 {
		kind, code = errdefs.Internal, "internal"
	}
	status := plainStatus(e.Status)
	p := &api.Problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: e.Detail, Kind: string(kind), Code: code,
	}
	for _, d := range e.Errors {
		p.Errors = append(p.Errors, api.ProblemField{Location: d.Location, Message: d.Message})
	}
	return p
}

// plainStatus makes a request that is wrong 400 throughout; 422 is left to idempotency_mismatch.
func plainStatus(status int) int {
	if status == http.StatusUnprocessableEntity {
		return http.StatusBadRequest
	}
	return status
}
