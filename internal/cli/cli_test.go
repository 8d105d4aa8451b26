package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/cli"
	"perdure.dev/perdure/internal/cli/env"
	"perdure.dev/perdure/internal/cli/system"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/server/servertest"
)

// fakeTerminal is a terminal, or none.
type fakeTerminal struct {
	tty bool
	raw *int // how often it was made raw, less how often restored
}

func (f fakeTerminal) In() bool               { return f.tty }
func (f fakeTerminal) Out() bool              { return f.tty }
func (f fakeTerminal) Err() bool              { return f.tty }
func (f fakeTerminal) Size() api.TerminalSize { return api.TerminalSize{Rows: 33, Cols: 99} }
func (f fakeTerminal) Raw() (func(), error) {
	*f.raw++
	return func() { *f.raw-- }, nil
}
func (f fakeTerminal) Resizes(context.Context) <-chan api.TerminalSize { return nil }

// shell runs command lines against a daemon.
type shell struct {
	t   *testing.T
	d   *servertest.Daemon
	tty bool
	in  io.Reader
	env map[string]string
}

type result struct {
	code     int
	out, err string
}

func newShell(t *testing.T) *shell {
	return &shell{t: t, d: servertest.NewDaemon(t), in: strings.NewReader(""), env: map[string]string{"TERM": "xterm"}}
}

func (s *shell) run(args ...string) result {
	s.t.Helper()
	var out, errs bytes.Buffer
	raw := 0
	e := &env.Env{In: s.in, Out: &out, Err: &errs, Getenv: func(k string) string { return s.env[k] }, Terminal: fakeTerminal{s.tty, &raw}}
	code := cli.Run(s.t.Context(), e, nil, append([]string{"--socket", s.d.Socket}, args...))
	if raw != 0 {
		s.t.Errorf("%q leaves the terminal raw", args)
	}
	return result{code, out.String(), errs.String()}
}

// want checks a result's code and that all the texts are in its output.
func (s *shell) want(r result, code int, texts ...string) {
	s.t.Helper()
	if r.code != code {
		s.t.Errorf("exit code %d, want %d; stdout %q, stderr %q", r.code, code, r.out, r.err)
	}
	for _, text := range texts {
		if !strings.Contains(r.out+r.err, text) {
			s.t.Errorf("no %q in stdout %q, stderr %q", text, r.out, r.err)
		}
	}
}

// parse reads a --json result.
func parse[T any](t *testing.T, r result) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(r.out), &v); err != nil {
		t.Fatalf("not JSON: %v: %q, stderr %q", err, r.out, r.err)
	}
	return v
}

func TestSessionsOnTheCommandLine(t *testing.T) {
	s := newShell(t)
	s.want(s.run("create", "invoices"), 0, "invoices\tsess_")
	s.want(s.run("ls"), 0, "NAME", "invoices", "running")
	s.want(s.run("show", "invoices"), 0, "idle")
	s.want(s.run("pause", "invoices"), 0, "invoices is paused")
	s.want(s.run("resume", "invoices"), 0, "invoices is running")
	s.want(s.run("suspend", "invoices"), 0, "suspended")
	s.want(s.run("stop", "invoices"), 0, "stopped")
	s.want(s.run("send", "invoices", "hello", "--steer"), 0, "event 6")
	s.want(s.run("events", "invoices"), 0, "session.created", "message.user", "hello")
	s.want(s.run("events", "invoices", "--after", "5"), 0, "    6 ")
	s.want(s.run("wait", "invoices", "--for", "stopped"), 0, "invoices is idle")
	s.want(s.run("wait", "invoices", "--for", "lost", "--timeout", "20ms"), 6, "wait_timeout")
	s.want(s.run("timeline", "invoices"), 0, "events 1–6")
	s.want(s.run("transcript", "invoices"), 0, "> hello")
	s.want(s.run("cancel", "invoices"), 0)
	s.want(s.run("ps", "invoices"), 0, "sleep 60")
	s.want(s.run("diff", "invoices", "invoices@x"), 0, "~ /root/a")
	s.want(s.run("doctor"), 0, "! kernel: no KVM")
	s.want(s.run("rm", "invoices"), 0, "deleted")
	s.want(s.run("show", "invoices"), 3, "session_not_found", "hint: List them with")
}

