package service

import (
	"context"
	"errors"
	"slices"
	"time"

	"perdure.dev/perdure/internal/checkpoint"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/sandbox"
	"perdure.dev/perdure/internal/session"
	"perdure.dev/perdure/internal/workspace"
)

// cutting is what a checkpoint is made for.
type cutting struct {
	event   id.Event // of the event that tells of it; "": any
	kind    event.CheckpointKind
	message string
	keep    bool
}

// begin makes the draft of a checkpoint of the session as it is now.
func (l *live) begin(ctx context.Context, st session.State, c cutting) (*checkpoint.Draft, error) {
	lineage, err := l.svc.lineage(ctx, st)
	if err != nil {
		return nil, err
	}
	return l.svc.checkpoints.Begin(checkpoint.Manifest{
		ID: id.NewCheckpoint(), SessionID: l.id, Lineage: lineage, Kind: c.kind, Message: c.message, Keep: c.keep,
		ParentID: st.Workspace.Base, CreatedAt: l.svc.cfg.Clock.Now(),
		Environment: environment(st.Spec),
	})
}

// cut notes where the log and the commands stand. While it runs, nothing inside the sandbox moves.
func (l *live) cut(ctx context.Context, d *checkpoint.Draft) error {
	l.svc.at("checkpoint.cut")
	head, err := l.svc.cfg.Log.Head(ctx, l.id)
	if err != nil {
		return err
	}
	d.Cut(head)
	open, err := openExecs(l.svc.cfg.Dirs.Spool(l.id))
	if err != nil {
		return err
	}
	d.Manifest.OpenExecs, d.Manifest.ProcessCount = open, len(open)
	return nil
}

// take makes a checkpoint of the session, whatever state its workspace is in, and appends checkpoint.created. The caller holds the ops token.
func (l *live) take(ctx context.Context, c cutting) (event.CheckpointCreatedData, error) {
	l.svc.gc.RLock()
	defer l.svc.gc.RUnlock()
	st := l.state()
	if err := l.room(ctx, st, c.kind); err != nil {
		return event.CheckpointCreatedData{}, err
	}
	seen := l.seen()
	var created event.CheckpointCreatedData
	var m checkpoint.Manifest
	var err error
	switch st.Workspace.State {
	case session.WorkspaceRunning, session.WorkspacePaused:
		m, created, err = l.takeLive(ctx, st, c)
	case session.WorkspaceSuspended, session.WorkspaceStopped:
		m, created, err = l.takeAsleep(ctx, st, c)
	case session.WorkspaceLost:
		if _, err := l.sealLost(ctx); err != nil {
			return created, err
		}
		m, created, err = l.takeAsleep(ctx, l.state(), c)
	default:
		err = errdefs.New(errdefs.Conflict, "workspace_not_started", "the workspace of session %s has not been started", st.Name).
			WithHint("perdure resume %s starts it", st.Name)
	}
	if err != nil {
		return created, err
	}
	if _, err := l.append(ctx, event.Draft{ID: c.event, Type: event.CheckpointCreated, Data: created}); err != nil {
		return created, errors.Join(err, l.svc.checkpoints.Delete(context.WithoutCancel(ctx), m.ID))
	}
	l.saved(seen)
	l.sealLater(m)
	l.retain(ctx)
	return created, nil
}

func (l *live) takeLive(ctx context.Context, st session.State, c cutting) (m checkpoint.Manifest, created event.CheckpointCreatedData, err error) {
	sb := l.current()
	drv, err := l.svc.driver(st.Spec.Driver)
	if err != nil {
		return m, created, err
	}
	if sb == nil {
		return m, created, wrongState(st, "checkpoint", "running")
	}
	d, err := l.begin(ctx, st, c)
	if err != nil {
		return m, created, err
	}
	var delta workspace.Pending
	warm, err := sb.Checkpoint(ctx, sandbox.CheckpointRequest{Dir: d.MemoryDir(), Cut: func(ctx context.Context) error {
		if err := l.cut(ctx, d); err != nil {
			return err
		}
		var err error
		delta, err = l.workspace.Delta(ctx)
		return err
	}})
	if err != nil {
		return m, created, errors.Join(err, delta.Drop(), d.Drop())
	}
	l.svc.at("memory.saved")
	d.Manifest.PauseMS = milliseconds(warm.Pause())
	d.Manifest.Environment.Took(warm.Image())
	d.Manifest.FileBytes = delta.Stats.Bytes
	if d.Manifest.Layers, err = delta.Keep(); err != nil {
		return m, created, errors.Join(err, delta.Drop(), d.Drop())
	}
	hash, err := d.Commit(ctx, drv.Capabilities(ctx).Memory)
	if err != nil {
		return m, created, errors.Join(err, d.Drop())
	}
	return d.Manifest, d.Manifest.Created(hash), nil
}

