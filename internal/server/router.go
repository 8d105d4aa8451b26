package server

import (
	"context"
	"net/http"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"perdure.dev/perdure/internal/actor"
	"perdure.dev/perdure/internal/errdefs"
)

// router is huma's adapter to http.ServeMux. It adds what every operation here has: custom verbs in the path, a role, idempotency,
// and independence from the client's patience.
//
// # Verbs
//
// A path such as /v1/sessions/{s}:cancel names a verb. ServeMux wants a wildcard to be a whole segment, so inside the mux the verb is
// a segment of its own, "/v1/sessions/{s}/:cancel"; requests are rewritten the same way at the last colon of the last segment, if
// what follows is a verb of that kind of thing. Names and ids of sessions hold no colon; those of images do.
type router struct {
	mux   *http.ServeMux
	keys  IdempotencyStore
	verbs map[string]bool // see verbKey; complete before the first request

	takeover sync.Mutex // held while a claim of a daemon that died is taken over
}

func newRouter(keys IdempotencyStore) *router {
	r := &router{mux: http.NewServeMux(), keys: keys, verbs: map[string]bool{}}
	r.mux.HandleFunc("/", func(w http.ResponseWriter, req *http.Request) {
		writeProblem(w, errdefs.New(errdefs.NotFound, "no_such_route", "there is no %s %s", req.Method, req.URL.Path).
			WithHint("GET /v1/openapi.yaml lists the routes."))
	})
	return r
}

// ServeHTTP routes a request.
func (r *router) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if path, ok := splitVerb(req.URL.Path); ok && r.verbs[verbKey(req.Method, path)] {
		u := *req.URL
		u.Path, u.RawPath = path, ""
		req2 := *req
		req2.URL = &u
		req = &req2
	}
	r.mux.ServeHTTP(w, req)
}

// splitVerb makes "/a/b:verb" into "/a/b/:verb".
func splitVerb(path string) (string, bool) {
	colon := strings.LastIndexByte(path, ':')
	if colon <= strings.LastIndexByte(path, '/')+1 {
		return path, false
	}
	return path[:colon] + "/" + path[colon:], true
}

// verbKey names a verb by its method, the kind of thing that it is for, and itself. path has been split.
func verbKey(method, path string) string {
	_, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/") // after the version
	kind, _, _ := strings.Cut(rest, "/")
	return method + " " + kind + " " + path[strings.LastIndexByte(path, '/')+1:]
}

// The keys of an operation's metadata.
const (
	metaRole  = "role"
	metaWaits = "waits"
)

// Handle registers an operation. It is called by huma.
func (r *router) Handle(op *huma.Operation, handler func(huma.Context)) {
	path, isVerb := splitVerb(op.Path)
	if isVerb {
		r.verbs[verbKey(op.Method, path)] = true
	}
	role, _ := op.Metadata[metaRole].(actor.Role)
	waits, _ := op.Metadata[metaWaits].(bool)
	call := func(w http.ResponseWriter, req *http.Request) {
		ctx := req.Context()
		if !waits && req.Method != http.MethodGet {
			// What changes something is carried through also when its client has gone.
			ctx = context.WithoutCancel(ctx)
		}
		req = req.WithContext(context.WithValue(ctx, exchangeKey{}, &exchange{w: w, r: req}))
		handler(plainContext{humago.NewContext(op, req, w)})
	}
	r.mux.HandleFunc(op.Method+" "+path, func(w http.ResponseWriter, req *http.Request) {
		if err := permit(req.Context(), role); err != nil {
			writeProblem(w, err)
			return
		}
		if key := req.Header.Get(idempotencyHeader); key != "" && req.Method == http.MethodPost {
			r.once(w, req, key, !unrecognised(op.OperationID), call)
			return
		}
		call(w, req)
	})
}

// plainContext applies plainStatus to what huma answers by itself.
type plainContext struct{ humaContext }

// humaContext has a name other than that of its method Context, so that it can be embedded.
type humaContext = huma.Context

func (c plainContext) SetStatus(code int)   { c.humaContext.SetStatus(plainStatus(code)) }
func (c plainContext) Unwrap() huma.Context { return c.humaContext }

type exchangeKey struct{}

// exchange is the request and response of an operation, for those that stream.
type exchange struct {
	w http.ResponseWriter
	r *http.Request
}

func exchangeOf(ctx context.Context) *exchange {
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	return x
}