func TestJSONOnTheCommandLine(t *testing.T) {
	s := newShell(t)
	made := parse[api.Session](t, s.run("create", "invoices", "--json", "--memory", "512M", "--max-steps", "7"))
	if made.Limits.MemoryBytes != 512<<20 || made.Limits.Steps != 7 {
		t.Errorf("limits = %+v", made.Limits)
	}
	shown := parse[map[string]any](t, s.run("--json", "show", "invoices"))
	for _, key := range []string{"id", "name", "status", "stop_reason", "workspace", "parent", "usage", "last_seq"} {
		if _, ok := shown[key]; !ok {
			t.Errorf("show has no %s: %v", key, shown)
		}
	}
	list := parse[map[string]any](t, s.run("ls", "--json"))
	if list["has_more"] != false || len(list["data"].([]any)) != 1 {
		t.Errorf("ls = %v", list)
	}
	k := parse[api.Checkpoint](t, s.run("checkpoint", "invoices", "-m", "loaded", "--keep", "--json"))
	if k.ID == "" || k.SessionID != made.ID || k.State != "warm" || !k.Keep {
		t.Errorf("checkpoint = %+v", k)
	}
	forks := parse[api.List[api.Session]](t, s.run("fork", "invoices@loaded", "-n", "3", "--json"))
	if len(forks.Data) != 3 || forks.Data[0].Parent == nil {
		t.Errorf("fork = %+v", forks)
	}
	plan := parse[api.RollbackPlan](t, s.run("rollback", "invoices", "loaded", "--dry-run", "--json"))
	if !plan.DryRun || plan.CheckpointID != "loaded" {
		t.Errorf("rollback = %+v", plan)
	}
	exec := parse[map[string]any](t, s.run("exec", "invoices", "--json", "--", "sh", "-c", "echo out; echo err >&2"))
	if exec["exit_code"] != 0.0 || exec["stdout"] != "out\n" || exec["stderr"] != "err\n" || exec["id"] == "" {
		t.Errorf("exec = %v", exec)
	}
	events := parse[api.List[api.Event]](t, s.run("events", "invoices", "--json"))
	if len(events.Data) != 1 || events.Data[0].Type != "session.created" {
		t.Errorf("events = %+v", events)
	}
	version := parse[api.BuildInfo](t, s.run("version", "--json"))
	if version.Go == "" {
		t.Errorf("version = %+v", version)
	}
	r := s.run("show", "nobody", "--json")
	var p api.Problem
	if err := json.Unmarshal([]byte(r.err), &p); err != nil || p.Code != "session_not_found" || r.code != 3 || r.out != "" {
		t.Errorf("error = %+v", r)
	}
}

func TestUsageErrors(t *testing.T) {
	s := newShell(t)
	for _, args := range [][]string{
		{"fly"}, {"show"}, {"show", "a", "b"}, {"ls", "--bogus"}, {"exec", "a"}, {"exec", "a", "--id", "a/b", "--", "true"}, {"wait", "a", "--timeout", "x"},
		{"send", "a", ""}, {"send", "a", "x", "--steer", "--queue"}, {"fork", "a@"}, {"fork", "a", "-n", "0"}, {"cp", "a", "b"}, {"cp", "a:/x", "b:/y"},
		{"rollback", "a"}, {"run", ""}, {"create", "x", "--memory", "lots"}, {"exec", "a", "-d"}, {"events", "a", "-f", "--limit", "3"},
	} {
		if r := s.run(args...); r.code != 2 || !strings.HasPrefix(r.err, "perdure: ") {
			t.Errorf("%q = %d, %q", args, r.code, r.err)
		}
	}
}

