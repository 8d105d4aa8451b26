package sandboxtest

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/sandbox"
)

func exitCodes(t *testing.T, b *bench) {
	s := b.start()
	for script, want := range map[string]int{"exit 0": 0, "exit 7": 7, "exit 255": 255, "echo out; echo err >&2; exit 3": 3} {
		r := b.run(s, script)
		if r.State != sandbox.ExecExited || code(r.ExecStatus) != want {
			t.Errorf("%q: state %s, code %v, want %d", script, r.State, code(r.ExecStatus), want)
		}
	}
	killed := b.run(s, "kill -9 $$")
	if killed.ExitCode != nil || killed.Signal != "SIGKILL" {
		t.Errorf("killed: code %v, signal %q", code(killed.ExecStatus), killed.Signal)
	}
	exec := id.NewExec()
	_, err := s.Execs().Start(b.ctx(), sandbox.ExecSpec{ID: exec, Kind: sandbox.ExecProcess, Argv: []string{"/no/such/program"}})
	if errdefs.CodeOf(err) != "command_not_found" {
		t.Errorf("missing command: %v", err)
	}
	if st, err := s.Execs().Status(b.ctx(), exec); err != nil || code(st) != 127 {
		t.Errorf("missing command: status %+v, %v; want code 127", st, err)
	}
	if _, err := s.Execs().Status(b.ctx(), "exec_nobody"); errdefs.CodeOf(err) != "exec_not_found" {
		t.Errorf("unknown exec: %v", err)
	}
}

func idempotent(t *testing.T, b *bench) {
	s := b.start()
	spec := sandbox.ExecSpec{ID: id.NewExec(), Kind: sandbox.ExecProcess, Argv: []string{"/bin/sh", "-c", "echo once >> $HOME/count; sleep 0.2"}}
	for range 5 {
		b.begin(s, spec)
	}
	b.wait(s, spec.ID)
	b.begin(s, spec) // also when it has ended
	if got := b.ok(s, "cat $HOME/count"); got != "once" {
		t.Errorf("ran more than once:\n%s", got)
	}
}

func oneStep(t *testing.T, b *bench) {
	s := b.start()
	spec := sandbox.ExecSpec{ID: id.NewExec(), Kind: sandbox.ExecProcess, Argv: []string{"/bin/sh", "-c", "echo >> $HOME/ran; printf 123456; printf oops >&2; exit 3"}}
	for range 2 { // the second joins what has ended
		res, err := s.Execs().Run(b.ctx(), spec, 4)
		if err != nil || code(res.Status) != 3 || string(res.Stdout) != "1234" || string(res.Stderr) != "oops" || res.Status.StdoutSize != 6 {
			t.Errorf("run: %+v, %v", res, err)
		}
	}
	slow := sandbox.ExecSpec{ID: id.NewExec(), Kind: sandbox.ExecProcess, Argv: []string{"/bin/sh", "-c", "until [ -e $HOME/go ]; do sleep 0.02; done; wc -l <$HOME/ran"}}
	b.begin(s, slow)
	ended := make(chan error, 1)
	go func() {
		res, err := s.Execs().Run(b.ctx(), slow, 100)
		if err == nil && strings.TrimSpace(string(res.Stdout)) != "1" {
			err = fmt.Errorf("it gave %+v", res)
		}
		ended <- err
	}()
	b.ok(s, "touch $HOME/go")
	if err := <-ended; err != nil {
		t.Errorf("joining what runs: %v", err)
	}
	missing := sandbox.ExecSpec{ID: id.NewExec(), Kind: sandbox.ExecProcess, Argv: []string{"/no/such/program"}}
	if _, err := s.Execs().Run(b.ctx(), missing, 100); errdefs.CodeOf(err) != "command_not_found" {
		t.Errorf("missing command: %v", err)
	}
}

