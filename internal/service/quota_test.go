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
