package service

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sync/errgroup"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/sandbox"
	"perdure.dev/perdure/internal/session"
	"perdure.dev/perdure/internal/workspace"
)

// fork makes count sessions from a checkpoint, all or none, and returns their ids. told is the id of the event that tells of it, "" for any.
func (l *live) fork(ctx context.Context, r *restore, told id.Event, count int, name string) ([]id.Session, error) {
	names, err := l.forkNames(ctx, count, name)
	if err != nil {
		return nil, err
	}
	children := make([]child, count)
	r.fork = true
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(max(2, runtime.NumCPU()))
	for i := range children {
		children[i] = child{id: id.NewSession(), name: names[i]}
		g.Go(func() error { return l.makeChild(gctx, r, &children[i]) })
	}
	if err := g.Wait(); err != nil {
		return nil, errors.Join(err, l.dropChildren(ctx, children))
	}
	ids := make([]id.Session, count)
	for i, c := range children {
		ids[i] = c.id
	}
	j, err := l.writeForkJournal(ids)
	if gone := l.isGone(); gone != nil && err != nil {
		err = gone
	}
	if err != nil {
		return nil, errors.Join(err, l.dropChildren(ctx, children))
	}
	if err := l.announce(ctx, r, told, children, ids); err != nil {
		if derr := l.dropChildren(ctx, children); derr != nil {
			return nil, errors.Join(err, derr) // the journal stays: the next start takes back what is left
		}
		return nil, errors.Join(err, j.drop())
	}
	if err := j.drop(); err != nil { // the next start does
		l.svc.cfg.Logger.Warn("cannot remove the journal of a fork", "session", l.id, "error", err)
	}
	return ids, nil
}

// child is a fork in the making.
type child struct {
	id        id.Session
	name      string
	workspace *workspace.Workspace
	sandbox   sandbox.Sandbox
	created   bool // its log has begun
	drafts    []event.Draft
}

// makeChild boots one fork. Nobody knows of it yet.
func (l *live) makeChild(ctx context.Context, r *restore, c *child) error {
	s, st := l.svc, l.state()
	s.gc.RLock()
	defer s.gc.RUnlock()
	if err := s.makeHome(c.id); err != nil {
		return err
	}
	var err error
	if c.workspace, err = workspace.Open(s.cfg.Dirs, c.id, st.Spec.Image); err != nil {
		return err
	}
	var report event.ResumeReport
	gen, sb, err := s.bootOn(ctx, c.workspace, identity{id: c.id, name: c.name, spec: st.Spec}, r.manifest.Layers, r.caps, func(spec sandbox.Spec) (sb sandbox.Sandbox, err error) {
		if r.memory {
			if err := copySpool(s.cfg.Dirs.Spool(r.manifest.SessionID), spec.SpoolDir, r.manifest.OpenExecs); err != nil {
				return nil, err
			}
		}
		sb, report, err = r.boot(ctx, spec)
		return sb, err
	})
	if err != nil {
		return err
	}
	c.sandbox = sb
	s.at("fork.booted")
	if err := c.workspace.Switch(gen); err != nil {
		return err
	}
	c.drafts = append([]event.Draft{
		{Type: event.SessionCreated, Data: event.SessionCreatedData{
			Name: c.name, Goal: st.Goal, WorkspaceID: id.NewWorkspace(), Spec: withoutPorts(st.Spec),
			Fork: &event.ForkOrigin{ParentID: r.manifest.SessionID, CheckpointID: r.manifest.ID, CutSeq: r.manifest.CutSeq},
		}},
	}, resumed(event.WorkspaceResumedData{SandboxID: sb.ID(), CheckpointID: r.manifest.ID, Report: report})...)
	return nil
}

// announce begins the logs of the forks, and tells the parent's. It fails only while nobody has been told.
func (l *live) announce(ctx context.Context, r *restore, told id.Event, children []child, ids []id.Session) error {
	for i := range children {
		c := &children[i]
		if err := l.svc.begin(ctx, c.id, c.drafts...); err != nil {
			return err
		}
		c.created = true
	}
	_, err := l.append(ctx, event.Draft{ID: told, Type: event.SessionForked, Data: event.SessionForkedData{CheckpointID: r.manifest.ID, Children: ids}})
	if err != nil {
		return err
	}
	for _, c := range children {
		cl, err := l.svc.liveByID(ctx, c.id)
		if err != nil {
			l.svc.cfg.Logger.Warn("cannot take up a fork", "session", c.id, "error", err) // the log has it: the next start does
			continue
		}
		cl.setSandbox(c.sandbox)
		cl.kick() // closes what was open at the cut
	}
	return nil
}

func (l *live) dropChildren(ctx context.Context, children []child) error {
	ctx = context.WithoutCancel(ctx)
	var errs []error
	for _, c := range children {
		errs = append(errs, l.dropChild(ctx, c))
	}
	return errors.Join(errs...)
}

// dropChild removes a fork that did not come to be.
func (l *live) dropChild(ctx context.Context, c child) error {
	s := l.svc
	var errs []error
	if c.created {
		_, err := s.cfg.Rows.DeleteSession(ctx, c.id)
		errs = append(errs, err)
	}
	if c.sandbox != nil {
		errs = append(errs, s.endSandbox(ctx, c.sandbox))
	}
	return errors.Join(append(errs, s.cfg.Dirs.Trash(s.cfg.Dirs.Session(c.id)))...)
}

// forkNames chooses the children's names and makes sure that they are free.
func (l *live) forkNames(ctx context.Context, count int, name string) ([]string, error) {
	given := name != ""
	if !given {
		name = l.state().Name
	}
	var names []string
	for n := 1; len(names) < count; n++ {
		try := name
		if !given || count > 1 {
			try = fmt.Sprintf("%s-%d", clip(name, 55), n)
		}
		_, err := l.svc.cfg.Rows.Session(ctx, try)
		switch {
		case isNotFound(err):
			names = append(names, try)
		case err != nil:
			return nil, err
		case given:
			return nil, nameTaken(try)
		case n > 100_000:
			return nil, nameTaken(try)
		}
	}
	return names, nil
}

func nameTaken(name string) error {
	return errdefs.New(errdefs.Conflict, event.CodeNameTaken, "a session is named %q already", name).
		WithHint("choose another --name, or remove it: perdure rm %s", name)
}

func clip(s string, n int) string { return s[:min(len(s), n)] }

// forkable finds the checkpoint that a fork starts from, taking one of the present state if none is named. The caller does not hold ops.
func (l *live) forkable(ctx context.Context, ref string) (*restore, error) {
	if ref != "" {
		r, _, err := l.target(ctx, ref)
		return r, err
	}
	var r *restore
	err := l.operate(ctx, func() error {
		if l.state().Workspace.State == session.WorkspaceNone {
			if err := l.wake(ctx); err != nil {
				return err
			}
		}
		created, err := l.take(ctx, cutting{kind: event.KindFork})
		if err != nil {
			return err
		}
		r, err = l.svc.prepare(ctx, created.CheckpointID, created.ManifestHash, l.state().Spec.Driver)
		return err
	})
	return r, err
}