// takeAsleep makes a checkpoint that shares everything but the log position with the one that the workspace sleeps on.
func (l *live) takeAsleep(ctx context.Context, st session.State, c cutting) (m checkpoint.Manifest, created event.CheckpointCreatedData, err error) {
	row, err := l.svc.cfg.Rows.Checkpoint(ctx, st.Workspace.Base)
	if err != nil {
		return m, created, err
	}
	var base checkpoint.Manifest
	opened, err := l.svc.checkpoints.Open(ctx, row.ID, row.ManifestHash)
	if err == nil {
		defer opened.Close()
		base = opened.Manifest
	}
	if c.kind == event.KindUndo && errdefs.KindOf(err) == errdefs.Corrupt {
		// The session must be able to leave what it cannot wake from. Undo then brings back the files.
		base = checkpoint.Manifest{Layers: row.Layers, Environment: environment(st.Spec)}
		c.message += "; without memory, which was damaged"
		err = nil
	}
	if err != nil {
		return m, created, err
	}
	d, err := l.begin(ctx, st, c)
	if err != nil {
		return m, created, err
	}
	head, err := l.svc.cfg.Log.Head(ctx, l.id)
	if err != nil {
		return m, created, errors.Join(err, d.Drop())
	}
	d.Cut(head)
	d.Manifest.Layers = slices.Clone(base.Layers)
	d.Manifest.Environment = base.Environment
	d.Manifest.OpenExecs, d.Manifest.ProcessCount = base.OpenExecs, base.ProcessCount
	hash, err := d.Alias(ctx, base)
	if err != nil {
		return m, created, errors.Join(err, d.Drop())
	}
	return d.Manifest, d.Manifest.Created(hash), nil
}

// A checkpoint that could not be made durable is tried again after sealRest, then after twice as long, up to sealRestMax, and at the next
// start. Until then it is warm, which a restore does not mind.
const (
	sealRest    = time.Second
	sealRestMax = 5 * time.Minute
)

// sealLater makes a checkpoint durable in the background.
func (l *live) sealLater(m checkpoint.Manifest) {
	l.svc.goroutine(func(ctx context.Context) {
		for rest := sealRest; !l.sealNow(ctx, m); rest = min(2*rest, sealRestMax) {
			if l.svc.cfg.Clock.Sleep(ctx, rest) != nil {
				return
			}
		}
	})
}

// sealNow reports whether nothing is left to do. A checkpoint that is damaged has failed for good; a disk that is full, or a store that is
// out of reach, says nothing about the checkpoint.
func (l *live) sealNow(ctx context.Context, m checkpoint.Manifest) bool {
	l.svc.sealing.Lock() // one at a time: it is disk work that must not crowd out the sandboxes'
	if !l.isWarm(m.ID) {
		l.svc.sealing.Unlock()
		return true // deleted meanwhile, or durable
	}
	err := l.svc.checkpoints.Seal(ctx, m)
	if err == nil {
		l.svc.shed(ctx)
	}
	l.svc.sealing.Unlock()
	if !l.has(m.ID) { // deleted meanwhile, perhaps before its image was stored
		undo := context.WithoutCancel(ctx) // a daemon that stops leaves nothing of it
		if err := l.svc.checkpoints.Unseal(undo, m, l.svc.exists(undo)); err != nil {
			l.svc.cfg.Logger.Warn("cannot delete the image of a deleted checkpoint", "checkpoint", m.ID, "error", err)
		}
		return true
	}
	if ctx.Err() != nil {
		return true // the next daemon goes on
	}
	if err != nil && errdefs.KindOf(err) != errdefs.Corrupt {
		l.svc.cfg.Logger.Warn("a checkpoint is not durable yet; this is tried again", "session", l.id, "checkpoint", m.ID, "error", err)
		l.svc.at("checkpoint.unsealed")
		return false
	}
	d := event.Draft{Type: event.CheckpointDurable, ActorID: systemActor, Data: event.CheckpointDurableData{CheckpointID: m.ID}}
	if err != nil {
		l.svc.cfg.Logger.Error("a checkpoint did not become durable", "session", l.id, "checkpoint", m.ID, "error", err)
		d = event.Draft{Type: event.CheckpointFailed, ActorID: systemActor, Data: event.CheckpointFailedData{
			CheckpointID: m.ID, Code: errdefs.CodeOf(err), Message: err.Error(),
		}}
	}
	_, err = l.append(ctx, d)
	if err != nil && ctx.Err() == nil && !isNotFound(err) {
		l.svc.cfg.Logger.Error("cannot record whether a checkpoint is durable", "session", l.id, "checkpoint", m.ID, "error", err)
	}
	return errdefs.KindOf(err) != errdefs.Exhausted
}

