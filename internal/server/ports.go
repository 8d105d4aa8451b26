package server

import (
	"context"
	"net/http"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/actor"
)

func (s *Server) portRoutes() {
	b := s.cfg.Backend.Ports
	handle(s, route{
		id: "forward-port", method: http.MethodPost, path: "/sessions/{s}/ports", role: actor.Operator, status: http.StatusCreated,
		summary: "Listen on a port for a session, until it is removed; who connects wakes it",
	}, func(ctx context.Context, in *struct {
		SessionRef
		Body api.ForwardPort
	}) (api.Port, error) {
		return b.ForwardPort(ctx, in.Session, in.Body)
	})
	handle(s, route{
		id: "list-ports", method: http.MethodGet, path: "/sessions/{s}/ports", role: actor.Viewer, summary: "List the forwarded ports of a session",
	}, func(ctx context.Context, in *SessionRef) (api.List[api.Port], error) {
		return b.ListPorts(ctx, in.Session)
	})
	handleEmpty(s, route{
		id: "remove-port", method: http.MethodDelete, path: "/sessions/{s}/ports/{local}", role: actor.Operator,
		summary: "End a forward and its connections",
	}, func(ctx context.Context, in *struct {
		SessionRef
		Local uint16 `path:"local" minimum:"1"`
	}) error {
		return b.RemovePort(ctx, in.Session, in.Local)
	})
}
