package service

import (
	"context"
	"errors"
	"os"
	"time"

	"perdure.dev/perdure/internal/checkpoint"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/idle"
	"perdure.dev/perdure/internal/layer"
	"perdure.dev/perdure/internal/sandbox"
	"perdure.dev/perdure/internal/session"
	"perdure.dev/perdure/internal/workspace"
)

// running returns the sandbox of a running workspace, waking it first where needed.
func (l *live) running(ctx context.Context) (sandbox.Sandbox, error) {
	l.touch()
	if sb := l.ready(); sb != nil && l.state().Workspace.State == session.WorkspaceRunning {
		return sb, nil
	}
	var sb sandbox.Sandbox
	err := l.operate(ctx, func() error {
		if err := l.wake(ctx); err != nil {
			return err
		}
		sb = l.current()
		return nil
	})
	return sb, err
}

// wake brings the workspace to running, from whatever state. The caller holds the ops token.
func (l *live) wake(ctx context.Context) error {
	st := l.state()
	if st.Workspace.State != session.WorkspaceRunning {
		if err := l.expired(ctx); err != nil {
			return err
		}
	}
	switch st.Workspace.State {
	case session.WorkspaceRunning:
		if l.current() != nil {
			return nil
		}
		return errdefs.New(errdefs.Unavailable, "sandbox_unreachable", "the sandbox of session %s is not there yet", st.Name).
			WithHint("try again in a moment; perdure show says what became of it")
	case session.WorkspacePaused:
		if sb := l.current(); sb != nil {
			if err := sb.Unpause(ctx); err != nil {
				return err
			}
			l.svc.at("sandbox.unpaused")
			_, err := l.append(ctx, event.Draft{Type: event.WorkspaceUnpaused, Data: event.WorkspacePausedData{SandboxID: sb.ID()}})
			l.hot()
			return err
		}
		return errdefs.New(errdefs.Unavailable, "sandbox_unreachable", "the sandbox of session %s is not there yet", st.Name)
	case session.WorkspaceNone:
		return l.startFresh(ctx)
	case session.WorkspaceLost:
		_, err := l.resumeLost(ctx)
		return err
	default:
		return l.resumeFrom(ctx, st.Workspace.Base)
	}
}

// bootOn begins a generation over layers and has a sandbox booted on it. When that fails, nothing is left of either.
func (l *live) bootOn(ctx context.Context, layers []id.Layer, caps sandbox.Capabilities, boot func(sandbox.Spec) (sandbox.Sandbox, error)) (workspace.Generation, sandbox.Sandbox, error) {
	st := l.state()
	return l.svc.bootOn(ctx, l.workspace, identity{id: st.ID, name: st.Name, spec: st.Spec}, layers, caps, boot)
}

// identity is whose sandbox is made.
type identity struct {
	id   id.Session
	name string
	spec event.Spec
}

func (s *Service) bootOn(ctx context.Context, w *workspace.Workspace, who identity, layers []id.Layer, caps sandbox.Capabilities, boot func(sandbox.Spec) (sandbox.Sandbox, error)) (workspace.Generation, sandbox.Sandbox, error) {
	g, err := w.Begin(ctx, layers, caps.FlatFiles)
	if err != nil {
		return g, nil, err
	}
	spec, err := s.sandboxSpec(who, w.Root(g), caps)
	if err == nil {
		var sb sandbox.Sandbox
		if sb, err = boot(spec); err == nil {
			return g, sb, nil
		}
	}
	return g, nil, errors.Join(err, w.Discard(g), s.cfg.Dirs.Trash(spec.StateDir))
}

// sandboxSpec describes a new sandbox, and makes its directories. Its StateDir is set also when it fails.
func (s *Service) sandboxSpec(who identity, root sandbox.Root, caps sandbox.Capabilities) (sandbox.Spec, error) {
	spec := who.spec
	out := sandbox.Spec{
		ID: id.NewSandbox(), Session: who.id, SpoolDir: s.cfg.Dirs.Spool(who.id), Root: root, Hostname: hostname(who.name),
		Env:     baseEnv(),
		Limits:  sandbox.Limits{MemoryBytes: spec.Limits.MemoryBytes, Processes: spec.Limits.Processes, OpenFiles: spec.Limits.OpenFiles},
		Network: sandbox.NetworkNone,
	}
	if caps.Network {
		out.Network = sandbox.NetworkGateway
	}
	out.StateDir = s.cfg.Dirs.Sandbox(out.ID)
	if err := s.onImage(&out); err != nil {
		return out, err
	}
	out.Env = append(out.Env, spec.Env...)
	return out, errors.Join(os.MkdirAll(out.StateDir, 0o700), os.MkdirAll(out.SpoolDir, 0o700))
}