func TestUsageErrorsInJSON(t *testing.T) {
	s := newShell(t)
	r := s.run("exec", "a", "--json", "-t", "--", "true")
	var p api.Problem
	if err := json.Unmarshal([]byte(r.err), &p); err != nil || r.code != 2 || p.Code != "usage" {
		t.Errorf("exec --json -t = %+v", r)
	}
}

func TestExitCodesOfErrors(t *testing.T) {
	s := newShell(t)
	s.want(s.run("create", "a"), 0)
	s.want(s.run("create", "a"), 4, "name_taken")
	s.want(s.run("undo", "a"), 4, "nothing_to_undo")
	s.want(s.run("create", "In voices"), 2, "body.name")
	s.d.Backend.FailCreate(errdefs.New(errdefs.Denied, "no", "not you"))
	s.want(s.run("create", "b"), 5, "not you")
	s.d.Backend.FailCreate(errors.New("broken"))
	s.want(s.run("create", "b"), 1, "broken")
	s.d.Kill()
	var errs bytes.Buffer
	e := &env.Env{In: s.in, Out: io.Discard, Err: &errs, Getenv: func(string) string { return "" }, Terminal: fakeTerminal{raw: new(int)},
		Data: t.TempDir(),
		Spawn: func(context.Context, string, string, ...string) error {
			return errdefs.New(errdefs.Unavailable, "daemon_not_started", "no")
		}}
	if code := cli.Run(t.Context(), e, nil, []string{"--data", t.TempDir(), "ls"}); code != 7 {
		t.Errorf("no daemon = %d, %s", code, errs.String())
	}
}

func TestX3_ExecPassesTheExitCodeThrough(t *testing.T) {
	s := newShell(t)
	s.run("create", "a")
	s.want(s.run("exec", "a", "--", "sh", "-c", "echo out; exit 42"), 42, "out\n")
	s.want(s.run("exec", "a", "--", "sh", "-c", "kill -9 $$"), 137)
	s.want(s.run("exec", "a", "--timeout", "50ms", "--", "sleep", "60"), 6, "exec_timeout")
	s.want(s.run("exec", "a", "--", "no-such-program"), 127, "command_not_found")
	s.want(s.run("exec", "nobody", "--", "true"), 3, "session_not_found")
	s.want(s.run("exec", "a", "--json", "--", "sh", "-c", "exit 5"), 5, `"exit_code": 5`)
	s.want(s.run("exec", "a", "--json", "--", "sh", "-c", "kill -9 $$"), 137, `"exit_code": null`)
	s.want(s.run("exec", "a", "-e", "X=1", "-e", "TERM", "--", "sh", "-c", "echo $X$TERM"), 0, "1xterm\n")
	// An id is run once, whoever asks.
	s.want(s.run("exec", "a", "--id", "once", "--", "sh", "-c", "echo $$; exit 3"), 3)
	first := s.run("exec", "a", "--id", "once")
	s.want(first, 3)
	if again := s.run("exec", "a", "--id", "once", "--", "sh", "-c", "echo $$; exit 3"); again != first {
		t.Errorf("again = %+v, want %+v", again, first)
	}
	if r := s.run("exec", "a", "--json", "--id", "once"); r.code != 3 {
		t.Errorf("--json of an id = %+v", r)
	}
	s.in = strings.NewReader("typed")
	s.want(s.run("exec", "a", "-i", "--", "cat"), 0, "typed")
	s.in = strings.NewReader("exit 8\n")
	s.want(s.run("shell", "a"), 8)
	s.want(s.run("python", "a", "print(6*7)"), 0, "42\n")
	s.want(s.run("exec", "a", "-d", "--id", "bg", "--", "sleep", "60"), 0, "bg\n")
	s.want(s.run("ps", "a", "--execs"), 0, "running", "once")
}

func TestExecInATerminal(t *testing.T) {
	s := newShell(t)
	s.run("create", "a")
	s.tty = true
	s.in = strings.NewReader("stty size; test -t 0 && exit 7\r")
	s.want(s.run("shell", "a"), 7, "33 99")
	s.in = strings.NewReader("")
	s.want(s.run("exec", "a", "-t", "--", "sh", "-c", "stty size; echo $TERM"), 0, "33 99", "xterm")
}

