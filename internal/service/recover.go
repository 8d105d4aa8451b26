package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/sandbox"
	"perdure.dev/perdure/internal/session"
	"perdure.dev/perdure/internal/store"
)

// Recover takes up what an earlier daemon left: sandboxes that run on, operations cut in the middle, turns in progress. It removes
// what belongs to no session. Call it once, before serving.
func (s *Service) Recover(ctx context.Context) error {
	if err := s.cfg.Dirs.EmptyTrash(); err != nil {
		return err
	}
	if err := s.takeBackForks(ctx); err != nil {
		return err
	}
	owned := map[id.Sandbox]bool{}
	needed, unread, err := s.journaled(ctx, owned) // first: what a journal names must outlive a failure to finish it
	if err != nil {
		return err
	}
	known := map[id.Session]bool{}
	var rows []store.Session
	for f := (store.Filter{}); ; f.After = rows[len(rows)-1].ID {
		page, more, err := s.cfg.Rows.Sessions(ctx, f)
		if err != nil {
			return err
		}
		rows = append(rows, page...)
		if !more {
			break
		}
	}
	for _, row := range rows {
		known[row.ID] = true
		if row.Workspace.SandboxID != "" {
			owned[row.Workspace.SandboxID] = true
		}
	}
	swept := make(chan struct{}) // closed when what belongs to nobody has gone
	if err := s.takeUp(ctx, rows, swept); err != nil {
		return err
	}
	if unread > 0 {
		s.cfg.Logger.Warn("nothing is swept: a journal that cannot be read may name what seems to belong to nobody", "journals", unread)
	} else if err := s.removeOrphans(ctx, known, owned, needed); err != nil {
		return err
	}
	close(swept)
	if unread == 0 {
		s.sweepLater()
	}
	for _, row := range rows {
		s.listenAgain(ctx, row.ID, row.Spec.Ports)
	}
	s.goroutine(func(ctx context.Context) { s.idle.Run(ctx, looksAtATime, s.look) })
	s.goroutine(func(ctx context.Context) { s.timed.Run(ctx, looksAtATime, s.saveOnTime) })
	s.goroutine(s.archive)
	return nil
}

// Sessions are taken up by takers at a time. A start waits takeUpTime for them and then goes on: a sandbox may hang, which takes a minute to find out,
// and must not keep the others from their daemon. Whoever asks for a session that is still being taken up waits for that.
const (
	takers     = 16
	takeUpTime = 5 * time.Second
)

// takeUp recovers sessions side by side. Their harnesses start once swept is closed: they wake workspaces and take checkpoints, which would look before
// as if they belonged to nobody.
func (s *Service) takeUp(ctx context.Context, rows []store.Session, swept <-chan struct{}) error {
	slots := make(chan struct{}, takers)
	var all sync.WaitGroup
	for _, row := range rows {
		all.Add(1)
		started := s.goroutine(func(ctx context.Context) {
			slots <- struct{}{} // whoever holds one gives it back: what hangs has a limit
			l, err := s.recoverSession(ctx, row)
			<-slots
			all.Done()
			if err != nil && ctx.Err() == nil {
				// One broken session must not keep the others from their daemon.
				s.cfg.Logger.Error("cannot take up a session", "session", row.ID, "name", row.Name, "error", err)
			}
			if l == nil || err != nil {
				return
			}
			select {
			case <-swept:
				l.kick()
			case <-ctx.Done():
			}
		})
		if !started {
			return errStopping
		}
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }() // ends with the last of them
	limit, cancel := context.WithTimeout(ctx, takeUpTime)
	defer cancel()
	select {
	case <-done:
	case <-limit.Done():
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		s.cfg.Logger.Warn("serving before all sessions are taken up: some sandboxes do not answer yet")
	}
	return nil
}

