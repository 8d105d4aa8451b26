package server

import (
	"context"
	"net/http"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/actor"
)

func (s *Server) systemRoutes() {
	b := s.cfg.Backend.System
	handle(s, route{
		id: "health", method: http.MethodGet, path: "/health", role: actor.Viewer, summary: "Say that the daemon answers",
	}, func(ctx context.Context, _ *struct{}) (api.Health, error) {
		return b.Health(ctx)
	})
	handle(s, route{
		id: "doctor", method: http.MethodGet, path: "/doctor", role: actor.Viewer, summary: "Say what this machine can do, and what not and why",
	}, func(ctx context.Context, _ *struct{}) (api.DoctorReport, error) {
		return b.Doctor(ctx)
	})
	handle(s, route{
		id: "version", method: http.MethodGet, path: "/version", role: actor.Viewer, summary: "The daemon's version",
	}, func(context.Context, *struct{}) (api.BuildInfo, error) {
		return b.Version(), nil
	})
	handleStream(s, route{
		id: "openapi", method: http.MethodGet, path: "/openapi.yaml", role: actor.Viewer, media: "application/yaml", summary: "This API's description",
	}, func(_ context.Context, _ *struct{}, x *exchange) error {
		spec, err := s.spec()
		if err != nil {
			return err
		}
		x.w.Header().Set("Content-Type", "application/yaml")
		_, err = x.w.Write(spec)
		return cut(err)
	})
}
