package service

import (
	"context"
	"fmt"
	"os"
	"slices"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/checkpoint"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/sandbox"
	"perdure.dev/perdure/internal/session"
	"perdure.dev/perdure/internal/store"
)

// What "perdure recover" does. Resume never leaves anything behind by itself that is damaged: this is the verb by which somebody asks for it.
//
// It goes to the newest checkpoint of which every byte that a restore needs verifies. If there is none, to the newest files that do, and if there are
// none either, to the transcript, over an empty workspace. Newest means latest in the log: clocks go backwards.

// rescue is where a session is to go.
type rescue struct {
	r       *restore // nil: the files that a dead sandbox left, or an empty workspace
	present bool     // the former
	stay    bool     // the timeline stays
	skipped []api.SkippedCheckpoint
}

func (g rescue) close() {
	if g.r != nil {
		g.r.close()
	}
}

// RecoverSession brings a session that cannot be resumed to the newest state that verifies, or says what that would be.
func (s *Service) RecoverSession(ctx context.Context, ref string, req api.RecoverSession) (api.RecoverReport, error) {
	l, err := s.live(ctx, ref)
	if err != nil {
		return api.RecoverReport{}, err
	}
	var out api.RecoverReport
	err = l.operate(ctx, func() error {
		if err := l.unstick(ctx, req.DryRun); err != nil {
			return err
		}
		if l.current() != nil { // its journal was all that was wrong
			out = api.RecoverReport{
				SessionID: string(l.id), Layers: []string{event.LayerMemory, event.LayerFiles, event.LayerTranscript}, Skipped: []api.SkippedCheckpoint{},
				Messages: []api.Event{}, Lost: []string{"what the operation was to do whose journal is damaged; the journal is set aside"},
			}
			return nil
		}
		release := l.halt()
		defer release()
		out, err = l.rescue(ctx, req)
		return err
	})
	if err == nil && !req.DryRun {
		l.wakeUp() // closes what was open at the cut
	}
	return out, err
}

// unstick refuses a session that is well, and takes up one of which the log says that its sandbox runs, and nobody can find out more: an operation was cut,
// and its journal is damaged. The journal is set aside then.
func (l *live) unstick(ctx context.Context, dryRun bool) error {
	st := l.state()
	switch st.Workspace.State {
	case session.WorkspaceRunning, session.WorkspacePaused:
	case session.WorkspaceNone:
		return errdefs.New(errdefs.Conflict, "nothing_to_recover", "the workspace of session %s has never been started", st.Name).
			WithHint("perdure resume %s starts it", st.Name)
	default:
		return nil
	}
	if l.current() != nil {
		return errdefs.New(errdefs.Conflict, "nothing_to_recover", "session %s is %s", st.Name, st.Workspace.State).
			WithHint("to go back: perdure rollback %s CKPT; if it hangs: perdure stop %s, then perdure resume %s", st.Name, st.Name, st.Name)
	}
	_, err := l.readJournal()
	if errdefs.KindOf(err) != errdefs.Corrupt || dryRun {
		return err
	}
	if err := l.svc.setAside(l.journalFile(), err); err != nil {
		return err
	}
	return l.readopt(ctx)
}

// rescue finds where to go and, unless it is a dry run, goes there. The harness is halted and the caller holds the ops token.
func (l *live) rescue(ctx context.Context, req api.RecoverSession) (api.RecoverReport, error) {
	st := l.state()
	out := api.RecoverReport{SessionID: string(l.id), DryRun: req.DryRun, Messages: []api.Event{}, Lost: []string{}}
	g, err := l.findRescue(ctx, st, req.From)
	if err != nil {
		return out, err
	}
	defer g.close()
	out.Skipped = append([]api.SkippedCheckpoint{}, g.skipped...)
	out.Layers, out.Lost = g.outlook()
	if g.r != nil {
		out.CheckpointID = string(g.r.manifest.ID)
	}
	if g.r != nil && !g.stay {
		out.CutSeq = uint64(g.r.manifest.CutSeq)
		line, err := l.timeline(ctx)
		if err != nil {
			return out, err
		}
		plan, err := l.planFrom(ctx, line, session.Position{Session: g.r.manifest.SessionID, Seq: g.r.manifest.CutSeq})
		if err != nil {
			return out, err
		}
		out.Events, out.Messages = plan.Events, plan.Messages
	}
	if req.DryRun {
		return out, nil
	}
	undo, err := l.keepPresent(ctx, st, g, &out)
	if err != nil {
		return out, err
	}
	report, err := l.goTo(ctx, g, undo)
	if err != nil {
		return out, err
	}
	out.UndoCheckpointID, out.Layers = string(undo), report.Layers
	shown := presentReport(report)
	out.ResumeReport = &shown
	return out, nil
}