func output(t *testing.T, b *bench) {
	s := b.start()
	const lines = 200_000
	exec := b.begin(s, sandbox.ExecSpec{Kind: sandbox.ExecProcess, Argv: []string{"seq", "-w", "1", "200000"}})
	follow, err := s.Execs().Output(b.ctx(), exec, sandbox.Stdout, 0, true)
	if err != nil {
		t.Fatal(err)
	}
	defer follow.Close()
	data, err := io.ReadAll(follow)
	if err != nil {
		t.Fatal(err)
	}
	if got := bytes.Count(data, []byte("\n")); got != lines || !bytes.HasPrefix(data, []byte("000001\n")) || !bytes.HasSuffix(data, []byte("200000\n")) {
		t.Fatalf("got %d lines, %d bytes", got, len(data))
	}
	tail, err := s.Execs().Output(b.ctx(), exec, sandbox.Stdout, int64(len(data)-7), false)
	if err != nil {
		t.Fatal(err)
	}
	defer tail.Close()
	if rest, err := io.ReadAll(tail); err != nil || string(rest) != "200000\n" {
		t.Errorf("from an offset: %q, %v", rest, err)
	}
}

func timeout(t *testing.T, b *bench) {
	s := b.start()
	began := time.Now()
	exec := b.begin(s, sandbox.ExecSpec{
		Kind: sandbox.ExecProcess, Argv: []string{"/bin/sh", "-c", "sleep 1234 & sleep 1235"}, Timeout: 300 * time.Millisecond,
	})
	r := b.wait(s, exec)
	if took := time.Since(began); took > 5*time.Second || !r.TimedOut || r.ExitCode != nil {
		t.Errorf("after %v: %+v", took, r.ExecStatus)
	}
	if got := b.run(s, "ps -e -o args | grep -c '[s]leep 123'").out; strings.TrimSpace(got) != "0" {
		t.Errorf("%s processes of the group live on", got)
	}
}

func independent(t *testing.T, b *bench) {
	s := b.start()
	stuck := b.begin(s, sandbox.ExecSpec{Kind: sandbox.ExecProcess, Argv: []string{"sleep", "1000"}, Background: true})
	other := b.begin(s, sandbox.ExecSpec{Kind: sandbox.ExecProcess, Argv: []string{"sleep", "1001"}})
	if err := s.Execs().Signal(b.ctx(), other, int(syscall.SIGTERM)); err != nil {
		t.Fatal(err)
	}
	if r := b.wait(s, other); r.Signal != "SIGTERM" || r.ExitCode != nil {
		t.Errorf("signalled: %+v", r.ExecStatus)
	}
	st, err := s.Execs().Status(b.ctx(), stuck)
	if err != nil || st.State != sandbox.ExecRunning {
		t.Errorf("the other one: %+v, %v", st, err)
	}
	list, err := s.Execs().List(b.ctx())
	if err != nil || len(list) != 2 {
		t.Errorf("list: %d entries, %v", len(list), err)
	}
}

func zombies(t *testing.T, b *bench) {
	s := b.start()
	b.ok(s, "for i in 1 2 3 4 5; do (sh -c 'sleep 0.01 &' ) ; done; sleep 0.3")
	procs, err := s.Files().Processes(b.ctx())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range procs {
		if p.State == "Z" && b.caps.Isolation != "none" { // else these are the host's
			t.Errorf("zombie %+v", p)
		}
	}
	exec := b.begin(s, sandbox.ExecSpec{Kind: sandbox.ExecProcess, Argv: []string{"cat"}, Stdin: true})
	if err := s.Execs().Stdin(b.ctx(), exec, 0, []byte("to the cat"), true); err != nil {
		t.Fatal(err)
	}
	if r := b.wait(s, exec); r.out != "to the cat" {
		t.Errorf("stdin came out as %q", r.out)
	}
	if r := b.run(s, "cat <<EOF\nhere\nEOF\nread x; echo eof=$?"); r.out != "here\neof=1\n" {
		t.Errorf("here-document and closed stdin: %q %q", r.out, r.err)
	}
}
