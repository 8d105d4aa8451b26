package service

import (
	"context"
	"fmt"
	"slices"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/session"
	"perdure.dev/perdure/internal/store"
)

// CreateCheckpoint takes a checkpoint of everything as it is now.
func (s *Service) CreateCheckpoint(ctx context.Context, ref string, req api.CreateCheckpoint) (api.Checkpoint, error) {
	l, err := s.live(ctx, ref)
	if err != nil {
		return api.Checkpoint{}, err
	}
	o, err := s.once(ctx, event.CheckpointCreated, l.id)
	if err != nil {
		return api.Checkpoint{}, err
	}
	if o.done {
		made, err := event.DecodeData[event.CheckpointCreatedData](o.event)
		if err != nil {
			return api.Checkpoint{}, err
		}
		return s.GetCheckpoint(ctx, made.CheckpointID)
	}
	var created event.CheckpointCreatedData
	err = l.operate(ctx, func() error {
		if l.state().Workspace.State == session.WorkspaceNone {
			if err := l.wake(ctx); err != nil {
				return err
			}
		}
		created, err = l.take(ctx, cutting{event: o.id, kind: event.KindUser, message: req.Message, keep: req.Keep})
		return err
	})
	if err != nil {
		return api.Checkpoint{}, err
	}
	return s.GetCheckpoint(ctx, created.CheckpointID)
}

// ListCheckpoints lists a session's own checkpoints, oldest first.
func (s *Service) ListCheckpoints(ctx context.Context, ref string, page api.Page) (api.List[api.Checkpoint], error) {
	row, err := s.cfg.Rows.Session(ctx, ref)
	if err != nil {
		return api.List[api.Checkpoint]{}, err
	}
	rows, err := s.cfg.Rows.Checkpoints(ctx, row.ID)
	if err != nil {
		return api.List[api.Checkpoint]{}, err
	}
	var present []api.Checkpoint
	for _, c := range rows {
		if !c.Deleted {
			present = append(present, presentCheckpoint(c))
		}
	}
	return pageOf(present, func(c api.Checkpoint) string { return c.ID }, page)
}

// checkpoint returns the row of a checkpoint that has not been deleted.
func (s *Service) checkpoint(ctx context.Context, c id.Checkpoint) (store.Checkpoint, error) {
	row, err := s.cfg.Rows.Checkpoint(ctx, c)
	if err == nil && row.Deleted {
		err = errdefs.New(errdefs.NotFound, store.CodeCheckpointNotFound, "checkpoint %s has been deleted", c)
	}
	return row, err
}

// GetCheckpoint shows a checkpoint.
func (s *Service) GetCheckpoint(ctx context.Context, c id.Checkpoint) (api.Checkpoint, error) {
	row, err := s.checkpoint(ctx, c)
	return presentCheckpoint(row), err
}

// DeleteCheckpoint removes a checkpoint. What others share with it stays.
func (s *Service) DeleteCheckpoint(ctx context.Context, c id.Checkpoint) error {
	row, err := s.checkpoint(ctx, c)
	if err != nil {
		return err
	}
	l, err := s.liveByID(ctx, row.SessionID)
	if err != nil {
		return err
	}
	return l.operate(ctx, func() error {
		st := l.state()
		if _, hasFiles := l.workspace.Current(); !hasFiles && st.Workspace.Base == c {
			return errdefs.New(errdefs.Conflict, "checkpoint_in_use", "session %s sleeps on checkpoint %s", st.Name, c).
				WithHint("perdure resume %s first", st.Name)
		}
		if s.inUse(c) {
			return errdefs.New(errdefs.Conflict, "checkpoint_in_use", "checkpoint %s is being restored", c).WithHint("try again in a moment")
		}
		return l.deleteCheckpoint(ctx, c, "asked")
	})
}

// ForkSession makes sessions from a checkpoint or from the present state.
func (s *Service) ForkSession(ctx context.Context, ref string, req api.ForkSession) (api.List[api.Session], error) {
	l, err := s.live(ctx, ref)
	if err != nil {
		return api.List[api.Session]{}, err
	}
	if req.Name != "" {
		if err := checkName(req.Name); err != nil {
			return api.List[api.Session]{}, err
		}
	}
	o, err := s.once(ctx, event.SessionForked, l.id)
	if err != nil {
		return api.List[api.Session]{}, err
	}
	var ids []id.Session
	if o.done {
		forked, err := event.DecodeData[event.SessionForkedData](o.event)
		if err != nil {
			return api.List[api.Session]{}, err
		}
		ids = forked.Children
	} else {
		r, err := l.forkable(ctx, req.Checkpoint)
		if err != nil {
			return api.List[api.Session]{}, err
		}
		defer r.close()
		if ids, err = l.fork(ctx, r, o.id, max(req.Count, 1), req.Name); err != nil {
			return api.List[api.Session]{}, err
		}
	}
	out := api.List[api.Session]{Data: make([]api.Session, len(ids))}
	for i, sid := range ids {
		if out.Data[i], err = s.GetSession(ctx, string(sid)); err != nil {
			return out, err
		}
	}
	return out, nil
}