// findRescue looks for the newest state that verifies. from names the only checkpoint to consider, "" all.
func (l *live) findRescue(ctx context.Context, st session.State, from string) (rescue, error) {
	var g rescue
	rows, err := l.candidates(ctx, st, from)
	if err != nil {
		return g, err
	}
	v := l.svc.checkpoints.Verification()
	for _, row := range rows {
		err := l.verifies(ctx, v, row)
		if err == nil {
			g.r, err = l.svc.prepare(ctx, row.ID, row.ManifestHash, st.Spec.Driver)
		}
		if err == nil {
			g.stay = l.sleepsOn(st, row.ID)
			return g, nil
		}
		if ctx.Err() != nil || errdefs.KindOf(err) == errdefs.Unavailable {
			return g, err // nothing is wrong with the checkpoint
		}
		g.skipped = append(g.skipped, api.SkippedCheckpoint{
			CheckpointID: string(row.ID), Message: row.Message, CreatedAt: row.CreatedAt, Code: errdefs.CodeOf(err), Detail: err.Error(),
		})
	}
	drv, caps, err := l.svc.usable(ctx, st.Spec.Driver)
	if err != nil {
		return g, err
	}
	if gen, ok := l.workspace.Current(); ok && from == "" && v.Files(ctx, st.Workspace.Base, gen.Layers) == nil {
		g.present = true
		return g, nil
	}
	for i, row := range rows {
		layers := row.Layers
		m, err := l.svc.checkpoints.Read(row.ID, row.ManifestHash)
		if err != nil { // the log knows what it stood on
			m = checkpoint.Manifest{ID: row.ID, SessionID: row.SessionID, CutSeq: row.CutSeq, Layers: layers, Environment: environment(st.Spec), CreatedAt: row.CreatedAt}
		}
		if v.Files(ctx, row.ID, m.Layers) != nil {
			continue
		}
		g.r = &restore{svc: l.svc, driver: drv, caps: caps, manifest: m, begun: l.svc.cfg.Clock.Now(), release: l.svc.use(row.ID)}
		if row.State == session.CheckpointFailed {
			g.r.doubts = append(g.r.doubts, "certainty about its files: "+row.FailMessage)
		}
		if row.Memory {
			g.r.devolved = append(g.r.devolved, m.Devolved(event.LayerMemory, event.LostToDamage, g.skipped[i].Detail))
		}
		g.stay = l.sleepsOn(st, row.ID)
		return g, nil
	}
	if ctx.Err() != nil {
		return g, context.Cause(ctx)
	}
	if from != "" {
		return g, errdefs.New(errdefs.Corrupt, "checkpoint_corrupt", "of checkpoint %s not even the files verify: %s", rows[0].ID, g.skipped[0].Detail).
			WithHint("perdure recover %s, without --from, goes to the newest state that verifies", st.Name)
	}
	return g, nil
}