// baseEnv is the environment that every command starts with, before the session's own.
func baseEnv() []string {
	return []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "PYTHONUNBUFFERED=1"}
}

// hostname makes a host name of a session's name: at most 63 characters, no dots.
func hostname(name string) string {
	out := make([]byte, 0, 63)
	for _, c := range []byte(name) {
		if len(out) == cap(out) {
			break
		}
		if c == '.' || c == '_' {
			c = '-'
		}
		out = append(out, c)
	}
	return string(out)
}

// startFresh boots a workspace for the first time.
func (l *live) startFresh(ctx context.Context) error {
	st := l.state()
	drv, caps, err := l.svc.usable(ctx, st.Spec.Driver)
	if err != nil {
		return err
	}
	g, sb, err := l.bootOn(ctx, nil, caps, func(spec sandbox.Spec) (sandbox.Sandbox, error) { return drv.Start(ctx, spec) })
	if err != nil {
		return err
	}
	return l.adopt(ctx, g, sb, event.Draft{Type: event.WorkspaceStarted, Data: event.WorkspaceStartedData{
		SandboxID: sb.ID(), Driver: drv.Name(), Missing: missing(ctx, sb, caps),
	}})
}

// adopt makes a sandbox that answers the one of the session, and appends what tells of it. If that fails the sandbox goes again.
func (l *live) adopt(ctx context.Context, g workspace.Generation, sb sandbox.Sandbox, drafts ...event.Draft) error {
	l.svc.at("sandbox.adopt")
	before, had := l.workspace.Current()
	err := l.workspace.Switch(g)
	if err == nil {
		_, err = l.append(ctx, drafts...)
	}
	if err != nil {
		undo := context.WithoutCancel(ctx)
		errs := []error{err, l.svc.endSandbox(undo, sb)}
		if had {
			errs = append(errs, l.workspace.Switch(before))
		} else {
			errs = append(errs, l.workspace.Close())
		}
		return errors.Join(append(errs, l.workspace.Discard(g))...)
	}
	l.setSandbox(sb)
	l.followOpen(context.WithoutCancel(ctx), sb)
	return nil
}

func missing(ctx context.Context, sb sandbox.Sandbox, caps sandbox.Capabilities) []string {
	if st, err := sb.Status(ctx); err == nil && st.Missing != nil {
		return st.Missing
	}
	return caps.Missing
}

// resumeFrom restores the workspace from a checkpoint of this session. The caller holds the ops token.
func (l *live) resumeFrom(ctx context.Context, c id.Checkpoint) error {
	l.svc.gc.RLock()
	defer l.svc.gc.RUnlock()
	row, err := l.svc.cfg.Rows.Checkpoint(ctx, c)
	if err != nil {
		return err
	}
	r, err := l.svc.prepare(ctx, row.ID, row.ManifestHash, l.state().Spec.Driver)
	if err != nil {
		return err
	}
	defer r.close()
	_, err = l.wakeOn(ctx, r, c)
	return err
}

// resumeLost boots a workspace whose sandbox died: the files are as they were at that moment, everything in RAM is gone.
func (l *live) resumeLost(ctx context.Context) (event.ResumeReport, error) {
	st := l.state()
	begun := l.svc.cfg.Clock.Now()
	drv, caps, err := l.svc.usable(ctx, st.Spec.Driver)
	if err != nil {
		return event.ResumeReport{}, err
	}
	l.svc.gc.RLock()
	defer l.svc.gc.RUnlock()
	cut, err := l.sealLost(ctx)
	if err != nil {
		return event.ResumeReport{}, err
	}
	g, sb, err := l.bootOn(ctx, cut.Layers, caps, func(spec sandbox.Spec) (sandbox.Sandbox, error) { return drv.Start(ctx, spec) })
	if err != nil {
		return event.ResumeReport{}, err
	}
	report := event.ResumeReport{
		Layers: []string{"files", "transcript"},
		Lost:   []string{"all processes and their memory, with the sandbox that died"},
	}
	if c := lastWithMemory(ctx, l); c != "" {
		report.Lost = append(report.Lost, "to have memory and files of one moment instead: perdure rollback "+st.Name+" "+string(c))
	}
	report.DurationMS = l.svc.cfg.Clock.Now().Sub(begun).Milliseconds()
	return report, l.adopt(ctx, g, sb, event.Draft{Type: event.WorkspaceResumed, Data: event.WorkspaceResumedData{
		SandboxID: sb.ID(), CheckpointID: cut.ID, Report: report,
	}})
}

