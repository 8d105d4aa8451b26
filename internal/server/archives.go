package server

import (
	"context"
	"net/http"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/actor"
)

func (s *Server) archiveRoutes() {
	b := s.cfg.Backend.Archives
	handleStream(s, route{
		id: "export-session", method: http.MethodGet, path: "/sessions/{s}:export", role: actor.Operator, waits: true, media: api.ArchiveType,
		summary: "Write a session as an archive: its log, files and RAM; one that runs is cut by a checkpoint and runs on",
	}, func(ctx context.Context, in *struct {
		SessionRef
		Checkpoint string `query:"checkpoint" doc:"An id, or the message of one; empty: the present state." maxLength:"4096"`
		NoMemory   bool   `query:"no_memory" doc:"Files and transcript alone."`
	}, x *exchange) error {
		out := &archiveOut{w: x.w}
		err := b.ExportSession(ctx, in.Session, api.ExportSession{Checkpoint: in.Checkpoint, NoMemory: in.NoMemory}, out)
		if err != nil && !out.begun {
			return err
		}
		return cut(err)
	})
	handle(s, route{
		id: "import-session", method: http.MethodPost, path: "/sessions:import", role: actor.Operator, waits: true, status: http.StatusCreated,
		request: api.ArchiveType, summary: "Make a session of an archive, all or nothing; it sleeps until it is resumed",
	}, func(ctx context.Context, in *struct {
		Name     string `query:"name" pattern:"^([a-z0-9][a-z0-9._-]{0,62})?$" doc:"Its name here; empty: the one that it has."`
		NoMemory bool   `query:"no_memory" doc:"Files and transcript alone."`
	}) (api.Session, error) {
		return b.ImportSession(ctx, api.ImportSession{Name: in.Name, NoMemory: in.NoMemory}, exchangeOf(ctx).r.Body)
	})
}

// archiveOut begins the answer with its first byte.
type archiveOut struct {
	w     http.ResponseWriter
	begun bool
}

func (o *archiveOut) Write(p []byte) (int, error) {
	if !o.begun {
		o.begun = true
		o.w.Header().Set("Content-Type", api.ArchiveType)
	}
	return o.w.Write(p)
}
