package service

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/workspace"
)

// The journaled operations.
const (
	opSleep    = "sleep"     // suspend or stop: the sandbox ends, its files are sealed
	opSealLost = "seal_lost" // the sandbox is dead, its files are sealed
	opRollback = "rollback"  // another sandbox takes the place of this one, whose files are sealed
)

// journal says what an operation was about to do when the daemon died. One operation at a time works on a workspace, so one
// file is enough.
type journal struct {
	Op         string                      `json:"op"`
	Created    event.CheckpointCreatedData `json:"created"` // the checkpoint that the old sandbox becomes
	Generation workspace.Generation        `json:"generation"`
	Layer      id.Layer                    `json:"layer"` // what the generation's upper becomes
	Sandbox    id.Sandbox                  `json:"sandbox"`
	Why        string                      `json:"why,omitempty"` // of a sleep that nobody asked for
	Hooks      []event.HookRun             `json:"hooks,omitempty"`

	// Of a rollback:
	NewGeneration workspace.Generation         `json:"new_generation"`
	NewSandbox    id.Sandbox                   `json:"new_sandbox"`
	RolledBack    *event.SessionRolledBackData `json:"rolled_back,omitempty"`
	Told          id.Event                     `json:"told,omitempty"` // the id that the event is to have; "": any
}

const journalName = "journal.json"

func (l *live) journalFile() string {
	return filepath.Join(l.svc.cfg.Dirs.Session(l.id), journalName)
}

func (l *live) writeJournal(j journal) error {
	l.svc.at("journal.write")
	err := workspace.WriteJSON(l.journalFile(), j)
	l.svc.at("journal.written")
	return err
}

func (l *live) dropJournal() error {
	l.svc.at("journal.drop")
	err := os.Remove(l.journalFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = workspace.SyncDir(filepath.Dir(l.journalFile()))
	}
	return err
}

// readJournal returns what was going on, or nil.
func (l *live) readJournal() (*journal, error) {
	b, err := os.ReadFile(l.journalFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var j journal
	if err := json.Unmarshal(b, &j); err != nil {
		return nil, errdefs.New(errdefs.Corrupt, "journal_damaged", "cannot read %s: %v", l.journalFile(), err).
			WithHint("the session is left as it is; what it was doing may be found in its log: perdure events %s", l.id)
	}
	return &j, nil
}

// damaged is added to the name of a journal that cannot be read and has been passed over.
const damaged = ".damaged"

// setAside passes over a journal that cannot be read. doctor shows it.
func (s *Service) setAside(file string, cause error) error {
	s.cfg.Logger.Error("a journal cannot be read and is set aside", "file", file, "error", cause)
	return os.Rename(file, file+damaged)
}
