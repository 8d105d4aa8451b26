package service

import (
	"context"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/session"
)

// plan says what going back to a checkpoint changes. The caller holds the ops token.
func (l *live) plan(ctx context.Context, r *restore) (api.RollbackPlan, error) {
	m := r.manifest
	out := api.RollbackPlan{
		SessionID: string(l.id), CheckpointID: string(m.ID), CutSeq: uint64(m.CutSeq), Messages: []api.Event{}, ProcessesGone: []api.Process{},
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
		procs, err := sb.Files().Processes(ctx)
		if err != nil {
			return out, err
		}
		out.ProcessesGone = list(procs, presentProcess).Data
	}
	return out, nil
}
