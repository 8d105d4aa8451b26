package service

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/actor"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/image"
	"perdure.dev/perdure/internal/session"
	"perdure.dev/perdure/internal/store"
)

// begin makes a session's log with its first events.
func (s *Service) begin(ctx context.Context, sid id.Session, drafts ...event.Draft) error {
	_, err := s.cfg.Log.Append(ctx, event.Append{Session: sid, Expected: 0, Events: signed(ctx, drafts)})
	return err
}

// signed names in drafts who asks for them.
func signed(ctx context.Context, drafts []event.Draft) []event.Draft {
	for i := range drafts {
		drafts[i].ActorID = actor.From(ctx).ID
		if drafts[i].ActorID == "" {
			drafts[i].ActorID = systemActor
		}
	}
	return drafts
}

// CreateSession makes a session, starts its workspace, and with a goal begins to work on it.
func (s *Service) CreateSession(ctx context.Context, req api.CreateSession) (api.Session, error) {
	o, err := s.once(ctx, event.SessionCreated, "")
	if err != nil {
		return api.Session{}, err
	}
	if o.done {
		return s.startCreated(ctx, o.event.SessionID)
	}
	sid, err := s.log(ctx, o.id, req)
	if err != nil {
		return api.Session{}, err
	}
	return s.startCreated(ctx, sid)
}

// log begins the log of a new session, whose image nobody takes away meanwhile.
func (s *Service) log(ctx context.Context, created id.Event, req api.CreateSession) (id.Session, error) {
	s.images.RLock()
	defer s.images.RUnlock()
	spec, err := s.specOf(ctx, req)
	if err != nil {
		return "", err
	}
	name := req.Name
	if name == "" {
		if name, err = s.freeName(ctx); err != nil {
			return "", err
		}
	} else if err := checkName(name); err != nil {
		return "", err
	}
	sid := id.NewSession()
	if err := s.makeHome(sid); err != nil {
		return "", err
	}
	err = s.begin(ctx, sid, event.Draft{ID: created, Type: event.SessionCreated, Data: event.SessionCreatedData{
		Name: name, Goal: req.Goal, WorkspaceID: id.NewWorkspace(), Spec: spec,
	}})
	if errdefs.CodeOf(err) == event.CodeNameTaken {
		err = nameTaken(name)
	}
	if err != nil {
		return "", errors.Join(err, s.cfg.Dirs.Trash(s.cfg.Dirs.Session(sid)))
	}
	return sid, nil
}

// makeHome makes a session's directory, before its log begins. Nobody makes it later, but for an operation on a session that is there:
// whoever comes late to a session that is being deleted must not bring its directory back.
func (s *Service) makeHome(sid id.Session) error {
	if err := os.Mkdir(s.cfg.Dirs.Session(sid), 0o700); err != nil {
		return diskError(err, "make the directory of a session")
	}
	return nil
}

// startCreated starts the workspace of a session whose log has begun.
func (s *Service) startCreated(ctx context.Context, sid id.Session) (api.Session, error) {
	l, err := s.liveByID(ctx, sid)
	if err != nil {
		return api.Session{}, err
	}
	if l.state().Workspace.State != session.WorkspaceNone {
		return s.GetSession(ctx, string(sid)) // a repeated request: whatever has become of it since, it has started
	}
	if _, err := l.running(ctx); err != nil {
		// A session whose workspace never came to be is of no use to anybody.
		return api.Session{}, errors.Join(err, s.deleteSession(context.WithoutCancel(ctx), l))
	}
	l.kick()
	return s.GetSession(ctx, string(sid))
}

// leastOpenFiles is the smallest limit on open files: the interpreters that the guest keeps have theirs at 249 to 251.
const leastOpenFiles = 256

