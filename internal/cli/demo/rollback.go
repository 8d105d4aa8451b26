package demo

import (
	"context"
	"fmt"
	"strings"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/errdefs"
)

const whatDidI = "What did I ask you before this, and what do you have?"

// rollback has the agent destroy everything, brings it back, and undoes that.
func (s *story) rollback(ctx context.Context) error {
	if !s.memory {
		return nil // filesOnly has told its part
	}
	s.chapter("7. A rollback brings files, RAM and transcript back together")
	before, files, err := s.whole(ctx)
	if err != nil {
		return err
	}
	if _, err := s.ask(ctx, name, "Tidy up: delete every file and forget the data.", nil); err != nil {
		return err
	}
	if err := s.gone(ctx, "all files, the rows in RAM and the web server are gone"); err != nil {
		return err
	}
	plan, err := s.c.RollbackSession(ctx, name, api.RollbackSession{Checkpoint: label, DryRun: true})
	if err != nil {
		return err
	}
	s.say("a dry run: %d events leave the timeline, %d files change, %d processes end", plan.Events, len(plan.Files), len(plan.ProcessesGone))
	if err := s.timed("rolled back", func() (n int64, err error) {
		plan, err = s.c.RollbackSession(ctx, name, api.RollbackSession{Checkpoint: label})
		return 0, err
	}); err != nil {
		return err
	}
	after, back, err := s.whole(ctx)
	if err != nil {
		return err
	}
	if err := s.claim(back == files && after.m == before.m, fmt.Sprintf("the files and the %d rows in RAM are back", after.m.Rows), "files %s, before %s; %+v, before %+v", back, files, after.m, before.m); err != nil {
		return err
	}
	if err := s.claim(after.w.PID == before.w.PID && after.w.Started == before.w.Started, "the web server is back as the process that it was", "%+v, before %+v", after.w, before.w); err != nil {
		return err
	}
	t, err := s.ask(ctx, name, whatDidI, nil)
	if err != nil {
		return err
	}
	if err := s.claim(strings.Contains(t.answer, "who owes the most"), "the model does not see the abandoned part of the transcript", "it says %q", t.answer); err != nil {
		return err
	}
	return s.undo(ctx, plan.UndoCheckpointID)
}

// undo goes back to before the rollback.
func (s *story) undo(ctx context.Context, to string) error {
	var plan api.RollbackPlan
	if err := s.timed("undone", func() (n int64, err error) { plan, err = s.c.UndoSession(ctx, name); return 0, err }); err != nil {
		return err
	}
	if plan.CheckpointID != to {
		return errdefs.New(errdefs.Internal, "demo_undo", "undo went to %s, the rollback named %s", plan.CheckpointID, to)
	}
	if err := s.gone(ctx, "undo goes back to before the rollback: nothing there again"); err != nil {
		return err
	}
	t, err := s.ask(ctx, name, whatDidI, nil)
	if err != nil {
		return err
	}
	return s.claim(strings.Contains(t.answer, "tidy up"), "and the model sees the abandoned part again", "it says %q", t.answer)
}

// inside is what processes hold.
type inside struct {
	m memory
	w answer
}

// whole asks the interpreter and the web server, and lists the files with their hashes.
func (s *story) whole(ctx context.Context) (in inside, files string, err error) {
	if in.m, err = s.ram(ctx, name); err != nil {
		return in, "", err
	}
	if in.w, err = s.web(ctx, name); err != nil {
		return in, "", err
	}
	files, err = s.hashes(ctx, name)
	return in, files, err
}

// gone claims that neither files nor variables nor the web server are there.
func (s *story) gone(ctx context.Context, claim string) error {
	m, err := s.ram(ctx, name)
	if err != nil {
		return err
	}
	list, err := s.exec(ctx, name, api.StartExec{Argv: []string{"bash", "-c", "ls"}})
	if err != nil {
		return err
	}
	procs, err := s.c.Processes(ctx, name)
	if err != nil {
		return err
	}
	serving := false
	for _, p := range procs.Data {
		serving = serving || strings.Contains(strings.Join(p.Args, " "), "server.py")
	}
	return s.claim(m.Rows == 0 && list == "" && !serving, claim, "%+v, files %q, server running: %t", m, list, serving)
}
