package service

import (
	"context"
	"io"
	"time"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/guest/spool"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/idle"
	"perdure.dev/perdure/internal/sandbox"
	"perdure.dev/perdure/internal/session"
)

// StartExec starts a command of a client's, waking the workspace for it. A command that has the id already is answered with as it is.
func (s *Service) StartExec(ctx context.Context, ref string, req api.StartExec) (api.Exec, error) {
	l, err := s.live(ctx, ref)
	if err != nil {
		return api.Exec{}, err
	}
	spec, err := l.execSpec(ctx, req)
	if err != nil {
		return api.Exec{}, err
	}
	defer l.use(idle.Access)()
	st, err := l.startExec(ctx, spec)
	return presentExec(l.id, st), err
}

// RunExec is StartExec, WaitExec and the reading of the first limit bytes of each stream in one step. The command starts, and goes on,
// whether the client waits or not.
func (s *Service) RunExec(ctx context.Context, ref string, req api.StartExec, limit int64) (api.Exec, error) {
	l, err := s.live(ctx, ref)
	if err != nil {
		return api.Exec{}, err
	}
	spec, err := l.execSpec(ctx, req)
	if err != nil {
		return api.Exec{}, err
	}
	res, err := l.runExec(ctx, spec, int(min(limit, maxInline)))
	if err != nil {
		return presentExec(l.id, res.Status), err
	}
	out := presentExec(l.id, res.Status)
	out.Stdout, out.Stderr = string(res.Stdout), string(res.Stderr)
	return out, nil
}

// maxInline is how much of a stream comes in one answer, in bytes.
const maxInline = 64 << 20

// execSpec checks what a client asks for.
func (l *live) execSpec(ctx context.Context, req api.StartExec) (sandbox.ExecSpec, error) {
	spec, err := execSpec(req)
	if err != nil || req.User == "" {
		return spec, err
	}
	drv, err := l.svc.driver(l.state().Spec.Driver)
	if err == nil && drv.Capabilities(ctx).Isolation == "none" {
		err = errdefs.New(errdefs.Invalid, "user_unsupported", "with the driver %s all commands run as the daemon's user", drv.Name()).
			WithHint("leave --user out, or use a session of the gvisor driver")
	}
	return spec, err
}

func execSpec(req api.StartExec) (sandbox.ExecSpec, error) {
	spec := sandbox.ExecSpec{
		ID: id.Exec(req.ID), Kind: sandbox.ExecKind(req.Kind), Argv: req.Argv, Code: req.Code, Interpreter: req.Interpreter, Dir: req.Dir, User: req.User, Env: req.Env,
		Stdin: req.Stdin, Timeout: time.Duration(req.TimeoutMS) * time.Millisecond, Background: req.Background, Label: req.Label,
	}
	if spec.Kind == "" {
		spec.Kind = sandbox.ExecProcess
	}
	if req.TTY != nil {
		spec.TTY = &sandbox.TerminalSize{Rows: req.TTY.Rows, Cols: req.TTY.Cols}
	}
	if !id.ValidExternal(req.ID) {
		return spec, errdefs.New(errdefs.Invalid, "exec_invalid", "%q is no exec id", req.ID).
			WithHint("use 1 to %d letters, digits, '_', '-' and '.', not starting with a dot", id.MaxExternal)
	}
	if spec.Kind != sandbox.ExecProcess && spec.User != "" {
		return spec, errdefs.New(errdefs.Invalid, "exec_invalid", "persistent interpreters run as the workspace's user alone").
			WithHint("run a process as another user: perdure exec S -u %s -- CMD…", spec.User)
	}
	if spec.Kind == sandbox.ExecProcess && len(spec.Argv) == 0 {
		return spec, errdefs.New(errdefs.Invalid, "exec_invalid", "there is no command to run").WithHint("perdure exec S -- CMD…")
	}
	return spec, nil
}