// RollbackSession brings a session back to a checkpoint, or says what that would change.
func (s *Service) RollbackSession(ctx context.Context, ref string, req api.RollbackSession) (api.RollbackPlan, error) {
	l, err := s.live(ctx, ref)
	if err != nil {
		return api.RollbackPlan{}, err
	}
	if req.DryRun {
		return l.rollbackTo(ctx, req.Checkpoint, "", true, false)
	}
	o, err := s.once(ctx, event.SessionRolledBack, l.id)
	if err != nil {
		return api.RollbackPlan{}, err
	}
	if o.done {
		return l.planDone(ctx, o.event)
	}
	return l.rollbackTo(ctx, req.Checkpoint, o.id, false, false)
}

// UndoSession goes back to before the last rollback.
func (s *Service) UndoSession(ctx context.Context, ref string) (api.RollbackPlan, error) {
	l, err := s.live(ctx, ref)
	if err != nil {
		return api.RollbackPlan{}, err
	}
	o, err := s.once(ctx, event.SessionRolledBack, l.id)
	if err != nil {
		return api.RollbackPlan{}, err
	}
	if o.done {
		return l.planDone(ctx, o.event)
	}
	undo := l.state().Undo
	if undo == "" {
		return api.RollbackPlan{}, errdefs.New(errdefs.Conflict, "nothing_to_undo", "session %s has no rollback to undo", l.state().Name).
			WithHint("perdure checkpoints %s lists where it can go", l.state().Name)
	}
	return l.rollbackTo(ctx, string(undo), o.id, false, true)
}

func (l *live) rollbackTo(ctx context.Context, ref string, told id.Event, dryRun, undo bool) (api.RollbackPlan, error) {
	var out api.RollbackPlan
	err := l.operate(ctx, func() error {
		r, _, err := l.target(ctx, ref) // before anything is touched
		if err != nil {
			return err
		}
		defer r.close()
		if out, err = l.plan(ctx, r, dryRun); err != nil || dryRun {
			return err
		}
		release := l.halt()
		defer release()
		done, err := l.rollback(ctx, r, told, undo)
		if err != nil {
			return err
		}
		report := presentReport(done.report)
		out.UndoCheckpointID, out.ResumeReport = string(done.undo), &report
		return nil
	})
	if err == nil && !dryRun {
		l.wakeUp() // closes what was open at the cut
		out.Files = l.filesChanged(ctx, id.Checkpoint(out.UndoCheckpointID), id.Checkpoint(out.CheckpointID))
	} else {
		l.kick()
	}
	return out, err
}

// VerifySession checks a session's log, and every byte of its checkpoints and of the one that a fork stands on, which is another session's.
func (s *Service) VerifySession(ctx context.Context, ref string) (api.VerifyReport, error) {
	row, err := s.cfg.Rows.Session(ctx, ref)
	if err != nil {
		return api.VerifyReport{}, err
	}
	found, err := s.cfg.Rows.Verify(ctx, string(row.ID))
	out := api.VerifyReport{
		SessionID: string(row.ID), Events: uint64(found.Events), HeadHash: found.Head.Hash, Problems: []api.VerifyProblem{},
	}
	if err != nil {
		return out, err
	}
	if !found.OK() {
		subject := string(row.ID)
		if found.BadSeq != 0 {
			subject = fmt.Sprintf("%s event %d", row.ID, found.BadSeq)
		}
		out.Problems = append(out.Problems, api.VerifyProblem{Subject: subject, Code: event.CodeLogCorrupt, Detail: found.Problem})
	}
	rows, err := s.cfg.Rows.Checkpoints(ctx, row.ID)
	if err != nil {
		return out, err
	}
	own := func(c store.Checkpoint) bool { return c.ID == row.Workspace.Base }
	if row.Workspace.Base != "" && !slices.ContainsFunc(rows, own) {
		base, err := s.checkpoint(ctx, row.Workspace.Base)
		if err != nil && !isNotFound(err) { // it may have been deleted since
			return out, err
		}
		if err == nil {
			rows = append(rows, base)
		}
	}
	v := s.checkpoints.Verification()
	for _, c := range rows {
		if c.Deleted || c.State == session.CheckpointFailed {
			continue
		}
		n, err := v.Checkpoint(ctx, c.ID, c.ManifestHash)
		if ctx.Err() != nil {
			return out, context.Cause(ctx)
		}
		out.Checkpoints++
		out.Bytes += n
		if err != nil {
			out.Problems = append(out.Problems, api.VerifyProblem{Subject: string(c.ID), Code: errdefs.CodeOf(err), Detail: err.Error()})
		}
	}
	out.OK = len(out.Problems) == 0
	return out, nil
}