func lastWithMemory(ctx context.Context, l *live) id.Checkpoint {
	rows, err := l.svc.cfg.Rows.Checkpoints(ctx, l.id)
	if err != nil {
		return ""
	}
	var last id.Checkpoint
	for _, r := range rows {
		if r.Memory && !r.Deleted && r.State != session.CheckpointFailed {
			last = r.ID
		}
	}
	return last
}

// sealLost turns the files that a dead sandbox left into a checkpoint without memory.
func (l *live) sealLost(ctx context.Context) (checkpoint.Manifest, error) {
	st := l.state()
	g, ok := l.workspace.Current()
	if !ok { // sealed by an attempt that got no further
		row, err := l.svc.cfg.Rows.Checkpoint(ctx, st.Workspace.Base)
		if err != nil {
			return checkpoint.Manifest{}, err
		}
		return l.svc.checkpoints.Read(row.ID, row.ManifestHash)
	}
	return l.putAway(ctx, sleep{kind: event.KindStop, message: "files of the lost sandbox", gen: g})
}

// pause keeps RAM and stops the processor. why is why the runtime does so by itself; empty: somebody asked for it.
func (l *live) pause(ctx context.Context, why string) error {
	st := l.state()
	switch st.Workspace.State {
	case session.WorkspacePaused:
		return nil
	case session.WorkspaceRunning:
	default:
		return wrongState(st, "pause", "running")
	}
	sb := l.current()
	if sb == nil {
		return wrongState(st, "pause", "running")
	}
	release := l.sleepHarness(why)
	defer release()
	l.freeze(ctx, sb)
	if err := sb.Pause(ctx); err != nil {
		l.wakeIfAwake(st)
		return err
	}
	l.svc.at("sandbox.paused")
	_, err := l.append(ctx, event.Draft{Type: event.WorkspacePaused, Data: event.WorkspacePausedData{SandboxID: sb.ID(), Reason: why}})
	if err != nil {
		l.wakeIfAwake(st)
		return errors.Join(err, sb.Unpause(context.WithoutCancel(ctx)))
	}
	l.mu.Lock()
	l.cpu = idle.Load{} // what is read after the pause does not go with what was read before
	l.mu.Unlock()
	return nil
}

// sleepHarness halts the harness and keeps it asleep until a message or a resume. Where nobody has asked for that (see pause), it has
// nothing to do and need not be kept.
func (l *live) sleepHarness(why string) (release func()) {
	release = l.halt()
	l.mu.Lock()
	l.asleep = l.asleep || why == ""
	l.mu.Unlock()
	return release
}

func wrongState(st session.State, verb, want string) error {
	return errdefs.New(errdefs.Conflict, "wrong_state", "cannot %s session %s: its workspace is %s, not %s", verb, st.Name, st.Workspace.State, want).
		WithHint("perdure show %s says why; perdure resume %s brings it back to running", st.Name, st.Name)
}

// putToSleep suspends or stops: suspend saves RAM and files and ends the sandbox; stop keeps only the files. why is as of pause.
func (l *live) putToSleep(ctx context.Context, kind event.CheckpointKind, why string) error {
	st := l.state()
	verb, memory, done := "suspend", true, session.WorkspaceSuspended
	if kind == event.KindStop {
		verb, memory, done = "stop", false, session.WorkspaceStopped
	}
	switch st.Workspace.State {
	case done:
		return nil
	case session.WorkspaceRunning, session.WorkspacePaused:
	default:
		return wrongState(st, verb, "running or paused")
	}
	sb := l.current()
	g, ok := l.workspace.Current()
	if sb == nil || !ok {
		return wrongState(st, verb, "running or paused")
	}
	drv, err := l.svc.driver(st.Spec.Driver)
	if err != nil {
		return err
	}
	release := l.sleepHarness(why)
	defer release()
	l.svc.gc.RLock()
	defer l.svc.gc.RUnlock()
	hooks, woken := l.preSuspend(ctx, st, sb, kind)
	_, err = l.putAway(ctx, sleep{kind: kind, why: why, hooks: hooks, sandbox: sb, gen: g, memory: memory && drv.Capabilities(ctx).Memory})
	if err != nil {
		l.wakeIfAwake(st)
		if woken && l.current() == sb {
			err = errors.Join(err, sb.Pause(context.WithoutCancel(ctx)))
		}
	}
	return err
}

// wakeIfAwake lets the harness go on after an operation failed that had put it to sleep.
func (l *live) wakeIfAwake(before session.State) {
	if before.Workspace.State == session.WorkspaceRunning {
		l.mu.Lock()
		l.asleep = false
		l.mu.Unlock()
	}
}

