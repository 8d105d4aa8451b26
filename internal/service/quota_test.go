package service_test

import (
	"testing"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/event"
)

func TestX8_DiskLimitStopsTheWriterAndLosesNothing(t *testing.T) {
	w := newWorld(t)
	_, err := w.svc.CreateSession(w.ctx(), api.CreateSession{Name: "one", Limits: api.Limits{DiskBytes: 20 << 20}})
	if err != nil {
		t.Fatal(err)
	}
	w.sh("one", "echo kept > /root/f")
	x := w.start("one", api.StartExec{Argv: []string{"bash", "-c", "while :; do head -c 1M /dev/zero >> /root/big; sleep 0.05; done"}})
	got, _ := w.finish("one", x.ID)
	if got.Signal != "SIGKILL" {
		t.Fatalf("the writer ended with %+v", got)
	}
	w.untilEvent("one", event.LimitReached)
	w.want(w.sh("one", "cat /root/f; rm /root/big"), "kept") // there is room to tidy up
	w.want(w.sh("one", "head -c 1M /dev/zero > /root/small; sleep 2.5; stat -c %s /root/small"), "1048576")
}

// TestX8_WriterThatOutlivesItsCommandIsStopped starts a writer in a session of its own and lets its command end.
func TestX8_WriterThatOutlivesItsCommandIsStopped(t *testing.T) {
	w := newWorld(t)
	_, err := w.svc.CreateSession(w.ctx(), api.CreateSession{Name: "one", Limits: api.Limits{DiskBytes: 20 << 20}})
	if err != nil {
		t.Fatal(err)
	}
	w.sh("one", "setsid bash -c 'while :; do head -c 1M /dev/zero >> /root/big; sleep 0.05; done' > /dev/null 2>&1 < /dev/null & echo kept > /root/f")
	w.untilEvent("one", event.LimitReached)
	// It is gone, and the session runs: whoever uses it can tidy up.
	w.want(w.sh("one", "sleep 1; a=$(stat -c %s /root/big); sleep 2; b=$(stat -c %s /root/big); [ $a = $b ] && cat /root/f && rm /root/big"), "kept")
	w.state("one", "running")
	w.want(w.sh("one", "head -c 1M /dev/zero > /root/small; sleep 2.5; stat -c %s /root/small"), "1048576")
}