// followOpen follows every command of a client that the log knows as running. Those that the sandbox does not know any more are lost.
func (l *live) followOpen(ctx context.Context, sb sandbox.Sandbox) {
	for _, x := range l.state().Execs {
		st, err := sb.Execs().Status(ctx, x.ID)
		switch {
		case errdefs.CodeOf(err) == "exec_not_found":
			l.finishExec(ctx, sandbox.ExecStatus{ID: x.ID, Cause: "it is not known in the workspace as it is now"})
		case err == nil && st.State != sandbox.ExecRunning:
			l.finishExec(ctx, st)
		default:
			l.follow(sb, x.ID)
		}
	}
}

func (l *live) finishExec(ctx context.Context, st sandbox.ExecStatus) {
	open := false
	for _, x := range l.state().Execs {
		open = open || x.ID == st.ID
	}
	if !open {
		return
	}
	_, err := l.append(ctx, ended(st))
	if err != nil && !isStopping(err) && !isNotFound(err) {
		l.svc.cfg.Logger.Error("cannot record the end of a command", "session", l.id, "exec", st.ID, "error", err)
	}
}

// ended is the event of a command's end.
func ended(st sandbox.ExecStatus) event.Draft {
	return event.Draft{Type: event.ExecFinished, ActorID: systemActor, Data: event.ExecFinishedData{
		ExecID: st.ID, ExitCode: st.ExitCode, Signal: st.Signal, Cause: st.Cause,
	}}
}

// execReader is what of sandbox.Execs only reads.
type execReader interface {
	Status(ctx context.Context, exec id.Exec) (sandbox.ExecStatus, error)
	List(ctx context.Context) ([]sandbox.ExecStatus, error)
	Wait(ctx context.Context, exec id.Exec) (sandbox.ExecStatus, error)
	Output(ctx context.Context, exec id.Exec, stream sandbox.Stream, offset int64, follow bool) (io.ReadCloser, error)
}

// reader reads about commands from the sandbox, or from the spool when there is none.
func (l *live) reader() execReader {
	return l.readerOf(l.current())
}

// sleepingExecs reads about the commands of a workspace without a sandbox.
type sleepingExecs struct{ l *live }

// open fails with session_not_found once the session has been deleted: its directory goes only after that is known.
func (s sleepingExecs) open() (*spool.Spool, error) {
	sp, err := spool.Look(s.l.svc.cfg.Dirs.Spool(s.l.id), spool.Options{})
	if gone := s.l.isGone(); gone != nil {
		if err == nil {
			sp.Close()
		}
		return nil, gone
	}
	return sp, err
}

func (s sleepingExecs) Status(_ context.Context, exec id.Exec) (sandbox.ExecStatus, error) {
	sp, err := s.open()
	if err != nil {
		return sandbox.ExecStatus{}, err
	}
	defer sp.Close()
	r, err := sp.Get(exec)
	if err != nil {
		return sandbox.ExecStatus{}, err
	}
	return s.asleep(r.Status()), nil
}

// asleep says that a command of a suspended workspace is running still, whatever the shim wrote when it went: it goes on
// with the workspace.
func (s sleepingExecs) asleep(st sandbox.ExecStatus) sandbox.ExecStatus {
	if st.State == sandbox.ExecLost && s.l.state().Workspace.State == session.WorkspaceSuspended {
		for _, x := range s.l.state().Execs {
			if x.ID == st.ID {
				st.State, st.Cause, st.EndedAt = sandbox.ExecRunning, "", time.Time{}
			}
		}
	}
	return st
}

func (s sleepingExecs) List(context.Context) ([]sandbox.ExecStatus, error) {
	sp, err := s.open()
	if err != nil {
		return nil, err
	}
	defer sp.Close()
	all := sp.List()
	for i := range all {
		all[i] = s.asleep(all[i])
	}
	return all, nil
}

func (s sleepingExecs) Wait(ctx context.Context, exec id.Exec) (sandbox.ExecStatus, error) {
	for {
		moved := s.l.moved()
		if sb := s.l.current(); sb != nil {
			return sb.Execs().Wait(ctx, exec)
		}
		st, err := s.Status(ctx, exec)
		if err != nil || st.State != sandbox.ExecRunning {
			return st, err
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return st, context.Cause(ctx)
		}
	}
}

