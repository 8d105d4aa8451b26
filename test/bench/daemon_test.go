package bench

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/client"
)

// daemon is a `perdure serve` of this build on a data directory of its own.
type daemon struct {
	b   *testing.B
	dir string
	cmd *exec.Cmd
	*client.Client
}

const startLimit = 2 * time.Minute

// serve starts a daemon on dir and waits until it answers. It ends with the benchmark.
func (x *bench) serve(b *testing.B, dir string) *daemon {
	b.Helper()
	must(b, os.MkdirAll(dir, 0o700))
	log, err := os.Create(dir + ".log")
	must(b, err)
	defer log.Close()
	d := &daemon{b: b, dir: dir, cmd: exec.Command(filepath.Join(x.bin, "perdure"), "serve", "--data", dir)}
	d.cmd.Dir, d.cmd.Stdout, d.cmd.Stderr = "/", log, log
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	must(b, d.cmd.Start())
	d.Client, err = client.New(client.Options{Socket: filepath.Join(dir, "perdure.sock"), RetryFor: startLimit})
	must(b, err)
	b.Cleanup(func() { d.end(log.Name()) })
	_, err = d.Health(b.Context())
	must(b, err)
	return d
}

// end removes every session, so that no sandbox stays, and stops the daemon. The benchmark's context is over by then.
func (d *daemon) end(log string) {
	ctx, b := testCleanup(d.b)
	if b.Failed() {
		if text, err := os.ReadFile(log); err == nil {
			b.Logf("the daemon's last words:\n%s", text[max(0, len(text)-3000):])
		}
	}
	for {
		list, err := d.Sessions(ctx, api.Page{Limit: 100})
		if err != nil {
			b.Error(err)
			break
		}
		if len(list.Data) == 0 || len(list.Data) == 100 { // a hundred: the idle ones, which hold nothing
			break
		}
		var failed bool
		for _, s := range list.Data {
			if err := d.DeleteSession(ctx, s.ID); err != nil {
				b.Error(err)
				failed = true
			}
		}
		if failed {
			break
		}
	}
	d.Close()
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		b.Error(err)
	}
	if err := d.cmd.Wait(); err != nil {
		b.Errorf("the daemon: %v", err)
	}
}

// create makes a session.
func (d *daemon) create() api.Session {
	d.b.Helper()
	s, err := d.CreateSession(d.b.Context(), api.CreateSession{})
	must(d.b, err)
	return s
}

// run runs a command to its end and returns what it wrote.
func (d *daemon) run(b testing.TB, s string, in api.StartExec) string {
	b.Helper()
	in.Wait, in.Output = true, true
	x, err := d.StartExec(b.Context(), s, in)
	must(b, err)
	if x.ExitCode == nil || *x.ExitCode != 0 {
		b.Fatalf("%v %s: %+v", in.Argv, in.Code, x)
	}
	return x.Stdout
}

// answer runs the smallest command that is a process: the session is there for its user.
func (d *daemon) answer(b testing.TB, s string) {
	d.run(b, s, api.StartExec{Argv: []string{"/bin/true"}})
}

// answerAll has all sessions answer, at the same time.
func (d *daemon) answerAll(b *testing.B, list []api.Session) {
	b.Helper()
	g, ctx := errgroup.WithContext(b.Context())
	for _, s := range list {
		g.Go(func() error {
			x, err := d.StartExec(ctx, s.ID, api.StartExec{Argv: []string{"/bin/true"}, Wait: true})
			if err == nil && (x.ExitCode == nil || *x.ExitCode != 0) {
				err = fmt.Errorf("%s: %+v", s.Name, x)
			}
			return err
		})
	}
	must(b, g.Wait())
}

// fork makes count forks of a checkpoint, each of which answers.
func (d *daemon) fork(b *testing.B, s, checkpoint string, count int) []api.Session {
	b.Helper()
	list, err := d.ForkSession(b.Context(), s, api.ForkSession{Checkpoint: checkpoint, Count: count})
	must(b, err)
	d.answerAll(b, list.Data)
	return list.Data
}

func (d *daemon) delete(b *testing.B, list ...api.Session) {
	b.Helper()
	for _, s := range list {
		must(b, d.DeleteSession(b.Context(), s.ID))
	}
}

// durable waits until a checkpoint is in the store, so that the disk work of one measure does not meet the next.
func (d *daemon) durable(b *testing.B, c string) {
	b.Helper()
	eventually(b, "checkpoint "+c+" is durable", func() bool {
		got, err := d.Checkpoint(b.Context(), c)
		must(b, err)
		return got.State == "durable"
	})
}

// eventually polls: what is waited for happens in another process.
func eventually(b *testing.B, what string, cond func() bool) {
	b.Helper()
	late := time.Now().Add(startLimit)
	for !cond() {
		if time.Now().After(late) {
			b.Fatalf("not after %s: %s", startLimit, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// rss is the resident memory of a process, in MB.
func rss(b *testing.B, pid int) float64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must(b, err)
	for l := range strings.Lines(string(text)) {
		if v, ok := strings.CutPrefix(l, "VmRSS:"); ok {
			kb, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(v), " kB"), 64)
			must(b, err)
			return kb / 1024
		}
	}
	b.Fatalf("process %d has no VmRSS", pid)
	return 0
}
