package service_test

import (
	"testing"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/sandbox/gvisor"
)

// TestX8_ChannelDirectoryIsBounded fills the directory of the runtime's own socket, which is in no layer. What follows works all the same.
func TestX8_ChannelDirectoryIsBounded(t *testing.T) {
	w := newWorld(t)
	w.create("a", gvisor.Name)
	first, err := w.svc.CreateCheckpoint(w.ctx(), "a", api.CreateCheckpoint{Message: "first"})
	if err != nil {
		t.Fatal(err)
	}
	fill := "cd /run/perdure/link && head -c 8M /dev/zero > big 2>/dev/null; i=0; while [ $i -lt 100 ] && : > n$i; do i=$((i+1)); done 2>/dev/null; " +
		"[ $(du -sk . | cut -f1) -le 128 ] && [ $(ls | wc -l) -le 16 ] && echo bounded"
	w.want(w.sh("a", fill), "bounded")
	for name, do := range map[string]func() error{
		"suspend": func() error {
			if _, err := w.svc.SuspendSession(w.ctx(), "a"); err != nil {
				return err
			}
			_, err := w.svc.ResumeSession(w.ctx(), "a")
			return err
		},
		"rollback": func() error {
			_, err := w.svc.RollbackSession(w.ctx(), "a", api.RollbackSession{Checkpoint: first.ID})
			return err
		},
		"fork": func() error {
			_, err := w.svc.ForkSession(w.ctx(), "a", api.ForkSession{Name: "kid"})
			return err
		},
	} {
		w.sh("a", fill)
		if err := do(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		w.want(w.sh("a", "echo alive"), "alive")
	}
	w.want(w.sh("kid", "echo alive"), "alive")
}
