package service

import (
	"context"
	"errors"
	"slices"
	"time"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/session"
)

// How long a sandbox, which may hang, may take to list its processes: when that is asked for, and when it is only told.
const (
	processTime = 10 * time.Second
	tellTime    = 2 * time.Second
)

// plan says what going back to a checkpoint changes. Files are looked at only in a dry run: once it is done, filesChanged looks at them.
// The caller holds the ops token.
func (l *live) plan(ctx context.Context, r *restore, dryRun bool) (api.RollbackPlan, error) {
	m := r.manifest
	line, err := l.timeline(ctx)
	if err != nil {
		return api.RollbackPlan{}, err
	}
	out, err := l.planFrom(ctx, line, session.Position{Session: m.SessionID, Seq: m.CutSeq})
	out.CheckpointID, out.DryRun, out.ProcessesBack = string(m.ID), dryRun, r.memory
	out.Stays = append(out.Stays, r.losses()...)
	if err != nil {
		return out, err
	}
	if !dryRun {
		if procs, err := l.processesNow(ctx, tellTime); err == nil { // a sandbox that hangs is all the more to be left
			out.ProcessesGone = procs
		}
		return out, nil
	}
	now := l.workspace.Live()
	if now == nil {
		if row, err := l.svc.cfg.Rows.Checkpoint(ctx, l.state().Workspace.Base); err == nil {
			now = l.svc.layerPaths(row.Layers)
		}
	}
	if out.Files, err = fileDiffs(ctx, now, l.svc.layerPaths(m.Layers)); err != nil {
		return out, err
	}
	out.ProcessesGone, err = l.processesNow(ctx, processTime)
	return out, err
}

// processesNow lists what runs, within a time.
func (l *live) processesNow(ctx context.Context, limit time.Duration) ([]api.Process, error) {
	sb := l.current()
	if sb == nil || l.state().Workspace.State != session.WorkspaceRunning {
		return []api.Process{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	procs, err := sb.Files().Processes(ctx)
	return list(procs, presentProcess).Data, err
}

// filesChanged says what a rollback has done to the files: from what the undo checkpoint keeps to the checkpoint that was gone back to.
func (l *live) filesChanged(ctx context.Context, undo, target id.Checkpoint) []api.FileDiff {
	l.svc.gc.RLock()
	defer l.svc.gc.RUnlock()
	before, err := l.svc.checkpoint(ctx, undo)
	after, aerr := l.svc.checkpoint(ctx, target)
	var files []api.FileDiff
	if err = errors.Join(err, aerr); err == nil {
		files, err = fileDiffs(ctx, l.svc.layerPaths(before.Layers), l.svc.layerPaths(after.Layers))
	}
	if err != nil { // the rollback is done: that nobody can say any more what it changed does not make it fail
		l.svc.cfg.Logger.Warn("cannot say which files a rollback has changed", "session", l.id, "error", err)
		return []api.FileDiff{}
	}
	return files
}

// planFrom says what a session loses whose timeline is cut.
func (l *live) planFrom(ctx context.Context, line session.Timeline, cut session.Position) (api.RollbackPlan, error) {
	out := api.RollbackPlan{
		SessionID: string(l.id), CutSeq: uint64(cut.Seq), Messages: []api.Event{}, Files: []api.FileDiff{}, ProcessesGone: []api.Process{},
		Stays: []string{
			"the whole log, which keeps what leaves the timeline",
			"checkpoints, also later ones",
			"output of commands that ran",
			"what the session did to the world outside its workspace",
		},
	}
	after := line.After(cut)
	out.Events = after.Len()
	for e, err := range after.Events(ctx, l.svc.cfg.Log) {
		if err != nil {
			return out, err
		}
		if e.Type == event.MessageUser || e.Type == event.MessageAgent {
			out.Messages = append(out.Messages, presentEvent(e))
		}
	}
	return out, nil
}

// planDone says what a rollback has changed of which the log tells.
func (l *live) planDone(ctx context.Context, rolledBack event.Event) (api.RollbackPlan, error) {
	d, err := event.DecodeData[event.SessionRolledBackData](rolledBack)
	if err != nil {
		return api.RollbackPlan{}, err
	}
	undo, err := l.svc.cfg.Rows.Checkpoint(ctx, d.UndoCheckpointID)
	if err != nil {
		return api.RollbackPlan{}, err
	}
	before, err := session.TimelineAt(ctx, l.svc.cfg.Log, l.id, undo.CutSeq)
	if err != nil {
		return api.RollbackPlan{}, err
	}
	out, err := l.planFrom(ctx, before, session.Position{Session: d.CutSession, Seq: d.CutSeq})
	if err != nil {
		return out, err
	}
	out.CheckpointID, out.UndoCheckpointID = string(d.CheckpointID), string(d.UndoCheckpointID)
	out.Files = l.filesChanged(ctx, d.UndoCheckpointID, d.CheckpointID)
	next, err := l.svc.cfg.Log.Read(ctx, l.id, rolledBack.Seq, 4) // appended with it
	at := slices.IndexFunc(next, func(e event.Event) bool { return e.Type == event.WorkspaceResumed })
	if err != nil || at < 0 {
		return out, err
	}
	resumed, err := event.DecodeData[event.WorkspaceResumedData](next[at])
	if err != nil {
		return out, err
	}
	report := presentReport(resumed.Report)
	out.ResumeReport, out.ProcessesBack = &report, slices.Contains(resumed.Report.Layers, "memory")
	return out, nil
}
