package server

import (
	"context"
	"net/http"
	"strings"
	"time"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/actor"
	"perdure.dev/perdure/internal/errdefs"
)

// SessionRef is the session of a path. It and its like are exported because huma skips embedded structs that are not.
type SessionRef struct {
	Session string `path:"s" doc:"A session's name or id." maxLength:"128"`
}

// PageQuery is the part of a list that is asked for.
type PageQuery struct {
	Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	After string `query:"after" doc:"The id of the last one already seen." maxLength:"128"`
}

func (q PageQuery) page() api.Page { return api.Page{Limit: q.Limit, After: q.After} }

func (s *Server) sessionRoutes() {
	b := s.cfg.Backend.Sessions
	handle(s, route{
		id: "create-session", method: http.MethodPost, path: "/sessions", role: actor.Operator, status: http.StatusCreated,
		summary: "Make a session; with a goal it starts to work",
	}, func(ctx context.Context, in *struct{ Body api.CreateSession }) (api.Session, error) {
		return b.CreateSession(ctx, in.Body)
	})
	handle(s, route{
		id: "list-sessions", method: http.MethodGet, path: "/sessions", role: actor.Viewer, summary: "List sessions, oldest first",
	}, func(ctx context.Context, in *PageQuery) (api.List[api.Session], error) {
		return b.ListSessions(ctx, in.page())
	})
	handle(s, route{
		id: "get-session", method: http.MethodGet, path: "/sessions/{s}", role: actor.Viewer, summary: "Show a session",
	}, func(ctx context.Context, in *SessionRef) (api.Session, error) {
		return b.GetSession(ctx, in.Session)
	})
	handle(s, route{
		id: "configure-session", method: http.MethodPatch, path: "/sessions/{s}", role: actor.Operator,
		summary: "Change what can be changed of a session; what is not given stays",
	}, func(ctx context.Context, in *struct {
		SessionRef
		Body api.ConfigureSession
	}) (api.Session, error) {
		return s.cfg.Backend.Settings.ConfigureSession(ctx, in.Session, in.Body)
	})
	handleEmpty(s, route{
		id: "delete-session", method: http.MethodDelete, path: "/sessions/{s}", role: actor.Operator,
		summary: "Delete a session with its workspace, log and checkpoints",
	}, func(ctx context.Context, in *SessionRef) error {
		return b.DeleteSession(ctx, in.Session)
	})
	handle(s, route{
		id: "cancel-session", method: http.MethodPost, path: "/sessions/{s}:cancel", role: actor.Operator,
		summary: "Ask the turn in progress to stop; the session stays",
	}, func(ctx context.Context, in *struct {
		SessionRef
		Body *api.CancelSession `required:"false"`
	}) (api.Session, error) {
		req := api.CancelSession{}
		if in.Body != nil {
			req = *in.Body
		}
		return b.CancelSession(ctx, in.Session, req)
	})
	handle(s, route{
		id: "wait-session", method: http.MethodPost, path: "/sessions/{s}:wait", role: actor.Viewer, waits: true,
		summary: "Answer when the session is in one of the states",
	}, func(ctx context.Context, in *struct {
		SessionRef
		Body api.WaitSession
	}) (api.Session, error) {
		return s.wait(ctx, in.Session, in.Body)
	})
}

func (s *Server) wait(ctx context.Context, ref string, req api.WaitSession) (api.Session, error) {
	timeout := errdefs.New(errdefs.Timeout, "wait_timeout", "the session is not %s after %s",
		strings.Join(req.For, " or "), time.Duration(req.TimeoutMS)*time.Millisecond)
	if req.TimeoutMS > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, time.Duration(req.TimeoutMS)*time.Millisecond, timeout)
		defer cancel()
	}
	session, err := s.cfg.Backend.Sessions.WaitSession(ctx, ref, req.For)
	if err != nil && context.Cause(ctx) != nil {
		return api.Session{}, context.Cause(ctx) // says why it ended: the limit, or the daemon's stop
	}
	return session, err
}

// lifecycleRoutes are the verbs that move a workspace.
func (s *Server) lifecycleRoutes() {
	b := s.cfg.Backend.Sessions
	verb := func(name, summary string, f func(context.Context, string) (api.Session, error)) {
		handle(s, route{
			id: name + "-session", method: http.MethodPost, path: "/sessions/{s}:" + name, role: actor.Operator, summary: summary,
		}, func(ctx context.Context, in *SessionRef) (api.Session, error) {
			return f(ctx, in.Session)
		})
	}
	if b == nil { // only the OpenAPI file is wanted
		b = noSessions{}
	}
	verb("pause", "Stop the workspace's CPU, keep its RAM", b.PauseSession)
	verb("suspend", "Bring RAM and processes to the store, hold no memory", b.SuspendSession)
	verb("stop", "Keep files only", b.StopSession)
	verb("resume", "Reverse any of pause, suspend and stop", b.ResumeSession)
}

// noSessions stands in where method values are taken without a backend.
type noSessions struct{ Sessions }