// sleep is a request to putAway.
type sleep struct {
	kind    event.CheckpointKind
	message string
	why     string          // as of pause
	hooks   []event.HookRun // that were run before
	sandbox sandbox.Sandbox // nil: it is dead already
	gen     workspace.Generation
	memory  bool
}

// putAway ends a sandbox and makes a checkpoint of what it leaves: the upper becomes a layer without being copied.
// The caller holds svc.gc for reading.
func (l *live) putAway(ctx context.Context, q sleep) (checkpoint.Manifest, error) {
	st := l.state()
	d, err := l.begin(ctx, st, cutting{kind: q.kind, message: q.message})
	if err != nil {
		return checkpoint.Manifest{}, err
	}
	as := id.NewLayer()
	d.Manifest.Layers = append(append([]id.Layer{}, q.gen.Layers...), as)
	cut := func(ctx context.Context) error { return l.cut(ctx, d) }
	if q.sandbox != nil && q.memory {
		warm, err := q.sandbox.Checkpoint(ctx, sandbox.CheckpointRequest{Dir: d.MemoryDir(), Cut: cut, LeavePaused: true})
		if err != nil {
			return checkpoint.Manifest{}, errors.Join(err, d.Drop())
		}
		l.svc.at("memory.saved")
		d.Manifest.PauseMS = milliseconds(warm.Pause())
		d.Manifest.Environment.Took(warm.Image())
	} else if err := cut(ctx); err != nil {
		return checkpoint.Manifest{}, errors.Join(err, d.Drop())
	}
	back := func(err error) (checkpoint.Manifest, error) { // nothing has been destroyed yet
		errs := []error{err, l.dropJournal(), d.Drop()}
		if q.sandbox != nil && q.memory && st.Workspace.State == session.WorkspaceRunning {
			errs = append(errs, q.sandbox.Unpause(context.WithoutCancel(ctx)))
		}
		return checkpoint.Manifest{}, errors.Join(errs...)
	}
	if d.Manifest.FileBytes, err = l.upperBytes(ctx, q.gen); err != nil {
		return back(err)
	}
	hash, err := d.Commit(ctx, q.memory)
	if err != nil {
		return back(err)
	}
	j := journal{Op: opSleep, Created: d.Manifest.Created(hash), Generation: q.gen, Layer: as, Why: q.why, Hooks: q.hooks}
	if q.sandbox == nil {
		j.Op = opSealLost
	} else {
		j.Sandbox = q.sandbox.ID()
	}
	if err := l.writeJournal(j); err != nil {
		return back(err)
	}
	ctx = context.WithoutCancel(ctx) // from here on it goes to its end
	if q.sandbox != nil {
		l.setSandbox(nil)
		if err := l.svc.endSandbox(ctx, q.sandbox); err != nil {
			return checkpoint.Manifest{}, err
		}
	}
	if err := l.finishSleep(ctx, j); err != nil {
		return checkpoint.Manifest{}, err
	}
	l.sealLater(d.Manifest)
	l.retain(ctx)
	return d.Manifest, nil
}

// upperBytes is how much a generation's upper holds, which is to become a layer as it is: also what deltas have copied from it already.
func (l *live) upperBytes(ctx context.Context, g workspace.Generation) (int64, error) {
	u, err := layer.DiskUsage(ctx, l.workspace.Root(g).Upper)
	return u.Bytes, err
}

// finishSleep does what follows the end of a sandbox: seal its files and append what happened. It may be repeated after a crash.
func (l *live) finishSleep(ctx context.Context, j journal) error {
	if _, err := l.workspace.Seal(j.Generation, j.Layer); err != nil {
		return err
	}
	if err := l.workspace.Close(); err != nil {
		return err
	}
	drafts := []event.Draft{{Type: event.CheckpointCreated, Data: j.Created}}
	switch {
	case j.Op == opSealLost:
	case j.Created.Kind == event.KindStop:
		drafts = append(drafts, event.Draft{Type: event.WorkspaceStopped, Data: event.WorkspaceSuspendedData{CheckpointID: j.Created.CheckpointID, Reason: j.Why, Hooks: j.Hooks}})
	default:
		drafts = append(drafts, event.Draft{Type: event.WorkspaceSuspended, Data: event.WorkspaceSuspendedData{CheckpointID: j.Created.CheckpointID, Reason: j.Why, Hooks: j.Hooks}})
	}
	if _, err := l.append(ctx, drafts...); err != nil {
		return err
	}
	return errors.Join(l.dropJournal(), l.workspace.Sweep())
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
