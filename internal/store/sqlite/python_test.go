package sqlite_test

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/event/eventtest"
)

// The verifier in another language agrees with ours on a real log, and on a log with one changed byte.
func TestPythonVerifierAgrees(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal("python3 is not installed; make deps installs it")
	}
	s := open(t, t.TempDir())
	sid := eventtest.NewSession(t, s, "exported é")
	for _, args := range []string{
		`{}`, `{"z":1,"a":[1.0,1e21,1e20,123456789012345678901234567890,0.000001,1e-7,-0.0,-1.5e300,5e-324,0.1,100,12345.678,9007199254740993,1e16,4.5e15]}`,
		`{"é":"\u00e9","\ud83d\ude00":1,"\ufb33":2,"tab\t":"\u0000\u001f\u007f\u2028<&>","":null,"t":true,"f":false,"deep":[[[{}]]]}`,
	} {
		add(t, s, sid, event.ToolRequested, event.ToolRequestedData{ToolCall: event.ToolCall{CallID: "c", Name: "run", Arguments: json.RawMessage(args)}})
	}
	code := 3
	add(t, s, sid, event.ToolFinished, event.ToolFinishedData{CallID: "c", Outcome: event.OutcomeOK, Output: "line\nline\x1b[0m\xff", ExitCode: &code})
	checkpoint(t, s, sid, "half", "l1")
	var lines bytes.Buffer
	enc := json.NewEncoder(&lines)
	for _, e := range eventtest.All(t, s, sid) {
		if err := enc.Encode(e); err != nil {
			t.Fatal(err)
		}
	}
	run := func(in []byte) (string, error) {
		cmd := exec.CommandContext(t.Context(), python, "../../../docs/verify_log.py")
		cmd.Stdin = bytes.NewReader(in)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	head, err := s.Head(t.Context(), sid)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := run(lines.Bytes()); err != nil || !strings.Contains(out, head.Hash) {
		t.Errorf("%s%v", out, err)
	}
	for what, bad := range map[string]string{
		"event 3 does not fit": strings.Replace(lines.String(), "12345.678", "12345.679", 1),
		"event 5 does not fit": strings.Replace(lines.String(), `"exit_code":3`, `"exit_code":4`, 1),
		"event 1 does not fit": lines.String()[strings.Index(lines.String(), "\n")+1:],
	} {
		if out, err := run([]byte(bad)); err == nil || !strings.Contains(out, what) {
			t.Errorf("want %q, got %s%v", what, out, err)
		}
	}
}
