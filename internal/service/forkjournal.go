package service

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/workspace"
)

// forkJournal names the children of a fork whose logs are about to begin. The parent's session.forked makes them real, all at once: after
// a crash before it, those that have a log already are taken back. Forks of one parent may overlap, so each has a file of its own.
type forkJournal struct {
	file     string
	Children []id.Session `json:"children"`
}

const forkJournals = "fork-*.json" // not those set aside

func (l *live) writeForkJournal(children []id.Session) (forkJournal, error) {
	name := "fork-" + string(id.NewEvent()) + ".json"
	j := forkJournal{file: filepath.Join(l.svc.cfg.Dirs.Session(l.id), name), Children: children}
	l.svc.at("fork.journal")
	return j, workspace.WriteJSON(j.file, j)
}

// drop is called when the fork is complete, or when nothing is left of it.
func (j forkJournal) drop() error {
	if err := os.Remove(j.file); err != nil {
		return err
	}
	return workspace.SyncDir(filepath.Dir(j.file))
}

// takeBackForks deletes the children of forks that the death of the daemon cut. Their sandboxes and files then belong to nobody and go
// with the other orphans. One fork that cannot be taken back keeps nobody from the daemon: its journal stays for the next start, and one
// that cannot be read is set aside.
func (s *Service) takeBackForks(ctx context.Context) error {
	files, err := filepath.Glob(filepath.Join(s.cfg.Dirs.Root, "sessions", "*", forkJournals))
	if err != nil {
		return err
	}
	for _, file := range files {
		if err := s.takeBackFork(ctx, file); err != nil {
			s.cfg.Logger.Error("cannot take back a fork that was cut", "journal", file, "error", err)
		}
	}
	return nil
}

func (s *Service) takeBackFork(ctx context.Context, file string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	j := forkJournal{file: file}
	if err := json.Unmarshal(b, &j); err != nil {
		return s.setAside(file, err)
	}
	told, err := s.forkTold(ctx, id.Session(filepath.Base(filepath.Dir(file))), j.Children)
	if err != nil {
		return err
	}
	if !told {
		for _, c := range j.Children {
			if _, err := s.cfg.Rows.DeleteSession(ctx, c); err != nil && !isNotFound(err) {
				return err
			}
		}
	}
	return j.drop()
}

// forkTold reports whether the parent's log tells of a fork.
func (s *Service) forkTold(ctx context.Context, parent id.Session, children []id.Session) (bool, error) {
	for e, err := range readAll(ctx, s.cfg.Log, parent, 0) {
		if isNotFound(err) {
			return false, nil // it was deleted meanwhile; so go the children that nobody was told of
		}
		if err != nil {
			return false, err
		}
		if e.Type != event.SessionForked {
			continue
		}
		p, err := event.Decode(e)
		if err != nil {
			return false, err
		}
		d, ok := p.(*event.SessionForkedData)
		if !ok {
			return false, errors.New("session.forked has another payload")
		}
		if slices.Equal(d.Children, children) {
			return true, nil
		}
	}
	return false, nil
}
