package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"perdure.dev/perdure/internal/checkpoint"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/sandbox"
	"perdure.dev/perdure/internal/session"
)

// restore is a checkpoint that has been checked and can be booted, any number of times, until it is closed.
type restore struct {
	svc      *Service
	opened   *checkpoint.Opened
	driver   sandbox.Driver
	caps     sandbox.Capabilities
	manifest checkpoint.Manifest
	image    sandbox.Image
	memory   bool     // the image will be used
	fork     bool     // for another session than the checkpoint's
	doubts   []string // about what comes back
	devolved []event.WorkspaceDevolvedData
	begun    time.Time
	release  func()
}

// prepare checks a checkpoint before anything is touched.
func (s *Service) prepare(ctx context.Context, c id.Checkpoint, hash, driver string) (*restore, error) {
	r := &restore{svc: s, begun: s.cfg.Clock.Now()}
	var err error
	if r.driver, r.caps, err = s.usable(ctx, driver); err != nil {
		return nil, err
	}
	row, err := s.cfg.Rows.Checkpoint(ctx, c)
	if err != nil {
		return nil, err
	}
	if r.opened, err = s.checkpoints.Open(ctx, c, hash); err != nil {
		return nil, err
	}
	r.release = s.use(c)
	r.manifest, r.image = r.opened.Manifest, r.opened.Image
	if row.State == session.CheckpointFailed {
		r.doubts = append(r.doubts, "certainty about its files: "+row.FailMessage)
	}
	if r.manifest.Memory != nil {
		code, reason := misfit(r.manifest.Environment, r.driver.Name(), r.caps)
		if r.memory = code == ""; !r.memory {
			r.devolved = append(r.devolved, r.manifest.Devolved(event.LayerMemory, code, reason))
		}
	}
	return r, nil
}

// close ends the use of the checkpoint. Sandboxes that were booted from its memory image have that open themselves.
func (r *restore) close() {
	r.release()
	if r.opened != nil {
		r.opened.Close()
	}
}

// use keeps a checkpoint from being deleted until release is called, once.
func (s *Service) use(c id.Checkpoint) (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.using[c]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.using[c]--; s.using[c] == 0 {
			delete(s.using, c)
		}
	}
}

// inUse reports whether somebody restores a checkpoint.
func (s *Service) inUse(c id.Checkpoint) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.using[c] > 0
}

// boot makes a sandbox of the checkpoint beside whatever runs. If the engine does not take the memory here any more, as after an upgrade of
// the machine, it makes one of the files alone, and the report says so: a session must not be stuck.
func (r *restore) boot(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, event.ResumeReport, error) {
	var sb sandbox.Sandbox
	var err error
	if r.memory {
		sb, err = r.driver.Restore(ctx, spec, r.image)
	} else {
		sb, err = r.driver.Start(ctx, spec)
	}
	if r.memory && errdefs.CodeOf(err) == sandbox.ImageRefused {
		r.svc.cfg.Logger.Warn("memory is left behind", "session", spec.Session, "checkpoint", r.manifest.ID, "error", err)
		files := *r // others may boot from r at the same time
		files.memory = false
		files.devolved = append(slices.Clone(r.devolved), r.manifest.Devolved(event.LayerMemory, event.LostToFit, err.Error()))
		return files.boot(ctx, spec)
	}
	if err != nil {
		return nil, event.ResumeReport{}, err
	}
	r.svc.at("sandbox.booted")
	return sb, r.report(ctx, spec.Session, sb), nil
}

// replace is boot, but in the place of old: on success that is destroyed, on failure it is as it was.
func (r *restore) replace(ctx context.Context, old sandbox.Sandbox, spec sandbox.Spec) (sandbox.Sandbox, event.ResumeReport, error) {
	if !r.memory {
		sb, report, err := r.boot(ctx, spec)
		if err != nil {
			return nil, report, err
		}
		if err := r.makeWay(context.WithoutCancel(ctx), old); err != nil {
			return nil, event.ResumeReport{}, errors.Join(err, r.svc.endSandbox(context.WithoutCancel(ctx), sb))
		}
		return sb, report, nil
	}
	sb, err := r.driver.Rollback(ctx, old, spec, r.image)
	if sb == nil {
		return nil, event.ResumeReport{}, err
	}
	r.svc.at("sandbox.replaced")
	if err != nil { // the new one is there: only forward from here. The next start finds the old one by its directory
		r.svc.cfg.Logger.Error("cannot end a sandbox that has been replaced", "sandbox", old.ID(), "error", err)
	} else {
		r.trash(old)
	}
	return sb, r.report(ctx, spec.Session, sb), nil
}

// makeWay ends a sandbox whose files are to be sealed. It fails if that may write on.
func (r *restore) makeWay(ctx context.Context, old sandbox.Sandbox) error {
	r.svc.at("sandbox.destroy")
	if err := old.Destroy(ctx); err != nil {
		if st, serr := old.Status(ctx); serr != nil || st.State != sandbox.Dead {
			return fmt.Errorf("the sandbox that runs cannot be ended: %w", err)
		}
		r.svc.cfg.Logger.Error("cannot remove a dead sandbox that has been replaced", "sandbox", old.ID(), "error", err) // the next start does
		return nil
	}
	r.svc.at("sandbox.destroyed")
	r.trash(old)
	return nil
}

