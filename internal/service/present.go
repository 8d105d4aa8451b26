package service

import (
	"context"
	"time"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/layer"
	"perdure.dev/perdure/internal/sandbox"
	"perdure.dev/perdure/internal/session"
	"perdure.dev/perdure/internal/store"
)

func presentSummary(s session.Summary) api.Session {
	out := api.Session{
		ID: string(s.ID), Name: s.Name, Status: string(s.Status), StopReason: s.StopReason, Goal: s.Goal, Model: s.Spec.Model,
		CreatedAt: s.CreatedAt, UpdatedAt: s.UpdatedAt, LastSeq: uint64(s.HeadSeq),
		Workspace: api.Workspace{
			ID: string(s.Workspace.ID), State: string(s.Workspace.State), Driver: s.Workspace.Driver, Image: s.Spec.Image,
			SandboxID: string(s.Workspace.SandboxID), CheckpointID: string(s.Workspace.Base), Missing: append([]string{}, s.Workspace.Missing...), IdleReasons: []api.IdleReason{},
		},
		Usage: api.Usage{
			InputTokens: s.Usage.Input, OutputTokens: s.Usage.Output, CachedTokens: s.Usage.Cached, CostMicros: s.Usage.CostMicros,
			Steps: s.Steps,
		},
		Limits: presentLimits(s.Spec.Limits), Idle: presentIdle(s.Spec.Idle), Checkpoints: presentCheckpoints(s.Spec.Checkpoints),
	}
	if s.Fork != nil {
		out.Parent = &api.Parent{SessionID: string(s.Fork.ParentID), CheckpointID: string(s.Fork.CheckpointID), CutSeq: uint64(s.Fork.CutSeq)}
	}
	return out
}

// detail adds what is in single events, looking from the end of the log.
func (s *Service) detail(ctx context.Context, sid id.Session, out *api.Session) error {
	const window = 500 // further back than this, what happened last does not matter any more
	after := event.Seq(0)
	if out.LastSeq > window {
		after = event.Seq(out.LastSeq - window)
	}
	for e, err := range readAll(ctx, s.cfg.Log, sid, after) {
		if err != nil {
			return err
		}
		p, err := event.Decode(e)
		if err != nil {
			return err
		}
		switch d := p.(type) {
		case *event.WorkspaceResumedData:
			r := presentReport(d.Report)
			out.ResumeReport, out.Workspace.Cause = &r, ""
		case *event.WorkspaceLostData:
			out.Workspace.Cause = d.Cause
		case *event.SessionFailedData:
			out.StopMessage, out.StopCode = d.Message, d.Code
		case *event.SessionFinishedData:
			out.Result = d.Result
		case *event.LimitData:
			if e.Type == event.LimitReached {
				out.StopMessage, out.StopCode = "limit reached: "+d.Limit, "limit_reached"
			}
		case *event.TurnStartedData:
			out.StopMessage, out.StopCode = "", ""
		}
	}
	return nil
}

func presentReport(r event.ResumeReport) api.ResumeReport {
	return api.ResumeReport{
		Layers: append([]string{}, r.Layers...), Processes: r.Processes, ClockStepMS: r.ClockStepMS,
		Reset: append([]string{}, r.Reset...), Lost: append([]string{}, r.Lost...), DurationMS: r.DurationMS,
		Devolved: list(r.Devolved, presentDevolved).Data, Hooks: list(r.Hooks, presentHook).Data,
	}
}

func presentHook(h event.HookRun) api.HookRun {
	return api.HookRun{Occasion: h.Occasion, Name: h.Name, ExitCode: h.ExitCode, Cause: h.Cause, Output: h.Output, DurationMS: h.DurationMS}
}

func presentDevolved(d event.WorkspaceDevolvedData) api.Devolved {
	return api.Devolved{
		CheckpointID: string(d.CheckpointID), Layer: d.Layer, Code: d.Code, Reason: d.Reason,
		Commands: list(d.Commands, func(c event.LostCommand) api.LostCommand {
			return api.LostCommand{ExecID: string(c.ExecID), Kind: c.Kind, Argv: append([]string{}, c.Argv...), Label: c.Label, Background: c.Background}
		}).Data,
	}
}

func presentLimits(l event.Limits) api.Limits {
	return api.Limits{
		Steps: l.Steps, TotalTokens: l.TotalTokens, CostMicros: l.CostMicros, TurnTimeMS: l.TurnTime.Milliseconds(),
		MemoryBytes: l.MemoryBytes, DiskBytes: l.DiskBytes, Files: l.Files, Processes: l.Processes, OpenFiles: l.OpenFiles, SnapshotBytes: l.Snapshots, ContextTokens: l.ContextSize,
	}
}