// specOf checks a request and fills in the defaults.
func (s *Service) specOf(ctx context.Context, req api.CreateSession) (event.Spec, error) {
	spec := event.Spec{
		Model: req.Model, Instructions: req.Instructions, Image: req.Image, Driver: req.Driver, Env: req.Env, Limits: limitsOf(req.Limits), Idle: idleOf(req.Idle),
	}
	var err error
	if spec.Checkpoints, err = checkpointsOf(req.Checkpoints); err != nil {
		return spec, err
	}
	if n := spec.Limits.OpenFiles; n > 0 && n < leastOpenFiles {
		return spec, errdefs.New(errdefs.Invalid, "limit_too_low", "%d open files for each process are too few", n).
			WithHint("give it %d at least: the interpreters of the workspace need that many", leastOpenFiles)
	}
	if spec.Image == "" {
		spec.Image = "host"
	}
	if spec.Driver == "" {
		spec.Driver = s.cfg.DefaultDriver
	}
	if spec.Model == "" && req.Goal != "" {
		spec.Model = s.cfg.DefaultModel
		if spec.Model == "" {
			return spec, errdefs.New(errdefs.Invalid, "no_model", "a goal needs a model, and the daemon has no default").
				WithHint("give --model openai/NAME, anthropic/NAME or scripted:FILE, or set PERDURE_MODEL for the daemon")
		}
	}
	if err := checkImage(spec.Image); err != nil {
		return spec, err
	}
	if m := spec.Limits.MemoryBytes; m > 0 && m < leastMemory {
		return spec, errdefs.New(errdefs.Invalid, "limit_too_small", "a sandbox cannot do with %d bytes of memory", m).WithHint("give it %d MiB or more", leastMemory>>20)
	}
	for _, kv := range spec.Env {
		if k, _, ok := strings.Cut(kv, "="); !ok || k == "" || strings.ContainsRune(kv, 0) {
			return spec, errdefs.New(errdefs.Invalid, "invalid_env", "%q is not KEY=VALUE", kv)
		}
	}
	if spec.Model != "" {
		if err := s.cfg.Reachable(ctx, spec); err != nil {
			return spec, err
		}
	}
	_, caps, err := s.usable(ctx, spec.Driver)
	if err != nil {
		return spec, err
	}
	return spec, s.pinImage(ctx, &spec, caps)
}

// leastMemory is the smallest limit on memory, in bytes. A shell and an interpreter run in it, and little else.
const leastMemory = 32 << 20

// checkImage refuses a directory that cannot be an image.
func checkImage(ref string) error {
	dir, isDir := image.Dir(ref)
	if !isDir {
		return nil
	}
	if !filepath.IsAbs(dir) {
		return errdefs.New(errdefs.Invalid, "bad_image", "the directory of image %q is not absolute", ref).WithHint("use dir:/absolute/path")
	}
	if fi, err := os.Stat(dir); err != nil || !fi.IsDir() {
		return errdefs.New(errdefs.Invalid, "bad_image", "image %q is not a directory on this machine", ref).
			WithHint("the path is the daemon's, not the client's")
	}
	return nil
}

// freeName makes up a name.
func (s *Service) freeName(ctx context.Context) (string, error) {
	first := []string{"amber", "brisk", "calm", "deft", "early", "fair", "glad", "hardy", "keen", "lucid", "mild", "noble", "plain", "quiet", "ready", "sound", "tidy", "vivid", "warm", "young"}
	second := []string{"alder", "beacon", "cedar", "delta", "ember", "fjord", "grove", "harbor", "island", "juniper", "kestrel", "lantern", "meadow", "orchard", "pebble", "quarry", "river", "spruce", "thicket", "willow"}
	for range 50 {
		name := fmt.Sprintf("%s-%s-%d", first[rand.IntN(len(first))], second[rand.IntN(len(second))], rand.IntN(1000))
		if _, err := s.cfg.Rows.Session(ctx, name); isNotFound(err) {
			return name, nil
		} else if err != nil {
			return "", err
		}
	}
	return "s-" + string(id.NewEvent())[4:], nil
}

// GetSession shows a session.
func (s *Service) GetSession(ctx context.Context, ref string) (api.Session, error) {
	row, err := s.cfg.Rows.Session(ctx, ref)
	if err != nil {
		return api.Session{}, err
	}
	return s.show(ctx, row)
}

