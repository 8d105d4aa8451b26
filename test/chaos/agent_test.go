package chaos

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/client"
)

// script is one turn of an agent, for each message "go N": three commands and the interpreter, each of which leaves its id.
const script = `
turns:
  - when: {last: user, user: {regex: "go (?P<n>\\d+)"}}
    text: first
    calls:
      - {tool: run, args: {command: "echo a{{.Match.n}} >> /root/ran; echo said a"}}
      - {tool: run, args: {command: "echo b{{.Match.n}} >> /root/ran; echo said b"}}
  - when: {result_tool: run, user: {regex: "go (?P<n>\\d+)"}}
    calls:
      - {tool: python, args: {code: "v = {{.Match.n}}; open('/root/v','w').write('{{.Match.n}}'); open('/root/ran','a').write('c{{.Match.n}}\\n'); print('said c')"}}
  - when: {result_tool: python}
    text: done
`

// talking is a turn of the agent. Its checks: the history is accepted to the end, and what was asked was done once.
func talking() op {
	round := 0
	say := func(ctx context.Context, c *client.Client) error {
		_, err := c.SendMessages(ctx, "agent", api.SendMessages{Messages: []api.Message{{Text: fmt.Sprintf("go %d", round)}}})
		return err
	}
	return op{
		ref:     "agent",
		prepare: func(*world) { round++ },
		run: func(ctx context.Context, w *world, c *client.Client) error {
			if err := say(ctx, c); err != nil {
				return err
			}
			_, err := c.WaitSession(ctx, "agent", []string{api.WaitDone}, patience)
			return err
		},
		check: func(w *world, _ bool) {
			if !slices.ContainsFunc(w.events("agent"), func(e api.Event) bool {
				return e.Type == "message.user" && strings.Contains(string(e.Data), fmt.Sprintf(`"go %d"`, round))
			}) {
				if err := say(w.ctx(), w.c); err != nil { // it was never taken, and nobody was told that it was
					w.t.Fatal(err)
				}
			}
			s := must[api.Session](w, "wait")(w.c.WaitSession(w.ctx(), "agent", []string{api.WaitDone}, patience))
			if s.Status != api.StatusIdle || s.StopReason != "answered" {
				w.t.Fatalf("H1: the turn ended as %s, %s: %s", s.Status, s.StopReason, s.StopMessage)
			}
			w.answered("agent")
			f := w.look("agent")
			for _, x := range []string{"a", "b", "c"} {
				if id := fmt.Sprint(x, round); !slices.Contains(f.Ran, id) {
					w.t.Errorf("H1: command %s did not run", id)
				}
			}
			if want := fmt.Sprint(round); f.Mind != want || f.Desk != want {
				w.t.Errorf("mind %s, desk %s, want %s", f.Mind, f.Desk, want)
			}
		},
	}
}

// TestH1_H4_DaemonKilledDuringATurn walks through a turn of the agent.
func TestH1_H4_DaemonKilledDuringATurn(t *testing.T) {
	w := newWorld(t)
	file := filepath.Join(w.dir, "script.yaml")
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	must[api.Session](w, "create")(w.c.CreateSession(w.ctx(), api.CreateSession{Name: "agent", Model: "scripted:" + file}))
	walk(w, map[string]bool{}, "turn", talking())
}