func limitsOf(l api.Limits) event.Limits {
	return event.Limits{
		Steps: l.Steps, TotalTokens: l.TotalTokens, CostMicros: l.CostMicros, TurnTime: time.Duration(l.TurnTimeMS) * time.Millisecond,
		MemoryBytes: l.MemoryBytes, DiskBytes: l.DiskBytes, Files: l.Files, Processes: l.Processes, OpenFiles: l.OpenFiles, Snapshots: l.SnapshotBytes, ContextSize: l.ContextTokens,
	}
}

func presentEvent(e event.Event) api.Event {
	return api.Event{
		ID: string(e.ID), Seq: uint64(e.Seq), Type: string(e.Type), SessionID: string(e.SessionID), ActorID: string(e.ActorID),
		CreatedAt: e.CreatedAt, CausationID: string(e.CausationID), Data: e.Data, Hash: e.Hash,
	}
}

func presentCheckpoint(c store.Checkpoint) api.Checkpoint {
	out := api.Checkpoint{
		ID: string(c.ID), SessionID: string(c.SessionID), Seq: uint64(c.CutSeq), State: string(c.State), Kind: string(c.Kind),
		Message: c.Message, Keep: c.Keep, CreatedAt: c.CreatedAt, Memory: c.Memory, MemoryBytes: c.MemoryBytes, FileBytes: c.FileBytes,
		PauseMS: c.PauseMS, Layers: make([]string, len(c.Layers)), ParentID: string(c.ParentID), Error: c.FailMessage,
	}
	for i, l := range c.Layers {
		out.Layers[i] = string(l)
	}
	return out
}

func presentExec(sess id.Session, st sandbox.ExecStatus) api.Exec {
	out := api.Exec{
		ID: string(st.ID), SessionID: string(sess), State: string(st.State), ExitCode: st.ExitCode, Signal: st.Signal, Cause: st.Cause, TimedOut: st.TimedOut,
		StdoutSize: st.StdoutSize, StderrSize: st.StderrSize, StdinSize: st.StdinSize, Kind: string(st.Spec.Kind), Argv: st.Spec.Argv, Code: st.Spec.Code, Dir: st.Spec.Dir,
		User: st.Spec.User, TTY: st.Spec.TTY != nil, Background: st.Spec.Background, Label: st.Spec.Label, PID: st.PID, StartedAt: st.StartedAt,
	}
	if !st.EndedAt.IsZero() {
		out.EndedAt = &st.EndedAt
	}
	return out
}

func presentFile(path string, f sandbox.FileInfo) api.FileInfo {
	out := api.FileInfo{Name: f.Name, Path: path, Type: api.TypeOther, Size: f.Size, Mode: octal(uint32(f.Mode.Perm())), ModTime: f.ModTime, Target: f.Target}
	switch {
	case f.Mode.IsRegular():
		out.Type = api.TypeFile
	case f.Mode.IsDir():
		out.Type = api.TypeDirectory
	case f.Target != "":
		out.Type = api.TypeSymlink
	}
	return out
}

func octal(mode uint32) string {
	const digits = "01234567"
	return string([]byte{'0', digits[mode>>6&7], digits[mode>>3&7], digits[mode&7]})
}

func presentProcess(p sandbox.Process) api.Process {
	return api.Process{PID: p.PID, PPID: p.PPID, Args: append([]string{}, p.Args...), State: p.State, RSSBytes: p.RSS, ExecID: string(p.Exec)}
}

func presentOp(op layer.Op) string {
	if op == layer.Modified {
		return "changed"
	}
	return string(op)
}

// list makes a whole list of an unpaged one.
func list[A, B any](in []A, f func(A) B) api.List[B] {
	out := api.List[B]{Data: make([]B, len(in))}
	for i, a := range in {
		out.Data[i] = f(a)
	}
	return out
}

// pageOf cuts a page out of a whole list whose elements have ids.
func pageOf[T any](all []T, idOf func(T) string, p api.Page) (api.List[T], error) {
	from := 0
	if p.After != "" {
		found := false
		for i, x := range all {
			if idOf(x) == p.After {
				from, found = i+1, true
			}
		}
		if !found {
			return api.List[T]{}, errdefs.New(errdefs.Invalid, "unknown_cursor", "%q is not in this list", p.After)
		}
	}
	to := len(all)
	if p.Limit > 0 {
		to = min(to, from+p.Limit)
	}
	return api.List[T]{Data: all[from:to], HasMore: to < len(all)}, nil
}
