package service

import (
	"context"
	"errors"

	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/sandbox"
	"perdure.dev/perdure/internal/session"
)

// rolledBack is what a rollback did.
type rolledBack struct {
	undo   id.Checkpoint
	report event.ResumeReport
}

// rollback brings the session back to a checkpoint that has been checked. told is the id of the event that tells of it, "" for any. The harness is halted and the caller holds the ops token.
func (l *live) rollback(ctx context.Context, r *restore, told id.Event, undo bool) (rolledBack, error) {
	st := l.state()
	switch st.Workspace.State {
	case session.WorkspaceRunning, session.WorkspacePaused:
		return l.rollbackLive(ctx, st, r, told, undo)
	}
	return l.rollbackAsleep(ctx, r, told, undo)
}

// rollbackLive restores beside the running sandbox, and switches.
func (l *live) rollbackLive(ctx context.Context, st session.State, r *restore, told id.Event, undo bool) (rolledBack, error) {
	l.svc.gc.RLock()
	defer l.svc.gc.RUnlock()
	old := l.current()
	gen, ok := l.workspace.Current()
	if old == nil || !ok {
		return rolledBack{}, wrongState(st, "roll back", "running")
	}
	d, err := l.begin(ctx, st, cutting{kind: event.KindUndo, message: "before rollback to " + string(r.manifest.ID)})
	if err != nil {
		return rolledBack{}, err
	}
	warm, err := old.Checkpoint(ctx, sandbox.CheckpointRequest{
		Dir: d.MemoryDir(), LeavePaused: true, Cut: func(ctx context.Context) error { return l.cut(ctx, d) },
	})
	if err != nil {
		return rolledBack{}, errors.Join(err, d.Drop())
	}
	l.svc.at("memory.saved")
	d.Manifest.PauseMS = milliseconds(warm.Pause())
	d.Manifest.Environment.Took(warm.Image())
	as := id.NewLayer()
	d.Manifest.Layers = append(append([]id.Layer{}, gen.Layers...), as)
	j := journal{Op: opRollback, Generation: gen, Layer: as, Sandbox: old.ID(), Told: told}
	back := func(err error) (rolledBack, error) { // the old sandbox stands there untouched
		errs := []error{err, l.dropJournal(), d.Drop()}
		if j.NewGeneration.Number != gen.Number {
			errs = append(errs, l.workspace.Discard(j.NewGeneration))
		}
		if st.Workspace.State == session.WorkspaceRunning {
			errs = append(errs, old.Unpause(context.WithoutCancel(ctx)))
		}
		return rolledBack{}, errors.Join(errs...)
	}
	j.NewGeneration = gen
	if d.Manifest.FileBytes, err = l.upperBytes(ctx, gen); err != nil {
		return back(err)
	}
	hash, err := d.Commit(ctx, r.caps.Memory)
	if err != nil {
		return back(err)
	}
	j.Created = d.Manifest.Created(hash)
	j.RolledBack = &event.SessionRolledBackData{
		CheckpointID: r.manifest.ID, CutSession: r.manifest.SessionID, CutSeq: r.manifest.CutSeq, UndoCheckpointID: d.Manifest.ID, Undo: undo,
	}
	next, err := l.workspace.Begin(ctx, r.manifest.Layers, r.caps.FlatFiles)
	if err != nil {
		return back(err)
	}
	j.NewGeneration = next
	spec, err := l.svc.sandboxSpec(identity{id: st.ID, name: st.Name, spec: st.Spec}, l.workspace.Root(next), r.caps)
	if err != nil {
		return back(errors.Join(err, l.svc.cfg.Dirs.Trash(spec.StateDir)))
	}
	j.NewSandbox = spec.ID
	if err := l.writeJournal(j); err != nil {
		return back(errors.Join(err, l.svc.cfg.Dirs.Trash(spec.StateDir)))
	}
	sb, report, err := r.replace(ctx, old, spec)
	if err != nil {
		return back(errors.Join(err, l.svc.cfg.Dirs.Trash(spec.StateDir)))
	}
	ctx = context.WithoutCancel(ctx) // from here on it goes to its end
	l.setSandbox(nil)                // the old one is gone: should the rest fail, the next operation finishes it, see heal
	if err := l.finishRollback(ctx, j, sb, report); err != nil {
		return rolledBack{}, err
	}
	l.sealLater(d.Manifest)
	l.retain(ctx)
	return rolledBack{undo: d.Manifest.ID, report: report}, nil
}

// finishRollback does what follows the switch. It may be repeated after a crash. sb is nil when the new sandbox did not survive the crash.
func (l *live) finishRollback(ctx context.Context, j journal, sb sandbox.Sandbox, report event.ResumeReport) error {
	if err := l.workspace.Switch(j.NewGeneration); err != nil {
		return err
	}
	if _, err := l.workspace.Seal(j.Generation, j.Layer); err != nil {
		return err
	}
	drafts := []event.Draft{
		{Type: event.CheckpointCreated, Data: j.Created},
		{ID: j.Told, Type: event.SessionRolledBack, Data: *j.RolledBack},
	}
	_, err := l.append(ctx, append(drafts, resumed(event.WorkspaceResumedData{
		SandboxID: j.NewSandbox, CheckpointID: j.RolledBack.CheckpointID, Report: report,
	})...)...)
	if err != nil {
		return err
	}
	l.setSandbox(sb)
	if sb != nil {
		l.followOpen(ctx, sb)
	}
	return errors.Join(l.dropJournal(), l.workspace.Sweep())
}

// rollbackAsleep moves a session whose workspace has no sandbox, and wakes it.
func (l *live) rollbackAsleep(ctx context.Context, r *restore, told id.Event, undo bool) (rolledBack, error) {
	created, err := l.take(ctx, cutting{kind: event.KindUndo, message: "before rollback to " + string(r.manifest.ID)})
	if err != nil {
		return rolledBack{}, err
	}
	report, err := l.moveTo(ctx, r, told, undo, created.CheckpointID)
	return rolledBack{undo: created.CheckpointID, report: report}, err
}

// moveTo wakes a session without a sandbox at another checkpoint. undoID is what keeps what was there before, "" if nothing does.
func (l *live) moveTo(ctx context.Context, r *restore, told id.Event, undo bool, undoID id.Checkpoint) (event.ResumeReport, error) {
	l.svc.gc.RLock()
	defer l.svc.gc.RUnlock()
	return l.wakeOn(ctx, r, r.manifest.ID, event.Draft{ID: told, Type: event.SessionRolledBack, Data: event.SessionRolledBackData{
		CheckpointID: r.manifest.ID, CutSession: r.manifest.SessionID, CutSeq: r.manifest.CutSeq, UndoCheckpointID: undoID, Undo: undo,
	}})
}
