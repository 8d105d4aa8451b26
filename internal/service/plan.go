package service

import (
	"context"
	"time"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/session"
)

// processTime is how long a sandbox may take to list its processes.
const processTime = 10 * time.Second

// plan says what going back to a checkpoint changes. Files and processes are looked at only in a dry run: it takes its time, and asks a
// sandbox that may hang. The caller holds the ops token.
func (l *live) plan(ctx context.Context, r *restore, dryRun bool) (api.RollbackPlan, error) {
	m := r.manifest
	out := api.RollbackPlan{
		SessionID: string(l.id), CheckpointID: string(m.ID), CutSeq: uint64(m.CutSeq), DryRun: dryRun, Messages: []api.Event{},
		Files: []api.FileDiff{}, ProcessesGone: []api.Process{},
		ProcessesBack: r.memory,
		Stays: []string{
			"the whole log, which keeps what leaves the timeline",
			"checkpoints, also later ones",
			"output of commands that ran",
			"what the session did to the world outside its workspace",
		},
	}
	out.Stays = append(out.Stays, r.devolved...)
	line, err := l.timeline(ctx)
	if err != nil {
		return out, err
	}
	after := line.After(session.Position{Session: m.SessionID, Seq: m.CutSeq})
	out.Events = after.Len()
	for e, err := range after.Events(ctx, l.svc.cfg.Log) {
		if err != nil {
			return out, err
		}
		if e.Type == event.MessageUser || e.Type == event.MessageAgent {
			out.Messages = append(out.Messages, presentEvent(e))
		}
	}
	if !dryRun {
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
	if sb := l.current(); sb != nil && l.state().Workspace.State == session.WorkspaceRunning {
		ctx, cancel := context.WithTimeout(ctx, processTime)
		defer cancel()
		procs, err := sb.Files().Processes(ctx)
		if err != nil {
			return out, err
		}
		out.ProcessesGone = list(procs, presentProcess).Data
	}
	return out, nil
}