// trash removes the state directory of a sandbox that has ended.
func (r *restore) trash(old sandbox.Sandbox) {
	if err := r.svc.cfg.Dirs.Trash(r.svc.cfg.Dirs.Sandbox(old.ID())); err != nil {
		r.svc.cfg.Logger.Warn("cannot remove what is left of a sandbox", "sandbox", old.ID(), "error", err) // the next start does
	}
}

// losses says for people what does not come back.
func (r *restore) losses() []string {
	out := slices.Clone(r.doubts)
	for _, d := range r.devolved {
		out = append(out, "processes and memory: "+d.Reason)
	}
	return out
}

// resumed drafts the events that tell of a restore: what was lost, and what came back.
func resumed(d event.WorkspaceResumedData) []event.Draft {
	var out []event.Draft
	for _, lost := range d.Report.Devolved {
		out = append(out, event.Draft{Type: event.WorkspaceDevolved, Data: lost})
	}
	return append(out, event.Draft{Type: event.WorkspaceResumed, Data: d})
}

func (r *restore) report(ctx context.Context, sid id.Session, sb sandbox.Sandbox) event.ResumeReport {
	now := r.svc.cfg.Clock.Now()
	out := event.ResumeReport{Layers: []string{event.LayerFiles, event.LayerTranscript}, Lost: r.losses(), Devolved: r.devolved}
	// Where the driver keeps no memory, a checkpoint never had it; stop alone means to end what runs.
	expected := r.manifest.Memory != nil || !r.caps.Memory && r.manifest.Kind != event.KindStop
	if expected && !r.memory && r.manifest.ProcessCount > 0 {
		out.Lost = append(out.Lost, fmt.Sprintf("%d processes that ran at the checkpoint", r.manifest.ProcessCount))
	}
	if r.memory {
		out.Layers = []string{event.LayerMemory, event.LayerFiles, event.LayerTranscript}
		out.ClockStepMS = now.Sub(r.manifest.CreatedAt).Milliseconds()
		r.inside(ctx, sb, &out)
	}
	out.DurationMS = now.Sub(r.begun).Milliseconds()
	r.hooked(ctx, sid, sb, &out)
	return out
}

// inside adds what the guest found when it woke up.
func (r *restore) inside(ctx context.Context, sb sandbox.Sandbox, out *event.ResumeReport) {
	in, err := sb.RestoreReport(ctx)
	if err != nil {
		out.Reset = append(out.Reset, "no report from inside: "+err.Error())
		return
	}
	out.Processes = len(in.Processes)
	for _, what := range in.Reseeded {
		out.Reset = append(out.Reset, "randomness: "+what)
	}
	for _, c := range in.Connections {
		out.Reset = append(out.Reset, "connection to "+c)
	}
	for _, p := range in.Unreseeded {
		name := ""
		if len(p.Args) > 0 {
			name = p.Args[0]
		}
		out.Reset = append(out.Reset, fmt.Sprintf("not renewed: the random state of process %d (%s) is a copy of the original's", p.PID, name))
	}
	if r.fork {
		out.Reset = append(out.Reset, "renewed: the host name is "+in.Hostname+", and /etc/machine-id is the fork's own")
		out.Reset = append(out.Reset, "not renewed: the boot id of the workspace's kernel (/proc/sys/kernel/random/boot_id) is a copy of the original's")
	}
	out.Reset = append(out.Reset, in.Problems...)
}

// wakeOn boots a workspace that has no sandbox on r, and appends the given events and what tells of the resume. id is of the checkpoint that
// is said to have come back. The caller holds svc.gc for reading.
func (l *live) wakeOn(ctx context.Context, r *restore, c id.Checkpoint, drafts ...event.Draft) (event.ResumeReport, error) {
	var report event.ResumeReport
	g, sb, err := l.bootOn(ctx, r.manifest.Layers, r.caps, func(spec sandbox.Spec) (sb sandbox.Sandbox, err error) {
		sb, report, err = r.boot(ctx, spec)
		return sb, err
	})
	if err != nil {
		return report, err
	}
	return report, l.adopt(ctx, g, sb, append(drafts, resumed(event.WorkspaceResumedData{SandboxID: sb.ID(), CheckpointID: c, Report: report})...)...)
}

// target finds a checkpoint that a session can go to.
func (l *live) target(ctx context.Context, ref string) (*restore, string, error) {
	row, err := l.svc.cfg.Rows.CheckpointByRef(ctx, l.id, ref)
	if err != nil {
		return nil, "", err
	}
	if row.Deleted {
		return nil, "", errdefs.New(errdefs.NotFound, "checkpoint_not_found", "checkpoint %s has been deleted", row.ID)
	}
	r, err := l.svc.prepare(ctx, row.ID, row.ManifestHash, l.state().Spec.Driver)
	return r, row.ManifestHash, err
}