// isWarm says whether the session is there and has a checkpoint that is neither durable yet nor known to be damaged.
func (l *live) isWarm(c id.Checkpoint) bool {
	return l.isGone() == nil && slices.ContainsFunc(l.state().Checkpoints, func(k session.Checkpoint) bool {
		return k.ID == c && k.State == session.CheckpointWarm
	})
}

// has says whether the session is there and has the checkpoint.
func (l *live) has(c id.Checkpoint) bool {
	return l.isGone() == nil && slices.ContainsFunc(l.state().Checkpoints, func(k session.Checkpoint) bool { return k.ID == c })
}

// exists returns what says whether a session is there, one that was deleted and has forks included.
func (s *Service) exists(ctx context.Context) func(id.Session) (bool, error) {
	return func(sid id.Session) (bool, error) {
		_, err := s.cfg.Log.Read(ctx, sid, 0, 1)
		if isNotFound(err) {
			return false, nil
		}
		return true, err
	}
}

// shed keeps the files of memory images within their budget.
func (s *Service) shed(ctx context.Context) {
	freed, err := s.checkpoints.Shed(ctx, s.cfg.ImageCache)
	if err != nil && ctx.Err() == nil {
		s.cfg.Logger.Warn("cannot delete the files of memory images that are stored", "error", err)
	}
	if freed > 0 {
		s.cfg.Logger.Info("deleted files of memory images that are stored", "bytes", freed)
	}
}

// lineage is the session that a session descends from: itself, if it is no fork. Deleted ancestors are still known, as long as there are forks.
func (s *Service) lineage(ctx context.Context, st session.State) (id.Session, error) {
	first, fork := st.ID, st.Fork
	for fork != nil {
		first = fork.ParentID
		events, err := s.cfg.Log.Read(ctx, first, 0, 1)
		if err != nil {
			return "", err
		}
		d, err := event.DecodeData[event.SessionCreatedData](events[0])
		if err != nil {
			return "", err
		}
		fork = d.Fork
	}
	return first, nil
}

// retain deletes automatic checkpoints that nothing keeps any more. What the workspace stands on, what undo needs, and what is being restored, stays.
func (l *live) retain(ctx context.Context) {
	st := l.state()
	rows, err := l.svc.cfg.Rows.Checkpoints(ctx, l.id)
	if err != nil {
		l.svc.cfg.Logger.Warn("cannot look for old checkpoints", "session", l.id, "error", err)
		return
	}
	var list []checkpoint.Aged
	for _, c := range rows {
		if c.Deleted || c.Kind == event.KindUser || c.Kind == event.KindAgent || c.Keep || c.ID == st.Undo || c.ID == st.Workspace.Base {
			continue
		}
		list = append(list, checkpoint.Aged{ID: c.ID, Kind: c.Kind, At: c.CreatedAt})
	}
	for _, c := range l.svc.autoPolicy(st.Spec).keep.Drop(list) {
		if l.svc.inUse(c) {
			continue
		}
		if err := l.deleteCheckpoint(ctx, c, "retention"); err != nil {
			l.svc.cfg.Logger.Warn("cannot delete an old checkpoint", "session", l.id, "checkpoint", c, "error", err)
		}
	}
}

// deleteCheckpoint makes a checkpoint unknown first, and then removes it.
func (l *live) deleteCheckpoint(ctx context.Context, c id.Checkpoint, reason string) error {
	err := l.svc.freeing(func() error {
		_, err := l.append(ctx, event.Draft{Type: event.CheckpointDeleted, Data: event.CheckpointDeletedData{CheckpointID: c, Reason: reason}})
		return err
	})
	if err != nil {
		return err
	}
	if err := l.svc.checkpoints.Delete(ctx, c); err != nil {
		return err
	}
	l.svc.sweepLater()
	return nil
}