// show adds to a row what only a live session knows, without making one.
func (s *Service) show(ctx context.Context, row store.Session) (api.Session, error) {
	s.mu.Lock()
	l := s.lives[row.ID]
	s.mu.Unlock()
	out := presentSummary(row.Summary)
	if l != nil && l.load(context.WithoutCancel(ctx)) != nil { // it may be coming into use just now
		l = nil
	}
	if l != nil {
		l.showIdle(ctx, &out)
	}
	if row.Spec.Model != "" {
		out.Waiting = s.waiting(ctx, row.ID, l)
	}
	return out, s.detail(ctx, row.ID, &out)
}

// waiting returns the messages of a session that no turn has taken up. l is nil if the session is not in use.
func (s *Service) waiting(ctx context.Context, sid id.Session, l *live) []api.Event {
	var st session.State
	if l != nil {
		st = l.state()
	} else if t, err := session.Load(ctx, s.cfg.Log, sid); err == nil { // a damaged log is told of where it is asked about
		st = t.State()
	}
	var out []api.Event
	for _, p := range st.Pending {
		if e, err := s.cfg.Rows.Event(ctx, p.EventID); err == nil {
			out = append(out, presentEvent(e))
		}
	}
	return out
}

// ListSessions lists them, oldest first.
func (s *Service) ListSessions(ctx context.Context, page api.Page) (api.List[api.Session], error) {
	rows, more, err := s.cfg.Rows.Sessions(ctx, store.Filter{After: id.Session(page.After), Limit: page.Limit})
	if err != nil {
		return api.List[api.Session]{}, err
	}
	out := api.List[api.Session]{HasMore: more, Data: make([]api.Session, len(rows))}
	for i, r := range rows {
		out.Data[i] = presentSummary(r.Summary)
	}
	return out, nil
}

// DeleteSession ends a session and removes all that is its own.
func (s *Service) DeleteSession(ctx context.Context, ref string) error {
	l, err := s.live(ctx, ref)
	if err != nil {
		return err
	}
	return s.deleteSession(ctx, l)
}

func (s *Service) deleteSession(ctx context.Context, l *live) error {
	deleted := false
	err := l.operate(ctx, func() error {
		release := l.halt()
		defer release()
		ctx := context.WithoutCancel(ctx)
		sb := l.current()
		// The log first: whatever is left after a crash belongs to no session, and is swept.
		s.at("session.delete")
		var d store.Deletion
		err := s.freeing(func() (err error) { d, err = s.cfg.Rows.DeleteSession(ctx, l.id); return err })
		if err != nil {
			return err
		}
		deleted = true // and so it stays, whatever fails now: the next start removes what is left
		s.at("session.deleted")
		s.unforward(l, func(event.Port) bool { return true })
		l.mu.Lock()
		l.gone = errGone
		close(l.bump)
		l.bump = make(chan struct{})
		l.mu.Unlock()
		var errs []error
		if sb != nil {
			l.setSandbox(nil)
			errs = append(errs, s.endSandbox(ctx, sb))
		} else if sid := l.state().Workspace.SandboxID; sid != "" {
			s.removeSandbox(ctx, sid) // it could not be taken up, but may be there
		}
		for _, c := range d.Checkpoints {
			errs = append(errs, s.checkpoints.Delete(ctx, c))
		}
		if d.Tombstone {
			errs = append(errs, s.buryFiles(l.id))
		}
		for _, sid := range d.Purged {
			errs = append(errs, s.cfg.Dirs.Trash(s.cfg.Dirs.Session(sid)), s.checkpoints.DestroyLineage(ctx, sid))
		}
		return errors.Join(errs...)
	})
	if deleted {
		s.forget(l)
		s.sweepLater()
	}
	return err
}

// buryFiles removes what a deleted session with forks has left, but for its artifacts: the forks' transcripts name them. They go with its log.
func (s *Service) buryFiles(sid id.Session) error {
	home, kept := s.cfg.Dirs.Session(sid), filepath.Base(s.cfg.Dirs.Artifacts(sid))
	entries, err := os.ReadDir(home)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if e.Name() != kept {
			errs = append(errs, s.cfg.Dirs.Trash(filepath.Join(home, e.Name())))
		}
	}
	if !slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == kept }) {
		errs = append(errs, s.cfg.Dirs.Trash(home))
	}
	return errors.Join(errs...)
}

