package service

import (
	"context"
	"slices"
	"syscall"
	"time"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/layer"
	"perdure.dev/perdure/internal/sandbox"
	"perdure.dev/perdure/internal/session"
)

// The disk is measured again after quotaEvery, or after quotaShare times as long as measuring took, whichever is longer.
const (
	quotaEvery = time.Second
	quotaShare = 20
)

// The JSON names of limits in event.Limits.
const (
	limitDisk  = "disk_bytes"
	limitFiles = "files"
)

// watchDisk bounds the files of a workspace while sb runs it. A file system that could be bounded from below is not to be had
// everywhere, so the limit is kept by looking: a program that writes beyond it is killed, and what it wrote stays for the session to
// tidy up. Between two looks it can be exceeded.
func (l *live) watchDisk(sb sandbox.Sandbox) {
	limits := l.state().Spec.Limits
	q := quota{live: l, sandbox: sb}
	if limits.DiskBytes > 0 {
		q.bounds = append(q.bounds, &bound{name: limitDisk, limit: limits.DiskBytes, of: func(u layer.Usage) int64 { return u.Bytes }})
	}
	if limits.Files > 0 {
		q.bounds = append(q.bounds, &bound{name: limitFiles, limit: limits.Files, of: func(u layer.Usage) int64 { return u.Files }})
	}
	if len(q.bounds) == 0 {
		return
	}
	l.svc.goroutine(func(ctx context.Context) {
		for l.current() == sb {
			began := l.svc.cfg.Clock.Now()
			if err := q.look(ctx); err != nil && ctx.Err() == nil {
				l.svc.cfg.Logger.Warn("cannot measure the files of a workspace", "session", l.id, "error", err)
			}
			took := l.svc.cfg.Clock.Now().Sub(began)
			if l.svc.cfg.Clock.Sleep(ctx, max(quotaEvery, quotaShare*took)) != nil {
				return
			}
		}
	})
}

// quota follows one sandbox's files.
type quota struct {
	live    *live
	sandbox sandbox.Sandbox
	bounds  []*bound
}

// bound is one limit on files.
type bound struct {
	name  string
	limit int64
	of    func(layer.Usage) int64

	growth
	warned bool
}

// growth decides from successive sizes when programs are to be killed.
type growth struct {
	over    int64 // how much there was when the killed had ended; 0: it is below the limit
	kills   int   // how often programs were killed, since it was below
	settles bool  // programs have been killed since the last look
}

// exceeded reports whether used is a reason to kill. The look after a kill only says where the killed left off: they wrote on between
// the look and their end, and whoever started since is not to pay for it.
func (g *growth) exceeded(used, limit int64) bool {
	settles := g.settles
	g.settles = false
	switch {
	case used <= limit:
		g.over, g.kills = 0, 0
		return false
	case settles:
		g.over = used
		return false
	case used <= g.over:
		return false
	}
	g.over, g.settles = used, true
	g.kills++
	return true
}

func (q *quota) look(ctx context.Context) error {
	dirs, err := q.live.files(ctx)
	if err != nil {
		return err
	}
	var all layer.Usage
	for _, dir := range dirs {
		u, err := layer.DiskUsage(ctx, dir)
		if err != nil {
			return err
		}
		all.Bytes, all.Files = all.Bytes+u.Bytes, all.Files+u.Files
	}
	for _, b := range q.bounds {
		used := b.of(all)
		if b.exceeded(used, b.limit) {
			if err := q.enforce(ctx, b, used); err != nil {
				return err
			}
		} else if used*10 >= b.limit*8 && !b.warned {
			b.warned = true
			if err := q.tell(ctx, event.LimitWarned, b, used); err != nil {
				return err
			}
		}
	}
	return nil
}

// maxKills is how often programs are killed before the sandbox is paused: something writes on that no command leads to, since it has
// left its command's group and session and dropped the mark in its environment.
const maxKills = 5

// enforce kills the commands that run, and what commands that have ended left behind. Whoever comes next may run, so that files can be
// deleted, until the files grow again.
func (q *quota) enforce(ctx context.Context, b *bound, used int64) error {
	if b.kills > maxKills {
		return q.live.operate(ctx, func() error {
			if q.live.current() != q.sandbox || q.live.state().Workspace.State != session.WorkspaceRunning {
				return nil
			}
			return q.live.pause(ctx, "")
		})
	}
	writers, err := q.writers(ctx)
	if err != nil {
		return err
	}
	for _, x := range writers {
		err := q.sandbox.Execs().Signal(ctx, x, int(syscall.SIGKILL))
		if err != nil && errdefs.CodeOf(err) != "exec_not_found" {
			q.live.svc.cfg.Logger.Warn("cannot kill a command", "session", q.live.id, "exec", x, "error", err)
		}
	}
	if b.kills > 1 {
		return nil
	}
	return q.tell(ctx, event.LimitReached, b, used)
}

// writers returns the commands that may be writing: those that run, and those that have ended but have processes left.
func (q *quota) writers(ctx context.Context) ([]id.Exec, error) {
	all, err := q.sandbox.Execs().List(ctx)
	if err != nil {
		return nil, err
	}
	var out []id.Exec
	for _, x := range all {
		if x.State == sandbox.ExecRunning {
			out = append(out, x.ID)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, processTime)
	defer cancel()
	procs, err := q.sandbox.Files().Processes(ctx)
	if err != nil { // the ones that run are something
		q.live.svc.cfg.Logger.Warn("cannot list the processes of a workspace", "session", q.live.id, "error", err)
	}
	for _, p := range procs {
		if p.Exec != "" && !slices.Contains(out, p.Exec) {
			out = append(out, p.Exec)
		}
	}
	return out, nil
}

func (q *quota) tell(ctx context.Context, what event.Type, b *bound, used int64) error {
	_, err := q.live.append(ctx, event.Draft{Type: what, ActorID: systemActor, Data: event.LimitData{Limit: b.name, Used: used, Max: b.limit}})
	return err
}
