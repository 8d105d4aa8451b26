package demo

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/examples/invoices"
	"perdure.dev/perdure/internal/cli/env"
	"perdure.dev/perdure/internal/errdefs"
)

// others are the processes of a run but the daemon, and their memory.
func (s *story) others() (list []string, rss int64) {
	for _, p := range processesOf(s.root) {
		if p.pid != s.daemon.pid() {
			list = append(list, fmt.Sprintf("%d %s", p.pid, clip(p.args)))
			rss += p.rss
		}
	}
	return list, rss
}

// sleep suspends the session to disk and resumes it.
func (s *story) sleep(ctx context.Context) error {
	s.chapter("4. The session sleeps on disk and wakes")
	if !s.memory {
		s.skip("suspend to disk and resume with RAM, processes and web server: the driver keeps no RAM")
		return nil
	}
	before, err := s.web(ctx, name)
	if err != nil {
		return err
	}
	awake, rss := s.others()
	s.say("awake: %d processes on the host, %s resident", len(awake), env.Size(rss))
	if err := s.timed("suspended", func() (int64, error) {
		x, err := s.c.SuspendSession(ctx, name)
		if err != nil {
			return 0, err
		}
		ck, err := s.c.Checkpoint(ctx, x.Workspace.CheckpointID)
		return ck.MemoryBytes + ck.FileBytes, err
	}); err != nil {
		return err
	}
	var left []string
	if err := poll(ctx, "the sandbox's processes end", func() bool { left, _ = s.others(); return len(left) == 0 }); err != nil {
		return fmt.Errorf("%w; still there: %s", err, strings.Join(left, "; "))
	}
	stored := diskUse(filepath.Join(s.daemon.dir, "checkpoints"))
	if err := s.claim(len(awake) > 0 && stored > 0, fmt.Sprintf("asleep it has no process and no RAM, only %s on disk", env.Size(stored)), "%d processes before, %d bytes", len(awake), stored); err != nil {
		return err
	}
	var woken api.Session
	if err := s.timed("resumed", func() (n int64, err error) { woken, err = s.c.ResumeSession(ctx, name); return 0, err }); err != nil {
		return err
	}
	if r := woken.ResumeReport; r != nil {
		s.say("back: %s; %d processes; the clock was stepped by %d ms", strings.Join(r.Layers, ", "), r.Processes, r.ClockStepMS)
	}
	var after answer
	if err := s.timed("web server answers", func() (n int64, err error) { after, err = s.web(ctx, name); return 0, err }); err != nil {
		return err
	}
	same := after.PID == before.PID && after.Started == before.Started && after.Served == before.Served+1
	return s.claim(same, fmt.Sprintf("the web server is the same process, and its counter goes on from %d to %d", before.Served, after.Served), "%+v, then %+v", before, after)
}

// followUp asks something that only the variables in RAM can answer: the file is gone.
func (s *story) followUp(ctx context.Context) error {
	s.chapter("5. A follow-up is answered from RAM")
	if err := s.c.RemoveFile(ctx, name, s.path(invoices.DataName), false); err != nil {
		return err
	}
	s.say("the demo has deleted %s, so that nobody can read it again", invoices.DataName)
	var t turn
	if err := s.timed("follow-up answered", func() (n int64, err error) { t, err = s.ask(ctx, name, "Who owes us the most?", nil); return 0, err }); err != nil {
		return err
	}
	if !strings.Contains(t.answer, "owes") {
		return errdefs.New(errdefs.Internal, "demo_answer", "the answer is %q", t.answer)
	}
	m, err := s.ram(ctx, name)
	if err != nil {
		return err
	}
	return s.claim(m == s.ready, "the answer comes from the variables in RAM: same interpreter, same load time, the file read once", "%+v, first %+v", m, s.ready)
}