// CancelSession asks the turn in progress to stop.
func (s *Service) CancelSession(ctx context.Context, ref string, req api.CancelSession) (api.Session, error) {
	l, err := s.live(ctx, ref)
	if err != nil {
		return api.Session{}, err
	}
	o, err := s.once(ctx, event.SessionCanceled, l.id)
	if err != nil {
		return api.Session{}, err
	}
	st := l.state()
	if statusRunning(st) && !o.done {
		if _, err := l.append(ctx, event.Draft{ID: o.id, Type: event.SessionCanceled, Data: event.SessionCanceledData{Reason: req.Reason}}); err != nil {
			return api.Session{}, err
		}
		l.wakeUp()
	}
	return s.GetSession(ctx, ref)
}

// WaitSession returns when the session is in one of the states.
func (s *Service) WaitSession(ctx context.Context, ref string, states []string) (api.Session, error) {
	l, err := s.live(ctx, ref)
	if err != nil {
		return api.Session{}, err
	}
	for {
		moved := l.moved()
		st := l.state()
		for _, want := range states {
			if inState(st, want) {
				return s.GetSession(ctx, string(l.id))
			}
		}
		select {
		case <-moved:
		case <-s.run.Done():
			return api.Session{}, errStopping
		case <-ctx.Done():
			return api.Session{}, errdefs.New(errdefs.Timeout, "wait_timeout", "session %s is %s with its workspace %s, not %s", st.Name, st.Status, st.Workspace.State, strings.Join(states, " or ")).
				WithHint("perdure events %s shows what it is doing", st.Name)
		}
		if gone := l.isGone(); gone != nil {
			return api.Session{}, gone
		}
	}
}

// inState reports whether want names what the session is at.
func inState(st session.State, want string) bool {
	if want == api.WaitDone {
		return !statusRunning(st)
	}
	return want == string(st.Status) || want == string(st.Workspace.State) || want == st.StopReason && !statusRunning(st)
}

// transition runs an operation on a session's workspace and shows the session.
func (s *Service) transition(ctx context.Context, ref string, f func(l *live) error) (api.Session, error) {
	l, err := s.live(ctx, ref)
	if err != nil {
		return api.Session{}, err
	}
	if err := l.operate(ctx, func() error { return f(l) }); err != nil {
		return api.Session{}, err
	}
	return s.GetSession(ctx, string(l.id))
}

// PauseSession keeps RAM and stops the processor.
func (s *Service) PauseSession(ctx context.Context, ref string) (api.Session, error) {
	return s.transition(ctx, ref, func(l *live) error { return l.pause(ctx, "") })
}

// SuspendSession saves RAM to the store and holds no memory any more.
func (s *Service) SuspendSession(ctx context.Context, ref string) (api.Session, error) {
	return s.transition(ctx, ref, func(l *live) error { return l.putToSleep(ctx, event.KindSuspend, "") })
}

// StopSession keeps the files only.
func (s *Service) StopSession(ctx context.Context, ref string) (api.Session, error) {
	return s.transition(ctx, ref, func(l *live) error { return l.putToSleep(ctx, event.KindStop, "") })
}

// ResumeSession reverses any of them. Its answer has a resume report only if something was restored.
func (s *Service) ResumeSession(ctx context.Context, ref string) (api.Session, error) {
	l, err := s.live(ctx, ref)
	if err != nil {
		return api.Session{}, err
	}
	before := l.state().Workspace.State
	if _, err := l.running(ctx); err != nil {
		return api.Session{}, err
	}
	l.wakeUp()
	out, err := s.GetSession(ctx, string(l.id))
	if before == session.WorkspaceRunning || before == session.WorkspacePaused {
		out.ResumeReport = nil // it tells of something earlier
	}
	return out, err
}