// journaled notes the sandboxes that journals name as owned, and returns the checkpoints that they name, and how many journals
// cannot be read and may matter.
func (s *Service) journaled(ctx context.Context, owned map[id.Sandbox]bool) (needed map[id.Checkpoint]bool, unread int, err error) {
	needed = map[id.Checkpoint]bool{}
	dirs, err := os.ReadDir(filepath.Join(s.cfg.Dirs.Root, "sessions"))
	if err != nil {
		return nil, 0, err
	}
	for _, e := range dirs {
		l := &live{svc: s, id: id.Session(e.Name())}
		j, err := l.readJournal()
		switch {
		case err != nil && s.stillRuns(ctx, l.id): // then nothing irreversible has happened, and there is nothing to finish
			err = s.setAside(l.journalFile(), err)
			if err != nil {
				return nil, 0, err
			}
		case err != nil:
			s.cfg.Logger.Error("a session is left alone: its journal cannot be read", "session", l.id, "error", err)
			unread++
		case j != nil:
			needed[j.Created.CheckpointID] = true
			owned[j.Sandbox], owned[j.NewSandbox] = true, true
		}
	}
	return needed, unread, nil
}

// stillRuns reports whether the sandbox that a session's log names is alive.
func (s *Service) stillRuns(ctx context.Context, sid id.Session) bool {
	row, err := s.cfg.Rows.Session(ctx, string(sid))
	if err != nil || row.Workspace.SandboxID == "" {
		return false
	}
	drv, err := s.driver(row.Spec.Driver)
	if err != nil {
		return false
	}
	sb, err := drv.Recover(ctx, s.cfg.Dirs.Sandbox(row.Workspace.SandboxID))
	if err != nil {
		return false
	}
	st, err := sb.Status(ctx)
	return err == nil && st.State != sandbox.Dead
}

// heal takes up an operation that failed in its middle, as a restart would: the log says that a sandbox runs, and there is none.
// The caller holds the ops token.
func (l *live) heal(ctx context.Context) error {
	j, err := l.readJournal()
	if err != nil {
		return err
	}
	if j != nil {
		if err := l.recoverJournal(ctx, *j); err != nil {
			return err
		}
		l.sealUnsealed(ctx)
	}
	return l.readopt(ctx)
}

// recoverSession takes up one session, and returns it if its harness may have something to do.
func (s *Service) recoverSession(ctx context.Context, row store.Session) (*live, error) {
	j, err := (&live{svc: s, id: row.ID}).readJournal()
	if err != nil {
		return nil, err
	}
	running := row.Workspace.State == session.WorkspaceRunning || row.Workspace.State == session.WorkspacePaused
	if j == nil && !running && row.Status != session.StatusRunning && !s.unsealed(ctx, row) {
		return nil, nil // nothing to take up, and nothing to keep in memory
	}
	l, err := s.liveByID(ctx, row.ID)
	if err != nil {
		return nil, err
	}
	err = l.operate(ctx, func() error {
		if j != nil {
			if err := l.recoverJournal(ctx, *j); err != nil {
				return fmt.Errorf("finish an interrupted %s: %w", j.Op, err)
			}
		}
		if err := l.readopt(ctx); err != nil {
			return err
		}
		return l.workspace.Sweep()
	})
	if err != nil {
		return nil, err
	}
	l.sealUnsealed(ctx)
	return l, nil
}

// readopt finds the sandbox that the log says is running, or records its loss.
func (l *live) readopt(ctx context.Context) error {
	st := l.state()
	if st.Workspace.State != session.WorkspaceRunning && st.Workspace.State != session.WorkspacePaused || l.current() != nil {
		return nil
	}
	sb, status, err := l.find(ctx, st.Workspace.SandboxID)
	if err != nil {
		return err
	}
	if sb == nil {
		_, err := l.append(ctx, event.Draft{Type: event.WorkspaceLost, Data: event.WorkspaceLostData{
			SandboxID: st.Workspace.SandboxID, Cause: "it was gone when the daemon started: the machine went down, or somebody removed it",
		}})
		return errors.Join(err, l.clear(ctx, st.Workspace.SandboxID, nil))
	}
	if status.State == sandbox.Dead {
		return l.lose(ctx, sb, status.Cause)
	}
	// An operation that died with the daemon may have left it standing still, or the other way round.
	want := st.Workspace.State == session.WorkspacePaused
	switch {
	case status.State == sandbox.Paused && !want:
		err = sb.Unpause(ctx)
	case status.State == sandbox.Running && want:
		err = sb.Pause(ctx)
	}
	if err != nil {
		return err
	}
	l.setSandbox(sb)
	l.mu.Lock()
	l.inherited = true
	l.mu.Unlock()
	l.followOpen(ctx, sb)
	return nil
}

