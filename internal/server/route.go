package server

import (
	"context"
	"net/http"
	"reflect"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/actor"
)

// route describes an operation.
type route struct {
	id      string // of the operation, in the OpenAPI file
	method  string
	path    string // below /v1
	summary string
	role    actor.Role // the least that may use it
	waits   bool       // ends with its client: it only waits or streams
	status  int        // 0: 200
	media   string     // of the answer, where it is not JSON
	request string     // media type of a request body that is streamed
	maxBody int64      // bytes; 0: 1 MiB
}

// out is an operation's JSON answer.
type out[T any] struct{ Body T }

// empty is the answer of 204.
type empty struct{}

// newAPI makes the huma API on a router.
func newAPI(r *router) huma.API {
	config := huma.DefaultConfig("Perdure", "1")
	config.CreateHooks = nil // no $schema fields in the answers
	config.OpenAPIPath, config.DocsPath, config.SchemasPath = "", "", ""
	config.Transformers = []huma.Transformer{reshape}
	config.RejectUnknownQueryParameters = true
	config.Info.Description = "A runtime for persistent agents. See the package comment of api/ for the conventions."
	return huma.NewAPI(config, r)
}

// handle registers a JSON operation.
func handle[I, O any](s *Server, rt route, f func(context.Context, *I) (O, error)) {
	s.answers = append(s.answers, reflect.TypeFor[O]())
	huma.Register(s.api, s.operation(rt), func(ctx context.Context, in *I) (*out[O], error) {
		v, err := f(ctx, in)
		if err != nil {
			return nil, problem(err)
		}
		return &out[O]{Body: v}, nil
	})
}

// handleEmpty registers an operation that answers nothing but success.
func handleEmpty[I any](s *Server, rt route, f func(context.Context, *I) error) {
	rt.status = http.StatusNoContent
	huma.Register(s.api, s.operation(rt), func(ctx context.Context, in *I) (*empty, error) {
		if err := f(ctx, in); err != nil {
			return nil, problem(err)
		}
		return &empty{}, nil
	})
}

// handleStream registers an operation that writes its answer itself. f may fail only before the first byte.
func handleStream[I any](s *Server, rt route, f func(context.Context, *I, *exchange) error) {
	huma.Register(s.api, s.operation(rt), func(ctx context.Context, in *I) (*huma.StreamResponse, error) {
		return &huma.StreamResponse{Body: func(huma.Context) {
			x := exchangeOf(ctx)
			if err := f(ctx, in, x); err != nil {
				writeProblem(x.w, err)
			}
		}}, nil
	})
}

func (s *Server) operation(rt route) huma.Operation {
	if !rt.role.Valid() {
		panic("route " + rt.id + " names no role") // a fault of this package, found by any test
	}
	op := huma.Operation{
		OperationID: rt.id, Method: rt.method, Path: "/" + api.Version + rt.path, Summary: rt.summary,
		DefaultStatus: rt.status, MaxBodyBytes: rt.maxBody,
		Metadata:   map[string]any{metaRole: rt.role, metaWaits: rt.waits},
		Extensions: map[string]any{"x-role": string(rt.role)},
		Responses:  map[string]*huma.Response{"default": s.problemResponse()},
	}
	status := "200"
	if rt.media != "" {
		op.Responses[status] = &huma.Response{Description: "OK", Content: map[string]*huma.MediaType{rt.media: {}}}
	}
	if rt.request != "" {
		op.RequestBody = &huma.RequestBody{Content: map[string]*huma.MediaType{rt.request: {}}}
	}
	if rt.method == http.MethodPost {
		op.Parameters = slices.Clone(idempotencyParam())
	}
	return op
}

func (s *Server) problemResponse() *huma.Response {
	schema := s.api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[api.Problem](), true, "Problem")
	return &huma.Response{Description: "A problem (RFC 9457)", Content: map[string]*huma.MediaType{api.ProblemType: {Schema: schema}}}
}

func idempotencyParam() []*huma.Param {
	return []*huma.Param{{
		Name: idempotencyHeader, In: "header", Schema: &huma.Schema{Type: "string"},
		Description: "Makes the request happen once: the same key and body get the stored answer.",
	}}
}
