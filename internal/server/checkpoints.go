package server

import (
	"context"
	"net/http"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/actor"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/id"
)

type CheckpointRef struct {
	Checkpoint string `path:"checkpoint" doc:"A checkpoint's id." maxLength:"128"`
}

func (r CheckpointRef) id() (id.Checkpoint, error) {
	if !id.Valid("ckpt", r.Checkpoint) {
		return "", errdefs.New(errdefs.NotFound, "checkpoint_not_found", "there is no checkpoint %q", r.Checkpoint).
			WithHint("List them with: perdure checkpoints SESSION")
	}
	return id.Checkpoint(r.Checkpoint), nil
}

func (s *Server) checkpointRoutes() {
	b, storage := s.cfg.Backend.Checkpoints, s.cfg.Backend.Storage
	handle(s, route{
		id: "check-storage", method: http.MethodPost, path: "/checkpoints:verify", role: actor.Operator, waits: true,
		summary: "Read all that is stored of checkpoints, and heal it if asked to",
	}, func(ctx context.Context, in *struct {
		Body *api.CheckStorage `required:"false"`
	}) (api.StorageReport, error) {
		req := api.CheckStorage{}
		if in.Body != nil {
			req = *in.Body
		}
		return storage.CheckStorage(ctx, req)
	})
	handle(s, route{
		id: "storage-usage", method: http.MethodGet, path: "/checkpoints:usage", role: actor.Viewer, summary: "Say what checkpoints take",
	}, func(ctx context.Context, in *struct {
		Session string `query:"session" maxLength:"128" doc:"A session's name or id, whose relatives count too; empty: all."`
	}) (api.StorageUsage, error) {
		return storage.StorageUsage(ctx, in.Session)
	})
	handle(s, route{
		id: "create-checkpoint", method: http.MethodPost, path: "/sessions/{s}/checkpoints", role: actor.Operator, status: http.StatusCreated,
		summary: "Take a checkpoint",
	}, func(ctx context.Context, in *struct {
		SessionRef
		Body *api.CreateCheckpoint `required:"false"`
	}) (api.Checkpoint, error) {
		req := api.CreateCheckpoint{}
		if in.Body != nil {
			req = *in.Body
		}
		return b.CreateCheckpoint(ctx, in.Session, req)
	})
	handle(s, route{
		id: "list-checkpoints", method: http.MethodGet, path: "/sessions/{s}/checkpoints", role: actor.Viewer, summary: "List a session's checkpoints, oldest first",
	}, func(ctx context.Context, in *struct {
		SessionRef
		PageQuery
	}) (api.List[api.Checkpoint], error) {
		return b.ListCheckpoints(ctx, in.Session, in.page())
	})
	handle(s, route{
		id: "get-checkpoint", method: http.MethodGet, path: "/checkpoints/{checkpoint}", role: actor.Viewer, summary: "Show a checkpoint",
	}, func(ctx context.Context, in *CheckpointRef) (api.Checkpoint, error) {
		ckpt, err := in.id()
		if err != nil {
			return api.Checkpoint{}, err
		}
		return b.GetCheckpoint(ctx, ckpt)
	})
	handleEmpty(s, route{
		id: "delete-checkpoint", method: http.MethodDelete, path: "/checkpoints/{checkpoint}", role: actor.Operator,
		summary: "Delete a checkpoint; what others share stays",
	}, func(ctx context.Context, in *CheckpointRef) error {
		ckpt, err := in.id()
		if err != nil {
			return err
		}
		return b.DeleteCheckpoint(ctx, ckpt)
	})
	handle(s, route{
		id: "fork-session", method: http.MethodPost, path: "/sessions/{s}:fork", role: actor.Operator, status: http.StatusCreated,
		summary: "Make sessions that start from a checkpoint of this one",
	}, func(ctx context.Context, in *struct {
		SessionRef
		Body *api.ForkSession `required:"false"`
	}) (api.List[api.Session], error) {
		req := api.ForkSession{}
		if in.Body != nil {
			req = *in.Body
		}
		req.Count = max(req.Count, 1)
		return b.ForkSession(ctx, in.Session, req)
	})
	handle(s, route{
		id: "rollback-session", method: http.MethodPost, path: "/sessions/{s}:rollback", role: actor.Operator,
		summary: "Bring the session back to a checkpoint, or say what that would change",
	}, func(ctx context.Context, in *struct {
		SessionRef
		Body api.RollbackSession
	}) (api.RollbackPlan, error) {
		return b.RollbackSession(ctx, in.Session, in.Body)
	})
	handle(s, route{
		id: "undo-session", method: http.MethodPost, path: "/sessions/{s}:undo", role: actor.Operator, summary: "Go back to before the last rollback",
	}, func(ctx context.Context, in *SessionRef) (api.RollbackPlan, error) {
		return b.UndoSession(ctx, in.Session)
	})
	handle(s, route{
		id: "recover-session", method: http.MethodPost, path: "/sessions/{s}:recover", role: actor.Operator,
		summary: "Bring a session that is damaged or lost to the newest state that verifies, or say what that would be",
	}, func(ctx context.Context, in *struct {
		SessionRef
		Body *api.RecoverSession `required:"false"`
	}) (api.RecoverReport, error) {
		req := api.RecoverSession{}
		if in.Body != nil {
			req = *in.Body
		}
		return b.RecoverSession(ctx, in.Session, req)
	})
	handle(s, route{
		id: "verify-session", method: http.MethodPost, path: "/sessions/{s}:verify", role: actor.Viewer, waits: true,
		summary: "Check the log's hash chain, the manifests and the stored content",
	}, func(ctx context.Context, in *SessionRef) (api.VerifyReport, error) {
		return b.VerifySession(ctx, in.Session)
	})
}