// find returns a sandbox by id, or nil if there is no trace of it.
func (l *live) find(ctx context.Context, sid id.Sandbox) (sandbox.Sandbox, sandbox.Status, error) {
	drv, err := l.svc.driver(l.state().Spec.Driver)
	if err != nil || sid == "" {
		return nil, sandbox.Status{}, err
	}
	sb, err := drv.Recover(ctx, l.svc.cfg.Dirs.Sandbox(sid))
	if isNotFound(err) {
		return nil, sandbox.Status{}, nil
	}
	if err != nil {
		return nil, sandbox.Status{}, err
	}
	status, err := sb.Status(ctx)
	return sb, status, err
}

// clear ends a sandbox, if it is still there, and removes its state directory, which may have outlived it.
func (l *live) clear(ctx context.Context, sid id.Sandbox, sb sandbox.Sandbox) error {
	if sb != nil {
		return l.svc.endSandbox(ctx, sb)
	}
	if sid == "" {
		return nil
	}
	return l.svc.cfg.Dirs.Trash(l.svc.cfg.Dirs.Sandbox(sid))
}

// recoverJournal finishes an operation that the death of the daemon cut, or takes it back.
func (l *live) recoverJournal(ctx context.Context, j journal) error {
	told := false // the events that end the operation are in the log already
	for _, c := range l.state().Checkpoints {
		told = told || c.ID == j.Created.CheckpointID
	}
	if told {
		for _, sid := range []id.Sandbox{j.Sandbox, j.NewSandbox} {
			if sid != "" && sid != l.state().Workspace.SandboxID {
				l.svc.removeSandbox(ctx, sid) // it could not be ended when it was replaced
			}
		}
		return l.dropJournal()
	}
	old, status, err := l.find(ctx, j.Sandbox)
	if err != nil {
		return err
	}
	alive := old != nil && status.State != sandbox.Dead
	if alive { // nothing irreversible has happened
		return l.takeBack(ctx, j)
	}
	if err := l.clear(ctx, j.Sandbox, old); err != nil {
		return err
	}
	if j.Op != opRollback {
		return l.finishSleep(ctx, j)
	}
	next, nstatus, err := l.find(ctx, j.NewSandbox)
	if err != nil {
		return err
	}
	if next != nil && nstatus.State != sandbox.Dead {
		return l.finishRollback(ctx, j, next, event.ResumeReport{
			Layers: []string{"memory", "files", "transcript"}, Reset: []string{"the daemon was restarted in the middle of the rollback"},
		})
	}
	// Both are gone. What was there before the rollback is safe in the undo checkpoint: sleep on that.
	if err := l.clear(ctx, j.NewSandbox, next); err != nil {
		return err
	}
	return errors.Join(l.finishSleep(ctx, j), l.workspace.Discard(j.NewGeneration))
}

// takeBack undoes the beginnings of an operation whose sandbox is there still. readopt then lets it run on.
func (l *live) takeBack(ctx context.Context, j journal) error {
	errs := []error{l.svc.checkpoints.Delete(ctx, j.Created.CheckpointID)}
	if j.Op == opRollback {
		l.svc.removeSandbox(ctx, j.NewSandbox) // it may be booting still, so it is not asked how it does
		if j.NewGeneration.Number != j.Generation.Number {
			errs = append(errs, l.workspace.Discard(j.NewGeneration))
		}
	}
	return errors.Join(append(errs, l.dropJournal())...)
}

