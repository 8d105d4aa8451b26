package tool_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/sandbox"
	"perdure.dev/perdure/internal/tool"
	"perdure.dev/perdure/internal/tool/tooltest"
)

// shelf keeps artifacts in memory.
type shelf map[id.Artifact]string

func (s shelf) Put(_ context.Context, _ id.Session, _ string, r io.Reader) (id.Artifact, int64, error) {
	data, err := io.ReadAll(r)
	a := id.Artifact("art_" + strings.Repeat("x", len(s)+1))
	s[a] = string(data)
	return a, int64(len(data)), err
}

// bench runs tools on a sandbox without walls.
type bench struct {
	t     *testing.T
	box   *tooltest.Sandbox
	env   tool.Env
	kept  shelf
	calls int
}

func newBench(t *testing.T) *bench {
	t.Helper()
	dir := t.TempDir()
	b := &bench{t: t, box: tooltest.New(dir), kept: shelf{}}
	b.env = tool.Env{Session: "sess_t", Sandbox: b.box, Artifacts: b.kept, Home: dir, MaxOutput: 100}
	t.Cleanup(func() {
		if err := b.box.Destroy(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return b
}

// do calls a tool under an exec id of its own.
func (b *bench) do(name string, args any) tool.Result {
	b.t.Helper()
	b.calls++
	return b.as(id.Exec("call"+strings.Repeat("x", b.calls)), name, args)
}

func (b *bench) as(exec id.Exec, name string, args any) tool.Result {
	b.t.Helper()
	raw, isRaw := args.(string)
	if !isRaw {
		data, err := json.Marshal(args)
		if err != nil {
			b.t.Fatal(err)
		}
		raw = string(data)
	}
	r, err := tool.Default().Run(b.t.Context(), b.env, tool.Call{Exec: exec, Name: name, Args: json.RawMessage(raw)})
	if err != nil {
		b.t.Fatalf("%s %s: %v", name, raw, err)
	}
	if r.Output == "" {
		b.t.Errorf("%s %s: an empty output, which no model takes", name, raw)
	}
	return r
}

type m = map[string]any

func TestRunTellsHowItWent(t *testing.T) {
	b := newBench(t)
	for _, x := range []struct {
		command, output string
		outcome         event.Outcome
	}{
		{"echo hi", "hi\n", event.OutcomeOK},
		{"true", "(no output)", event.OutcomeOK},
		{"echo out; echo err >&2; exit 3", "out\n\n[stderr]\nerr\n[exit code 3]", event.OutcomeError},
		{"echo err >&2", "[stderr]\nerr\n", event.OutcomeOK},
		{"printf 'a\\377b\\000c'", "a\uFFFDb\uFFFDc", event.OutcomeOK},
		{"kill -9 $$", "[killed by killed]", event.OutcomeError}, // the name is the test sandbox's
	} {
		r := b.do("run", m{"command": x.command})
		if r.Output != x.output || r.Outcome != x.outcome || r.Artifact != "" {
			t.Errorf("%q: %+v, want %q %s", x.command, r, x.output, x.outcome)
		}
	}
	r := b.do("run", m{"command": "echo begun; exec sleep 100", "timeout_seconds": 1})
	if r.Outcome != event.OutcomeTimeout || !strings.Contains(r.Output, "begun\n[timed out after 1s") || r.ExitCode != nil {
		t.Errorf("%+v", r)
	}
	if r := b.do("python", m{"code": "print(1)"}); r.Output != "1\n" {
		t.Errorf("%+v", r)
	}
}

// A call that is repeated joins the command that has its id, and gets the same result.
func TestRunIsOnce(t *testing.T) {
	b := newBench(t)
	for range 3 {
		if r := b.as("same", "run", m{"command": "echo x >>log; wc -l <log | tr -d ' '"}); r.Output != "1\n" {
			t.Errorf("%+v", r)
		}
	}
}

// Of a long output the model sees head and tail; all of it is kept.
func TestLongOutputIsKeptWhole(t *testing.T) {
	b := newBench(t)
	whole := "begin" + strings.Repeat("ä", 200) + "end\n"
	r := b.do("run", m{"command": "printf begin; for i in $(seq 200); do printf ä; done; echo end; echo also >&2"})
	if !strings.HasPrefix(r.Output, "beginä") || !strings.HasSuffix(r.Output, "also\n") || strings.Contains(r.Output, "\uFFFD") ||
		!strings.Contains(r.Output, "bytes left out here; the whole output is artifact "+string(r.Artifact)) || len(r.Output) > 300 {
		t.Errorf("%+v", r)
	}
	if got, want := b.kept[r.Artifact], whole+"\n[stderr]\nalso\n"; got != want {
		t.Errorf("kept %q", got)
	}
}

func TestBackgroundCommands(t *testing.T) {
	b := newBench(t)
	r := b.as("server", "run", m{"command": "echo up; exec sleep 100", "background": true, "label": "the server"})
	if r.Outcome != event.OutcomeOK || !strings.Contains(r.Output, "in the background as server") {
		t.Fatalf("%+v", r)
	}
	if r := b.do("processes", m{"action": "list"}); !strings.Contains(r.Output, "server  running") || !strings.Contains(r.Output, "the server") {
		t.Errorf("%+v", r)
	}
	late := time.Now().Add(10 * time.Second)
	for !strings.HasPrefix(b.do("processes", m{"action": "read", "exec_id": "server"}).Output, "up\n[running") {
		if time.Now().After(late) {
			t.Fatal("its output does not come")
		}
		time.Sleep(5 * time.Millisecond) // between two looks; nothing tells that a background command has written
	}
	if r := b.do("processes", m{"action": "read", "exec_id": "server", "offset": 3}); !strings.Contains(r.Output, "nothing after byte 3") {
		t.Errorf("%+v", r)
	}
	if r := b.do("processes", m{"action": "kill", "exec_id": "server", "signal": "KILL"}); r.Outcome != event.OutcomeOK {
		t.Errorf("%+v", r)
	}
	if st, err := b.box.Execs().Wait(t.Context(), "server"); err != nil || st.Signal == "" {
		t.Errorf("%+v %v", st, err)
	}
	if r := b.do("processes", m{"action": "kill", "exec_id": "server"}); !strings.Contains(r.Output, "had already ended") {
		t.Errorf("%+v", r)
	}
}

// What a model sends wrongly is told to it, and does nothing.
func TestWrongArguments(t *testing.T) {
	b := newBench(t)
	for _, x := range []struct{ tool, args string }{
		{"run", `{"command":""}`}, {"run", `{"command":"touch ran","timeout":3}`}, {"run", `{"command":"touch ran","timeout_seconds":-1}`},
		{"run", `{"command":"touch ran"} {}`}, {"run", `{"command":7}`}, {"run", `{`}, {"python", `{"code":" "}`},
		{"processes", `{"action":"kill"}`}, {"processes", `{"action":"dance","exec_id":"x"}`}, {"processes", `{"action":"read","exec_id":"../x"}`},
		{"processes", `{"action":"read","exec_id":"unknown"}`}, {"write_file", `{"path":"f"}`}, {"edit_file", `{"path":"none","old_string":"a","new_string":"b"}`},
		{"finish", `{}`}, {"no_such_tool", `{}`},
	} {
		if r := b.do(x.tool, x.args); r.Outcome != event.OutcomeError || r.Finish != nil {
			t.Errorf("%s %s: %+v", x.tool, x.args, r)
		}
	}
	if _, err := os.Stat(filepath.Join(b.env.Home, "ran")); err == nil {
		t.Error("one of them ran")
	}
}

func TestFileTools(t *testing.T) {
	b := newBench(t)
	if r := b.do("write_file", m{"path": "dir/f", "content": "one\ntwo\ntwo\n"}); r.Outcome != event.OutcomeOK {
		t.Fatalf("%+v", r)
	}
	if r := b.do("edit_file", m{"path": "dir/f", "old_string": "two", "new_string": "2"}); r.Outcome != event.OutcomeError || !strings.Contains(r.Output, "2 times") {
		t.Errorf("%+v", r)
	}
	if r := b.do("edit_file", m{"path": "dir/f", "old_string": "two", "new_string": "2", "replace_all": true}); r.Outcome != event.OutcomeOK {
		t.Errorf("%+v", r)
	}
	if data, err := os.ReadFile(filepath.Join(b.env.Home, "dir/f")); err != nil || string(data) != "one\n2\n2\n" {
		t.Errorf("%q %v", data, err)
	}
	if r := b.do("read_file", m{"path": "dir/f"}); !strings.Contains(r.Output, "one") {
		t.Errorf("%+v", r)
	}
	if r := b.do("list_files", m{"path": "dir"}); !strings.Contains(r.Output, "f") {
		t.Errorf("%+v", r)
	}
}

// A sandbox that dies under a command gives an interruption with the cause, never an invented result.
func TestDeadSandboxInterrupts(t *testing.T) {
	b := newBench(t)
	done := make(chan tool.Result, 1)
	go func() { done <- b.as("long", "run", m{"command": "echo begun; exec sleep 100"}) }()
	late := time.Now().Add(10 * time.Second)
	for {
		if st, err := b.box.Execs().Status(t.Context(), "long"); err == nil && st.StdoutSize > 0 {
			break
		}
		if time.Now().After(late) {
			t.Fatal("it does not begin")
		}
		time.Sleep(5 * time.Millisecond) // between two looks; nothing tells that a command has written
	}
	if err := b.box.Lose(t.Context(), "the machine was switched off"); err != nil {
		t.Fatal(err)
	}
	r := <-done
	if r.Outcome != event.OutcomeInterrupted || !strings.HasPrefix(r.Output, "begun\n[interrupted: the machine was switched off") || r.ExitCode != nil {
		t.Errorf("%+v", r)
	}
}

// A command that cannot start tells more by the record that it leaves.
func TestCommandThatCannotStart(t *testing.T) {
	b := newBench(t)
	b.env.Sandbox = refused{b.box}
	r := b.do("run", m{"command": "x"})
	if r.Outcome != event.OutcomeError || r.ExitCode == nil || *r.ExitCode != 126 || !strings.Contains(r.Output, "[exit code 126: it is a directory]") {
		t.Errorf("%+v", r)
	}
	var buf bytes.Buffer
	if err := json.NewEncoder(&buf).Encode(tool.Default().Specs()); err != nil || !json.Valid(buf.Bytes()) {
		t.Errorf("the tools cannot be told to a model: %v", err)
	}
}

// refused is a sandbox in which nothing starts.
type refused struct{ *tooltest.Sandbox }

func (r refused) Execs() sandbox.Execs { return refusedExecs{r.Sandbox.Execs()} }

type refusedExecs struct{ sandbox.Execs }

func (refusedExecs) Run(context.Context, sandbox.ExecSpec, int) (sandbox.ExecResult, error) {
	return sandbox.ExecResult{}, errdefs.New(errdefs.Denied, "command_not_executable", "it is a directory")
}

func (refusedExecs) Status(_ context.Context, exec id.Exec) (sandbox.ExecStatus, error) {
	code := 126
	return sandbox.ExecStatus{ID: exec, State: sandbox.ExecExited, ExitCode: &code, Cause: "it is a directory"}, nil
}
