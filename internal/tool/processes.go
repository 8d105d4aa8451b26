package tool

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"syscall"

	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/model"
	"perdure.dev/perdure/internal/sandbox"
)

type processArgs struct {
	Action string `json:"action"`
	Exec   string `json:"exec_id"`
	Stream string `json:"stream"`
	Offset int64  `json:"offset"`
	Signal string `json:"signal"`
}

func processesTool() Tool {
	return Tool{
		Class: ClassRepeat,
		Spec: model.ToolSpec{
			Name: "processes",
			Description: "Look after background commands. action=list shows them with their exec ids and states, and all processes of the workspace; " +
				"action=read returns the output of one, from a byte offset; action=kill ends one with its whole process group.",
			Schema: schema(`"action":{"type":"string","enum":["list","read","kill"]},`+
				`"exec_id":{"type":"string","description":"for read and kill"},`+
				`"stream":{"type":"string","enum":["stdout","stderr"],"description":"for read; default stdout"},`+
				`"offset":{"type":"integer","minimum":0,"description":"for read: the first byte; default 0"},`+
				`"signal":{"type":"string","enum":["TERM","INT","HUP","KILL"],"description":"for kill; default TERM"}`, "action"),
		},
		Run: func(ctx context.Context, env Env, call Call) (Result, error) {
			var a processArgs
			if err := decode(call.Args, &a); err != nil {
				return Result{}, err
			}
			if a.Action != "list" && !id.ValidExternal(a.Exec) {
				return Result{}, badArg("action %q needs an exec_id", a.Action)
			}
			switch a.Action {
			case "list":
				return env.listProcesses(ctx)
			case "read":
				return env.readOutput(ctx, a)
			case "kill":
				return env.kill(ctx, a)
			}
			return Result{}, badArg("action must be list, read or kill, not %q", a.Action)
		},
	}
}

func (e Env) listProcesses(ctx context.Context) (Result, error) {
	all, err := e.Sandbox.Execs().List(ctx)
	if err != nil {
		return Result{}, err
	}
	var b strings.Builder
	for _, st := range all {
		if !st.Spec.Background && st.State != sandbox.ExecRunning {
			continue // foreground commands that have ended have told their result
		}
		fmt.Fprintf(&b, "%s  %s  %s\n", st.ID, describe(st), st.Spec.Label)
	}
	if b.Len() == 0 {
		b.WriteString("no background commands\n")
	}
	procs, err := e.Sandbox.Files().Processes(ctx)
	if err != nil {
		return Result{}, err
	}
	sort.Slice(procs, func(i, j int) bool { return procs[i].PID < procs[j].PID })
	b.WriteString("\nPID  PPID  STATE  RSS_KB  COMMAND\n")
	for _, p := range procs {
		fmt.Fprintf(&b, "%d  %d  %s  %d  %s", p.PID, p.PPID, p.State, p.RSS/1024, firstLine(strings.Join(p.Args, " "), 120))
		if p.Exec != "" {
			fmt.Fprintf(&b, "  (%s)", p.Exec)
		}
		b.WriteByte('\n')
	}
	return e.text(ctx, "processes.txt", b.String())
}

func describe(st sandbox.ExecStatus) string {
	size := fmt.Sprintf("stdout %d bytes, stderr %d bytes", st.StdoutSize, st.StderrSize)
	switch {
	case st.State == sandbox.ExecRunning:
		return fmt.Sprintf("running (pid %d; %s)", st.PID, size)
	case st.State == sandbox.ExecLost:
		return fmt.Sprintf("lost: %s (%s)", orElse(st.Cause, "its sandbox died"), size)
	case st.TimedOut:
		return "timed out (" + size + ")"
	case st.Signal != "":
		return fmt.Sprintf("killed by %s (%s)", st.Signal, size)
	case st.ExitCode != nil:
		return fmt.Sprintf("exited with code %d (%s)", *st.ExitCode, size)
	}
	return "ended (" + size + ")"
}

func (e Env) readOutput(ctx context.Context, a processArgs) (Result, error) {
	st, err := e.Sandbox.Execs().Status(ctx, id.Exec(a.Exec))
	if err != nil {
		return Result{}, err
	}
	stream, size := sandbox.Stdout, st.StdoutSize
	switch a.Stream {
	case "", "stdout":
	case "stderr":
		stream, size = sandbox.Stderr, st.StderrSize
	default:
		return Result{}, badArg("stream must be stdout or stderr, not %q", a.Stream)
	}
	if a.Offset < 0 {
		return Result{}, badArg("offset must not be negative")
	}
	if a.Offset >= size {
		return ok("[%s; nothing after byte %d of %s]", describe(st), a.Offset, stream), nil
	}
	r, err := e.Sandbox.Execs().Output(ctx, st.ID, stream, a.Offset, false)
	if err != nil {
		return Result{}, err
	}
	defer r.Close()
	n := min(size-a.Offset, int64(e.maxOutput()))
	buf := make([]byte, n)
	got, err := readFull(r, buf)
	if err != nil {
		return Result{}, err
	}
	head, _ := trimRunes(buf[:got], nil)
	if a.Offset+int64(got) == size {
		head = buf[:got] // the stream's own end, not a cut of ours
	}
	end := a.Offset + int64(len(head))
	return ok("%s", join(clean(head), fmt.Sprintf("[%s; bytes %d to %d of %s; go on with offset=%d]", describe(st), a.Offset, end, stream, end))), nil
}

func (e Env) kill(ctx context.Context, a processArgs) (Result, error) {
	signals := map[string]syscall.Signal{"": syscall.SIGTERM, "TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "HUP": syscall.SIGHUP, "KILL": syscall.SIGKILL}
	sig, found := signals[a.Signal]
	if !found {
		return Result{}, badArg("signal must be TERM, INT, HUP or KILL, not %q", a.Signal)
	}
	execs := e.Sandbox.Execs()
	st, err := execs.Status(ctx, id.Exec(a.Exec))
	if err != nil {
		return Result{}, err
	}
	if st.State != sandbox.ExecRunning {
		return ok("%s had already ended: %s", st.ID, describe(st)), nil
	}
	if err := execs.Signal(ctx, st.ID, int(sig)); err != nil {
		return Result{}, err
	}
	return ok("sent %s to %s", sig, st.ID), nil
}
