package demo

import (
	"context"
	"fmt"
	"path"
	"strings"

	"perdure.dev/perdure/api"
)

// filesOnly is what chapters 6 and 7 come to where the driver keeps no RAM: a checkpoint, forks and a rollback of files and transcript.
// The session is stopped for each cut, which ends its processes.
func (s *story) filesOnly(ctx context.Context) error {
	before, err := s.hashes(ctx, name)
	if err != nil {
		return err
	}
	var ck api.Checkpoint
	if err := s.timed("stopped, and checkpoint \""+label+"\"", func() (n int64, err error) {
		if _, err = s.c.StopSession(ctx, name); err != nil {
			return 0, err
		}
		ck, err = s.c.CreateCheckpoint(ctx, name, api.CreateCheckpoint{Message: label})
		return ck.FileBytes, err
	}); err != nil {
		return err
	}
	var forks []string
	if err := s.timed("2 forks of the files", func() (int64, error) {
		list, err := s.c.ForkSession(ctx, name, api.ForkSession{Checkpoint: ck.ID, Count: 2, Name: "way"})
		for _, f := range list.Data {
			forks = append(forks, f.Name)
		}
		return 0, err
	}); err != nil {
		return err
	}
	for _, f := range forks {
		if _, err := s.exec(ctx, f, api.StartExec{Argv: []string{"bash", "-c", "echo " + f + " > note.txt"}}); err != nil {
			return err
		}
	}
	d, err := s.c.Diff(ctx, forks[0], forks[1])
	if err != nil {
		return err
	}
	differ := ""
	for _, f := range d.Files {
		s.quote(fmt.Sprintf("%s %s: %d → %d bytes", f.Change, f.Path, f.ASize, f.BSize))
		differ += path.Base(f.Path)
	}
	if err := s.claim(differ == "note.txt", "the forks have the checkpoint's files, and differ in what each wrote", "%+v", d.Files); err != nil {
		return err
	}
	return s.filesBack(ctx, before)
}

// filesBack deletes the session's files and rolls them back.
func (s *story) filesBack(ctx context.Context, before string) error {
	s.chapter("7. A rollback brings files and transcript back")
	s.skip("rollback of RAM and processes, and undo of it: the driver keeps no RAM")
	left, err := s.exec(ctx, name, api.StartExec{Argv: []string{"bash", "-c", "rm -rf -- * && ls"}})
	if err != nil {
		return err
	}
	if err := s.claim(left == "", "all files are deleted", "%s", left); err != nil {
		return err
	}
	if _, err := s.c.StopSession(ctx, name); err != nil {
		return err
	}
	if err := s.timed("rolled back", func() (int64, error) {
		_, err := s.c.RollbackSession(ctx, name, api.RollbackSession{Checkpoint: label})
		return 0, err
	}); err != nil {
		return err
	}
	after, err := s.hashes(ctx, name)
	if err != nil {
		return err
	}
	return s.claim(after == before, fmt.Sprintf("the %d files are back", strings.Count(after, "\n")+1), "%s, before %s", after, before)
}

// hashes lists the files of a home directory with their hashes.
func (s *story) hashes(ctx context.Context, session string) (string, error) {
	return s.exec(ctx, session, api.StartExec{Argv: []string{"bash", "-c", "sha256sum *"}})
}
