package service_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/sandbox/process"
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

// TestX8_FilesAreCounted makes empty files, which take no space, until the limit stops who does it.
func TestX8_FilesAreCounted(t *testing.T) {
	w := newWorld(t)
	if _, err := w.svc.CreateSession(w.ctx(), api.CreateSession{Name: "one", Limits: api.Limits{Files: 3000}}); err != nil {
		t.Fatal(err)
	}
	w.create("other", "")
	x := w.start("one", api.StartExec{Argv: []string{"python3", "-c", "import os\nos.mkdir('/root/many')\ni = 0\nwhile True:\n  open(f'/root/many/{i}', 'w').close(); i += 1"}})
	got, _ := w.finish("one", x.ID)
	if got.Signal != "SIGKILL" {
		t.Fatalf("the writer ended with %+v", got)
	}
	seen := w.untilEvent("one", event.LimitReached)
	var d event.LimitData
	if err := json.Unmarshal(seen[len(seen)-1].Data, &d); err != nil || d.Limit != "files" || d.Max != 3000 || d.Used <= d.Max {
		t.Errorf("%+v, %v", d, err)
	}
	w.want(w.sh("other", "echo well"), "well")
	w.want(w.sh("one", "rm -r /root/many; touch /root/f; sleep 2.5; ls /root"), "f")
}

// TestX8_OpenFilesAreLimited opens files until there are no more to be had: the program is told, its session and others go on.
func TestX8_OpenFilesAreLimited(t *testing.T) {
	w := newWorld(t)
	if _, err := w.svc.CreateSession(w.ctx(), api.CreateSession{Name: "one", Limits: api.Limits{OpenFiles: 300}}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.svc.CreateSession(w.ctx(), api.CreateSession{Name: "few", Limits: api.Limits{OpenFiles: 100}}); errdefs.CodeOf(err) != "limit_too_low" {
		t.Errorf("100 open files: %v", err)
	}
	w.create("other", "")
	const greedy = "import os\nn = 0\ntry:\n  while True: os.open('/dev/null', 0); n += 1\nexcept OSError as e: print(e.errno, 250 < n < 300, flush=True)\nimport time; time.sleep(1000)"
	for i := range 20 {
		w.start("one", api.StartExec{ID: fmt.Sprint("greedy", i), Background: true, Argv: []string{"python3", "-c", greedy}})
	}
	w.want(w.sh("one", "ulimit -n; ulimit -Hn"), "300\n300")
	w.want(w.python("one", "__import__('resource').getrlimit(7)"), "(300, 300)")
	w.want(w.sh("other", "echo well"), "well")
	if _, err := w.svc.SuspendSession(w.ctx(), "one"); err != nil {
		t.Fatal(err)
	}
	w.want(w.sh("one", "python3 -c 'import resource; print(resource.getrlimit(7))'"), "(300, 300)")
	if out := w.output("one", "greedy0"); !strings.HasPrefix(out, "24 True") {
		t.Errorf("the greedy one says %q", out)
	}
}

// TestX8_CheckpointsAreLimited fills what checkpoints may take: one more is refused, and nothing of the session is lost.
func TestX8_CheckpointsAreLimited(t *testing.T) {
	w := newWorld(t)
	if _, err := w.svc.CreateSession(w.ctx(), api.CreateSession{Name: "one", Driver: process.Name, Limits: api.Limits{SnapshotBytes: 4 << 20}}); err != nil {
		t.Fatal(err)
	}
	var err error
	var first api.Checkpoint
	for i := range 5 {
		w.sh("one", fmt.Sprintf("head -c 1500000 /dev/urandom > f%d", i))
		var c api.Checkpoint
		if c, err = w.svc.CreateCheckpoint(w.ctx(), "one", api.CreateCheckpoint{}); err != nil {
			break
		}
		if i == 0 {
			first = c
		}
	}
	if errdefs.CodeOf(err) != "snapshot_limit" || !strings.Contains(errdefs.HintOf(err), "perdure checkpoints rm") {
		t.Fatalf("the last one: %v", err)
	}
	w.untilEvent("one", event.LimitReached)
	if _, err := w.svc.StopSession(w.ctx(), "one"); err != nil {
		t.Errorf("stop: %v", err) // which would lose the files
	}
	if err := w.svc.DeleteCheckpoint(w.ctx(), id.Checkpoint(first.ID)); err != nil {
		t.Fatal(err)
	}
}