// unsealed reports whether a session has checkpoints that are warm only.
func (s *Service) unsealed(ctx context.Context, row store.Session) bool {
	rows, err := s.cfg.Rows.Checkpoints(ctx, row.ID)
	if err != nil {
		return true
	}
	for _, c := range rows {
		if !c.Deleted && c.State == session.CheckpointWarm {
			return true
		}
	}
	return false
}

// sealUnsealed goes on making warm checkpoints durable.
func (l *live) sealUnsealed(ctx context.Context) {
	rows, err := l.svc.cfg.Rows.Checkpoints(ctx, l.id)
	if err != nil {
		return
	}
	for _, c := range rows {
		if c.Deleted || c.State != session.CheckpointWarm {
			continue
		}
		m, err := l.svc.checkpoints.Read(c.ID, c.ManifestHash)
		if err != nil && errdefs.KindOf(err) != errdefs.Corrupt {
			l.svc.cfg.Logger.Warn("cannot read a checkpoint that is not durable yet", "session", l.id, "checkpoint", c.ID, "error", err) // the next start tries again
			continue
		}
		if err != nil {
			_, err = l.append(ctx, event.Draft{Type: event.CheckpointFailed, Data: event.CheckpointFailedData{
				CheckpointID: c.ID, Code: errdefs.CodeOf(err), Message: err.Error(),
			}})
			if err != nil {
				l.svc.cfg.Logger.Error("cannot record a lost checkpoint", "session", l.id, "checkpoint", c.ID, "error", err)
			}
			continue
		}
		l.sealLater(m)
	}
}

// removeOrphans deletes what belongs to no session: sandboxes, session directories, checkpoints without a row or a manifest, memory images.
func (s *Service) removeOrphans(ctx context.Context, known map[id.Session]bool, owned map[id.Sandbox]bool, needed map[id.Checkpoint]bool) error {
	run, err := os.ReadDir(filepath.Join(s.cfg.Dirs.Root, "run"))
	if err != nil {
		return err
	}
	for _, e := range run {
		if sid := id.Sandbox(e.Name()); !owned[sid] {
			s.removeSandbox(ctx, sid)
		}
	}
	sessions, err := os.ReadDir(filepath.Join(s.cfg.Dirs.Root, "sessions"))
	if err != nil {
		return err
	}
	for _, e := range sessions {
		sid := id.Session(e.Name())
		if known[sid] {
			continue
		}
		buried, err := s.exists(ctx)(sid)
		if err != nil {
			s.cfg.Logger.Warn("what is left of a session stays: its log cannot be read", "session", sid, "error", err)
			continue
		}
		if buried {
			err = s.buryFiles(sid)
		} else {
			err = s.cfg.Dirs.Trash(s.cfg.Dirs.Session(sid))
		}
		if err != nil {
			return err
		}
	}
	complete, broken, err := s.checkpoints.List()
	if err != nil {
		return err
	}
	for _, c := range complete {
		if _, err := s.checkpoint(ctx, c); isNotFound(err) {
			broken = append(broken, c)
		}
	}
	for _, c := range broken {
		if needed[c] {
			continue
		}
		if row, err := s.checkpoint(ctx, c); err == nil && row.State != session.CheckpointFailed {
			continue // damaged, but somebody's: verify and restore say so
		}
		if err := s.checkpoints.Delete(ctx, c); err != nil {
			return err
		}
	}
	return s.checkpoints.SweepLineages(ctx, s.exists(ctx))
}

// removeSandbox ends a sandbox of unknown driver that nobody owns.
func (s *Service) removeSandbox(ctx context.Context, sid id.Sandbox) {
	dir := s.cfg.Dirs.Sandbox(sid)
	for name, drv := range s.cfg.Drivers {
		sb, err := drv.Recover(ctx, dir)
		if err != nil {
			continue
		}
		if err := sb.Destroy(ctx); err != nil {
			s.cfg.Logger.Error("cannot end a sandbox that no session owns", "sandbox", sid, "driver", name, "error", err)
			return
		}
		break
	}
	if err := s.cfg.Dirs.Trash(dir); err != nil {
		s.cfg.Logger.Error("cannot remove what is left of a sandbox", "sandbox", sid, "error", err)
	}
}