func TestExecGoesOnAcrossARestartOfTheDaemon(t *testing.T) {
	s := newShell(t)
	s.run("create", "a")
	fifo := filepath.Join(s.d.Backend.Root, "go")
	done := make(chan result)
	go func() {
		done <- s.run("exec", "a", "--id", "long", "--", "sh", "-c", "echo before; mkfifo go; read x < go; echo $x; exit 9")
	}()
	for { // until the command waits at its fifo
		if _, err := os.Stat(fifo); err == nil {
			break
		}
	}
	s.d.Kill()
	s.d.Start(t)
	if err := os.WriteFile(fifo, []byte("after\n"), 0); err != nil {
		t.Fatal(err)
	}
	r := <-done
	if r.code != 9 || r.out != "before\nafter\n" {
		t.Errorf("exec = %+v", r)
	}
}

func TestRunFollowsTheSession(t *testing.T) {
	for _, x := range []struct {
		status, reason string
		code           int
	}{{"idle", "answered", 0}, {"finished", "finished", 0}, {"failed", "failed", 1}, {"idle", "limit", 1}, {"idle", "canceled", 1}} {
		s := newShell(t)
		done := make(chan result)
		go func() { done <- s.run("run", "count the rows", "--name", "a") }()
		if _, err := s.d.Backend.WaitSession(waitFor(t, s.d.Backend, "a"), "a", []string{"running"}); err != nil {
			t.Fatal(err)
		}
		for typ, data := range map[string]any{"message.agent": map[string]any{"text": "there are \x1b[31m7"}} {
			if _, err := s.d.Backend.Append("a", typ, data); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.d.Backend.Finish("a", x.status, x.reason); err != nil {
			t.Fatal(err)
		}
		r := <-done
		s.want(r, x.code, "> count the rows", "there are \uFFFD[31m7")
	}
}

// waitFor returns a context once a session exists.
func waitFor(t *testing.T, b *servertest.Backend, name string) context.Context {
	t.Helper()
	for {
		if _, err := b.GetSession(t.Context(), name); err == nil {
			return t.Context()
		}
	}
}

func TestRunDetached(t *testing.T) {
	s := newShell(t)
	s.want(s.run("run", "go", "--name", "a", "--detach"), 0, "a\tsess_")
	if v := parse[api.Session](t, s.run("show", "a", "--json")); v.Status != "running" || v.Goal != "go" {
		t.Errorf("show = %+v", v)
	}
}

func TestCopy(t *testing.T) {
	s := newShell(t)
	s.run("create", "a")
	dir := t.TempDir()
	write := func(name, body string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(body), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	same := func(path, want string) {
		t.Helper()
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s holds %q, %v; want %q", path, got, err, want)
		}
	}
	ws := func(name string) string { return filepath.Join(s.d.Backend.Root, name) }
	write("f", "file")
	write("tree/sub/g", "deep")
	s.want(s.run("cp", dir+"/f", "a:/data/f2"), 0)
	same(ws("data/f2"), "file")
	s.want(s.run("cp", dir+"/f", "a:/data/"), 0)
	same(ws("data/f"), "file")
	s.want(s.run("cp", dir+"/f", "a:/data"), 0)
	s.want(s.run("cp", dir+"/f", "a:rel"), 0)
	same(ws("root/rel"), "file")
	s.want(s.run("cp", dir+"/tree", "a:/data"), 0)
	same(ws("data/tree/sub/g"), "deep")
	s.want(s.run("cp", dir+"/tree", "a:/other"), 0)
	same(ws("other/sub/g"), "deep")
	s.in = strings.NewReader("piped")
	s.want(s.run("cp", "-", "a:/data/p"), 0)
	if r := s.run("cp", "a:/data/p", "-"); r.out != "piped" || r.code != 0 {
		t.Errorf("cp to stdout = %+v", r)
	}
	s.want(s.run("cp", "a:/data/p", dir+"/back"), 0)
	same(dir+"/back", "piped")
	s.want(s.run("cp", "a:/data/tree", dir+"/out"), 0)
	same(dir+"/out/sub/g", "deep")
	s.want(s.run("cp", "a:/data/tree", dir), 0)
	s.want(s.run("cp", "a:/none", dir), 3, "file_not_found")
	s.want(s.run("cp", dir+"/none", "a:/x"), 3, "local_file_not_found")
	s.want(s.run("cp", dir+"/f", "nobody:/x"), 3, "session_not_found")
}

func TestCheckpointsByMessage(t *testing.T) {
	s := newShell(t)
	s.run("create", "a")
	s.want(s.run("checkpoint", "a", "-m", "one"), 0, "warm")
	s.want(s.run("checkpoint", "a", "-m", "two words"), 0)
	s.want(s.run("checkpoints", "a"), 0, "one", "two words", "MESSAGE")
	s.want(s.run("checkpoints", "ls", "a"), 0, "one")
	s.want(s.run("checkpoints", "rm", "a@two words"), 0, "deleted")
	s.want(s.run("checkpoints", "rm", "a@two words"), 3, "checkpoint_not_found")
	s.want(s.run("verify", "a"), 0, "1 events")
	s.want(s.run("rollback", "a@one"), 0, "back at one", "undo with: perdure undo a (to")
}

func TestServeGetsItsOptions(t *testing.T) {
	var got system.ServeOptions
	dir := t.TempDir()
	e := &env.Env{Out: io.Discard, Err: io.Discard, Getenv: func(string) string { return "" }, Terminal: fakeTerminal{}}
	code := cli.Run(t.Context(), e, func(_ context.Context, o system.ServeOptions) error { got = o; return nil },
		[]string{"serve", "--data", dir, "--listen", "127.0.0.1:1", "--host-name", "x.example"})
	if code != 0 || got.DataDir != dir || got.Listen != "127.0.0.1:1" || len(got.HostNames) != 1 {
		t.Errorf("serve = %d, %+v", code, got)
	}
}

func TestCompletion(t *testing.T) {
	s := newShell(t)
	s.want(s.run("completion", "bash"), 0, "complete")
}

func TestCompletionOfArguments(t *testing.T) {
	s := newShell(t)
	s.run("create", "desk")
	s.run("create", "dent")
	s.run("create", "other")
	s.run("checkpoint", "desk", "-m", "loaded")
	for _, x := range []struct {
		args []string
		want string
	}{
		{[]string{"show", "de"}, "desk\ndent\n:4\n"},
		{[]string{"show", "desk", ""}, ":4\n"},
		{[]string{"rm", "desk", "de"}, "dent\n:4\n"},
		{[]string{"exec", "o"}, "other\n:4\n"},
		{[]string{"exec", "desk", "--", "l"}, ":0\n"},
		{[]string{"rollback", "desk", ""}, "loaded\n:4\n"},
		{[]string{"fork", "desk@"}, "desk@loaded\n:4\n"},
		{[]string{"diff", "desk", "d"}, "dent\n:6\n"},
		{[]string{"checkpoints", "rm", "desk@x", "desk@"}, "desk@loaded\n:4\n"},
		{[]string{"cp", "de"}, "desk:\ndent:\n:2\n"},
		{[]string{"cp", "./d"}, ":0\n"},
		{[]string{"create", "--driver", ""}, "gvisor\nprocess\n:4\n"},
		{[]string{"completion", ""}, "bash\nzsh\nfish\n:4\n"},
	} {
		if r := s.run(append([]string{"__completeNoDesc"}, x.args...)...); r.out != x.want {
			t.Errorf("%q: %q, want %q; %s", x.args, r.out, x.want, r.err)
		}
	}
	s.want(s.run("completion", "tcsh"), 2, "usage", "fish")
	// Every command that takes a session completes it.
	e := &env.Env{}
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Runnable() && regexp.MustCompile(` (S|CKPT|A|FROM)\b`).MatchString(c.Use) && c.ValidArgsFunction == nil {
			t.Errorf("%s completes no session", c.CommandPath())
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(cli.Root(e, nil))
}