func (s sleepingExecs) Output(ctx context.Context, exec id.Exec, stream sandbox.Stream, offset int64, _ bool) (io.ReadCloser, error) {
	sp, err := s.open()
	if err != nil {
		return nil, err
	}
	r, err := sp.Get(exec)
	if err != nil {
		sp.Close()
		return nil, err
	}
	rd, err := r.Reader(ctx, stream, offset, false)
	if err != nil {
		sp.Close()
		return nil, err
	}
	return closeBoth{rd, sp}, nil
}

type closeBoth struct {
	io.ReadCloser
	sp *spool.Spool
}

func (c closeBoth) Close() error {
	err := c.ReadCloser.Close()
	if serr := c.sp.Close(); err == nil {
		err = serr
	}
	return err
}

// GetExec shows a command.
func (s *Service) GetExec(ctx context.Context, ref string, exec id.Exec) (api.Exec, error) {
	l, err := s.live(ctx, ref)
	if err != nil {
		return api.Exec{}, err
	}
	st, err := l.execStatus(ctx, exec)
	return presentExec(l.id, st), err
}

// ListExecs lists every command of a session, oldest first: the agent's and the clients'.
func (s *Service) ListExecs(ctx context.Context, ref string, page api.Page) (api.List[api.Exec], error) {
	l, err := s.live(ctx, ref)
	if err != nil {
		return api.List[api.Exec]{}, err
	}
	all, err := l.reader().List(ctx)
	if err != nil {
		return api.List[api.Exec]{}, err
	}
	return pageOf(list(all, func(st sandbox.ExecStatus) api.Exec { return presentExec(l.id, st) }).Data, func(x api.Exec) string { return x.ID }, page)
}

// WaitExec returns when a command has ended. It survives suspend and resume in between.
func (s *Service) WaitExec(ctx context.Context, ref string, exec id.Exec) (api.Exec, error) {
	l, err := s.live(ctx, ref)
	if err != nil {
		return api.Exec{}, err
	}
	st, err := l.waitExec(ctx, exec)
	return presentExec(l.id, st), err
}

// need returns the running sandbox for what makes no sense without it.
func (l *live) need() (sandbox.Sandbox, error) {
	st := l.state()
	if sb := l.current(); sb != nil && st.Workspace.State == session.WorkspaceRunning {
		return sb, nil
	}
	return nil, wrongState(st, "reach into", "running")
}

// SignalExec sends a signal to a command.
func (s *Service) SignalExec(ctx context.Context, ref string, exec id.Exec, signal int) error {
	return s.within(ctx, ref, exec, func(sb sandbox.Sandbox) error { return sb.Execs().Signal(ctx, exec, signal) })
}

// WriteStdin writes to a command's standard input at an offset.
func (s *Service) WriteStdin(ctx context.Context, ref string, exec id.Exec, offset int64, data []byte, eof bool) error {
	if len(data) == 0 && !eof { // a question, which wakes nothing
		l, err := s.live(ctx, ref)
		if err != nil {
			return err
		}
		sb, err := l.need()
		if err != nil {
			return err
		}
		return sb.Execs().Stdin(ctx, exec, offset, nil, false)
	}
	return s.within(ctx, ref, exec, func(sb sandbox.Sandbox) error { return sb.Execs().Stdin(ctx, exec, offset, data, eof) })
}

// ResizeExec sets the size of a command's terminal.
func (s *Service) ResizeExec(ctx context.Context, ref string, exec id.Exec, size api.TerminalSize) error {
	return s.within(ctx, ref, exec, func(sb sandbox.Sandbox) error {
		return sb.Execs().Resize(ctx, exec, sandbox.TerminalSize{Rows: size.Rows, Cols: size.Cols})
	})
}

// ExecOutput reads what a command wrote, from an offset. Following goes on across suspend and resume.
func (s *Service) ExecOutput(ctx context.Context, ref string, exec id.Exec, stream string, offset int64, follow bool) (io.ReadCloser, error) {
	l, err := s.live(ctx, ref)
	if err != nil {
		return nil, err
	}
	if stream != string(sandbox.Stdout) && stream != string(sandbox.Stderr) {
		return nil, errdefs.New(errdefs.Invalid, "unknown_stream", "there is no stream %q", stream).WithHint("use stdout or stderr")
	}
	return l.reader().Output(ctx, exec, sandbox.Stream(stream), offset, follow)
}
