package api

import (
	"net/http"

	"perdure.dev/perdure/internal/errdefs"
)

// ProblemType is the media type of a Problem.
const ProblemType = "application/problem+json"

// Problem is an error on the wire, as RFC 9457 has it, with a stable code and a hint.
type Problem struct {
	Type   string         `json:"type" doc:"about:blank"`
	Title  string         `json:"title" doc:"The HTTP status in words."`
	Status int            `json:"status"`
	Detail string         `json:"detail" doc:"What is wrong, for people."`
	Kind   string         `json:"kind" enum:"invalid,not_found,conflict,denied,timeout,unavailable,exhausted,corrupt,internal"`
	Code   string         `json:"code" doc:"Stable, for programs."`
	Hint   string         `json:"hint,omitempty" doc:"What to do next, for people."`
	Errors []ProblemField `json:"errors,omitempty" doc:"Which parts of the request are wrong."`
}

// ProblemField names one part of a request that is wrong.
type ProblemField struct {
	Location string `json:"location" doc:"Such as body.name or query.limit."`
	Message  string `json:"message"`
}

// NewProblem turns any error into a Problem. The text of an error that is not an errdefs.Error is passed on too: the API is
// for the owner of the machine, to whom a hidden cause helps nobody.
func NewProblem(err error) *Problem {
	kind := errdefs.KindOf(err)
	return &Problem{
		Type: "about:blank", Title: http.StatusText(kind.Status()), Status: kind.Status(),
		Detail: err.Error(), Kind: string(kind), Code: errdefs.CodeOf(err), Hint: errdefs.HintOf(err),
	}
}

// Err turns the Problem back into the error that it was made of.
func (p *Problem) Err() error {
	msg := p.Detail
	for i, f := range p.Errors {
		sep := "; "
		if i == 0 {
			sep = ": "
		}
		msg += sep + f.Location + ": " + f.Message
	}
	return &errdefs.Error{Kind: errdefs.Kind(p.Kind), Code: p.Code, Message: msg, Hint: p.Hint}
}

// Error makes a Problem an error itself.
func (p *Problem) Error() string { return p.Detail }

// GetStatus is the HTTP status to answer with.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType makes the answer's media type application/problem+json.
func (p *Problem) ContentType(string) string { return ProblemType }
