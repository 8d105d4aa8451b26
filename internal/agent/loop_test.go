package agent_test

import (
	"slices"
	"strings"
	"testing"

	"perdure.dev/perdure/internal/event"
)

const story = `
turns:
  - when: {step: 1}
    text: I will look.
    calls:
      - {tool: run, args: {command: "echo one >> ran; echo hello"}}
      - {tool: write_file, args: {path: note.txt, content: "a b c\n"}}
  - when: {step: 2}
    calls:
      - {tool: edit_file, args: {path: note.txt, old_string: b, new_string: "{{.Step}}"}}
      - {tool: read_file, args: {path: note.txt}}
      - {tool: run, args: {command: "echo two >> ran; sleep 0.1; echo bye"}}
  - when: {step: 3}
    calls:
      - {tool: python, args: {code: "open('ran','a').write('three\\n'); print(6*7)"}}
      - {tool: checkpoint, args: {message: half}}
      - {tool: list_files, args: {}}
  - when: {step: 4, result: ran}
    calls:
      - {tool: run, args: {command: "echo bg >> ran", background: true}}
      - {tool: processes, args: {action: list}}
  - when: {step: 5}
    calls:
      - {tool: finish, args: {result: "all done"}}
`

func TestStory(t *testing.T) {
	w := newWorld(t, story, "do it", event.Limits{})
	w.mustRun()
	w.check()
	if got := w.reasons(); !slices.Equal(got, []string{"finished"}) {
		w.dump()
		t.Fatalf("turns ended %v", got)
	}
	res := w.results()
	if len(res) != 11 {
		t.Fatalf("%d results", len(res))
	}
	for i, r := range res {
		if r.Outcome != event.OutcomeOK {
			t.Errorf("result %d: %s %q", i, r.Outcome, r.Output)
		}
	}
	if res[3].Output != "a 2 c\n" || res[5].Output != "42\n" {
		t.Errorf("outputs: %q %q", res[3].Output, res[5].Output)
	}
	fin := only[event.SessionFinishedData](w, event.SessionFinished)
	if len(fin) != 1 || fin[0].Result != "all done" || fin[0].Verified {
		t.Errorf("finished: %+v", fin)
	}
	if len(w.deltas) == 0 {
		t.Error("no deltas reached the observers")
	}
}

// A turn without tool calls answers, and a later message starts the next one.
func TestAnswerThenMessage(t *testing.T) {
	w := newWorld(t, `
turns:
  - {when: {user: {regex: "add (?P<a>\\d+)"}}, text: "you said {{.Match.a}}"}
  - {when: {user: hi}, text: hello}
`, "", event.Limits{})
	w.mustRun()
	if n := len(w.all()); n != 1 {
		t.Fatalf("%d events without anything to do", n)
	}
	w.send("hi", event.Steer)
	w.mustRun()
	w.send("add 17", event.Queue)
	w.send("add 18", event.Queue)
	w.mustRun()
	if got := w.reasons(); !slices.Equal(got, []string{"answered", "answered", "answered"}) {
		t.Fatalf("turns ended %v", got)
	}
	if w.lastText() != "you said 18" {
		t.Errorf("last answer %q", w.lastText())
	}
}

func TestH3_CutCallIsNotRun(t *testing.T) {
	w := newWorld(t, `
turns:
  - when: {step: 1}
    stop: length
    calls:
      - {tool: run, args: {command: "echo whole >> ran"}}
      - {tool: run, raw_args: '{"command": "echo cut >> ran", "time'}
      - {tool: run, args: {command: "echo marked >> ran"}, cut: true}
  - {when: {result: "arguments of this call arrived incomplete"}, text: sorry}
`, "go", event.Limits{})
	w.mustRun()
	w.check()
	if got := w.ran("ran"); !slices.Equal(got, []string{"whole"}) {
		t.Errorf("ran %v", got)
	}
	if w.lastText() != "sorry" {
		t.Errorf("last answer %q", w.lastText())
	}
}

func TestWrongArgumentsAreTold(t *testing.T) {
	w := newWorld(t, `
turns:
  - when: {step: 1}
    calls:
      - {tool: run, args: {command: "true", colour: red}}
      - {tool: run, args: {command: 7}}
      - {tool: nonsense, args: {}}
      - {tool: read_file, args: {path: missing.txt}}
      - {tool: edit_file, args: {path: x, old_string: a, new_string: a}}
      - {tool: run, args: {command: "echo out; echo err >&2; exit 3"}}
      - {tool: run, args: {command: "sleep 60", timeout_seconds: 1}}
  - {when: {step: 2}, text: ok}
`, "go", event.Limits{})
	w.mustRun()
	w.check()
	want := []struct {
		outcome event.Outcome
		text    string
	}{
		{event.OutcomeError, `unknown field "colour"`}, {event.OutcomeError, "wrong arguments"}, {event.OutcomeError, `no tool "nonsense"`},
		{event.OutcomeError, "file_not_found"}, {event.OutcomeError, "the same"},
		{event.OutcomeError, "out\n\n[stderr]\nerr\n[exit code 3]"}, {event.OutcomeTimeout, "timed out after 1s"},
	}
	for i, r := range w.results() {
		if r.Outcome != want[i].outcome || !strings.Contains(r.Output, want[i].text) {
			t.Errorf("result %d: %s %q, want %s %q", i, r.Outcome, r.Output, want[i].outcome, want[i].text)
		}
	}
}

func TestLongOutputIsCutAndKept(t *testing.T) {
	w := newWorld(t, `
turns:
  - when: {step: 1}
    calls:
      - {tool: run, args: {command: "seq 1 20000; echo end >&2"}}
  - {when: {step: 2}, text: ok}
`, "go", event.Limits{})
	w.mustRun()
	r := w.results()[0]
	if len(r.Output) > 2400 || !strings.HasPrefix(r.Output, "1\n2\n") || !strings.Contains(r.Output, "bytes left out") ||
		!strings.Contains(r.Output, string(r.Artifact)) || !strings.HasSuffix(r.Output, "end\n") {
		t.Errorf("output %q", r.Output)
	}
	whole := w.artifacts[r.Artifact]
	if !strings.Contains(whole, "\n12345\n") || strings.Count(whole, "\n") != 20003 {
		t.Errorf("the artifact has %d bytes", len(whole))
	}
}
