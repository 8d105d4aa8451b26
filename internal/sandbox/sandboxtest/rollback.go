package sandboxtest

import (
	"context"
	"strings"
	"testing"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/sandbox"
)

func rollback(t *testing.T, b *bench) {
	b.need(b.caps.Memory, "Memory")
	s := b.start()
	counter := b.begin(s, sandbox.ExecSpec{Kind: sandbox.ExecProcess, Stdin: true, Argv: []string{
		"python3", "-uc", "n = 0\nwhile True:\n  input(); n += 1; open('/root/n', 'w').write(str(n)); print('n', n)"}})
	count := func(s sandbox.Sandbox, stdin int64, want string) {
		t.Helper()
		if err := s.Execs().Stdin(b.ctx(), counter, stdin, []byte("\n"), false); err != nil {
			t.Fatal(err)
		}
		b.until("it says "+want, func() bool { return strings.HasSuffix(b.output(s, counter, sandbox.Stdout), want+"\n") })
	}
	count(s, 0, "n 1")
	warm, layers := b.checkpoint(s, b.spec, false)
	count(s, 1, "n 2")
	later := b.begin(s, execOf("sleep", "1000"))
	old := b.spec
	b.spec = b.next()
	b.spec.Root.Layers = layers
	next, err := b.driver.Rollback(b.ctx(), s, b.spec, warm.Image())
	if err != nil {
		t.Fatal(err)
	}
	b.keep(next, b.spec)
	if st := b.state(s); st.State != sandbox.Dead {
		t.Errorf("the old one is %s", st.State)
	}
	noTrace(t, old)
	if got := b.ok(next, "cat /root/n"); got != "1" {
		t.Errorf("the file says %s", got)
	}
	count(next, 1, "n 1\nn 2") // from one to two, once more
	st, err := next.Execs().Status(b.ctx(), later)
	if err != nil || st.State != sandbox.ExecLost || st.ExitCode != nil || st.Cause == "" {
		t.Errorf("a command of the timeline that was left: %+v, %v", st, err)
	}
}

func failedRollback(t *testing.T, b *bench) {
	b.need(b.caps.Memory, "Memory")
	s := b.start()
	cat := b.begin(s, sandbox.ExecSpec{Kind: sandbox.ExecProcess, Stdin: true, Argv: []string{"cat"}})
	say := func(offset int64, line, all string) {
		t.Helper()
		if err := s.Execs().Stdin(b.ctx(), cat, offset, []byte(line), false); err != nil {
			t.Fatal(err)
		}
		b.until("it has said "+line, func() bool { return b.output(s, cat, sandbox.Stdout) == all })
	}
	say(0, "before\n", "before\n")
	spec := b.next()
	_, err := b.driver.Rollback(b.ctx(), s, spec, sandbox.Image{Dir: b.dir, Driver: b.driver.Name(), Version: b.caps.Version})
	if err == nil {
		t.Fatal("a missing image was restored")
	}
	noTrace(t, spec)
	if st := b.state(s); st.State != sandbox.Running {
		t.Errorf("the old one is %s", st.State)
	}
	say(7, "after\n", "before\nafter\n")
	if st, err := s.Execs().Status(b.ctx(), cat); err != nil || st.State != sandbox.ExecRunning {
		t.Errorf("its command: %+v, %v", st, err)
	}
	b.ok(s, "true")
}

func memoryUnsupported(t *testing.T, b *bench) {
	b.need(!b.caps.Memory, "no Memory")
	s := b.start()
	image := sandbox.Image{Dir: b.dir, Driver: b.driver.Name(), Version: b.caps.Version}
	_, restoreErr := b.driver.Restore(b.ctx(), b.next(), image)
	_, rollbackErr := b.driver.Rollback(b.ctx(), s, b.next(), image)
	for what, err := range map[string]error{"restore": restoreErr, "rollback": rollbackErr} {
		if errdefs.CodeOf(err) != "memory_unsupported" || errdefs.KindOf(err) != errdefs.Conflict {
			t.Errorf("%s: %v", what, err)
		}
	}
	cut := false
	_, err := s.Checkpoint(b.ctx(), sandbox.CheckpointRequest{Dir: b.mkdir("images/none"), Cut: func(context.Context) error { cut = true; return nil }})
	if err != nil || !cut {
		t.Errorf("a checkpoint of the files alone: cut %t, %v", cut, err)
	}
	b.ok(s, "true")
}