// candidates are the checkpoints that a session may go to, latest in the log first.
func (l *live) candidates(ctx context.Context, st session.State, from string) ([]store.Checkpoint, error) {
	if from != "" {
		row, err := l.svc.cfg.Rows.CheckpointByRef(ctx, l.id, from)
		if err == nil && row.Deleted {
			err = errdefs.New(errdefs.NotFound, store.CodeCheckpointNotFound, "checkpoint %s has been deleted", row.ID)
		}
		return []store.Checkpoint{row}, err
	}
	var ids []id.Checkpoint
	for _, c := range slices.Backward(st.Checkpoints) {
		ids = append(ids, c.ID)
	}
	if st.Fork != nil {
		ids = append(ids, st.Fork.CheckpointID)
	}
	var rows []store.Checkpoint
	for _, c := range ids {
		row, err := l.svc.checkpoint(ctx, c)
		if isNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func (l *live) verifies(ctx context.Context, v *checkpoint.Verification, row store.Checkpoint) error {
	if row.State == session.CheckpointFailed {
		return errdefs.New(errdefs.Corrupt, row.FailCode, "%s", row.FailMessage)
	}
	_, err := v.Usable(ctx, row.ID, row.ManifestHash)
	return err
}

// sleepsOn says whether a session was put to sleep on a checkpoint, so that nothing has happened since.
func (l *live) sleepsOn(st session.State, c id.Checkpoint) bool {
	_, live := l.workspace.Current()
	asleep := st.Workspace.State == session.WorkspaceSuspended || st.Workspace.State == session.WorkspaceStopped
	return asleep && !live && st.Workspace.Base == c
}

// outlook says what comes back and what does not.
func (g rescue) outlook() (layers, lost []string) {
	layers, lost = []string{event.LayerTranscript}, []string{}
	switch {
	case g.r != nil:
		layers = []string{event.LayerFiles, event.LayerTranscript}
		if g.r.memory {
			layers = []string{event.LayerMemory, event.LayerFiles, event.LayerTranscript}
		}
		lost = append(lost, g.r.losses()...)
		if !g.stay {
			lost = append(lost, fmt.Sprintf("what files and processes became after %s; the log keeps what happened", g.r.manifest.ID))
		}
	case g.present:
		layers = []string{event.LayerFiles, event.LayerTranscript}
		lost = append(lost, "all processes and their memory; the files are as they were")
	default:
		lost = append(lost, "all processes and their memory", "all files: no checkpoint's verify. The workspace starts anew from its image")
	}
	return layers, lost
}

// keepPresent makes a checkpoint of what is left of the present, if the rescue leaves it and anything can be kept.
func (l *live) keepPresent(ctx context.Context, st session.State, g rescue, out *api.RecoverReport) (id.Checkpoint, error) {
	if g.stay || g.present {
		return "", nil
	}
	if _, live := l.workspace.Current(); !live {
		base, err := l.svc.checkpoint(ctx, st.Workspace.Base)
		for _, lyr := range base.Layers {
			if err == nil {
				_, err = os.Stat(l.svc.cfg.Dirs.LayerFS(lyr))
			}
		}
		if err != nil {
			out.Lost = append(out.Lost, "a way back to the present: "+err.Error())
			return "", nil
		}
	}
	message := "before recovery"
	if g.r != nil {
		message += " to " + string(g.r.manifest.ID)
	}
	created, err := l.take(ctx, cutting{kind: event.KindUndo, message: message})
	if errdefs.KindOf(err) == errdefs.Corrupt {
		out.Lost = append(out.Lost, "a way back to the present: "+err.Error())
		return "", nil
	}
	return created.CheckpointID, err
}

// goTo wakes the session where it is to go.
func (l *live) goTo(ctx context.Context, g rescue, undo id.Checkpoint) (event.ResumeReport, error) {
	switch {
	case g.present:
		return l.resumeLost(ctx)
	case g.r == nil:
		return l.wakeEmpty(ctx, g)
	case g.stay:
		l.svc.gc.RLock()
		defer l.svc.gc.RUnlock()
		return l.wakeOn(ctx, g.r, g.r.manifest.ID)
	}
	return l.moveTo(ctx, g.r, "", false, undo)
}

// wakeEmpty boots a workspace that has nothing but its image, for a session of which only the transcript is left.
func (l *live) wakeEmpty(ctx context.Context, g rescue) (event.ResumeReport, error) {
	begun := l.svc.cfg.Clock.Now()
	drv, caps, err := l.svc.usable(ctx, l.state().Spec.Driver)
	if err != nil {
		return event.ResumeReport{}, err
	}
	reason := "no checkpoint is left"
	if len(g.skipped) > 0 {
		reason = g.skipped[0].Detail
	}
	report := event.ResumeReport{
		Layers:   []string{event.LayerTranscript},
		Devolved: []event.WorkspaceDevolvedData{{Layer: event.LayerFiles, Code: event.LostToDamage, Reason: reason}},
		Lost:     []string{"all files and processes: " + reason},
	}
	l.svc.gc.RLock()
	defer l.svc.gc.RUnlock()
	gen, sb, err := l.bootOn(ctx, nil, caps, func(spec sandbox.Spec) (sandbox.Sandbox, error) { return drv.Start(ctx, spec) })
	if err != nil {
		return report, err
	}
	report.DurationMS = l.svc.cfg.Clock.Now().Sub(begun).Milliseconds()
	return report, l.adopt(ctx, gen, sb, resumed(event.WorkspaceResumedData{SandboxID: sb.ID(), Report: report})...)
}
