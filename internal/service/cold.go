package service

import (
	"context"
	"time"

	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/session"
)

// archiveEvery is how often images are looked for that are asleep for long enough to be in the store only.
const archiveEvery = 10 * time.Minute

// archive keeps the RAM of sessions that sleep for long in the store only. What it costs grows with the images that are there as files.
func (s *Service) archive(ctx context.Context) {
	for s.cfg.Clock.Sleep(ctx, archiveEvery) == nil {
		s.sealing.Lock()
		freed, err := s.checkpoints.Archive(ctx, func(c id.Checkpoint, used time.Time) bool { return s.cold(ctx, c, used) })
		s.sealing.Unlock()
		if err != nil && ctx.Err() == nil {
			s.cfg.Logger.Warn("cannot delete the files of memory images that are stored", "error", err)
		}
		if freed > 0 {
			s.cfg.Logger.Info("sessions that sleep for long have their memory in the store only", "bytes", freed)
		}
	}
}

// cold reports whether a checkpoint is of a session that has slept for long enough.
func (s *Service) cold(ctx context.Context, c id.Checkpoint, used time.Time) bool {
	k, err := s.cfg.Rows.Checkpoint(ctx, c)
	if err != nil {
		return false
	}
	row, err := s.cfg.Rows.Session(ctx, string(k.SessionID))
	if err != nil || row.Workspace.State != session.WorkspaceSuspended && row.Workspace.State != session.WorkspaceStopped {
		return false
	}
	after := s.policyOf(ctx, row.Spec).archive
	return after > 0 && s.cfg.Clock.Now().Sub(later(used, row.UpdatedAt)) >= after
}
