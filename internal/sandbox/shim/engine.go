package shim

import (
	"context"
	"log/slog"

	"perdure.dev/perdure/internal/sandbox"
)

// The files of a state directory.
const (
	configFile = "config.json"
	recordFile = "record.json"
	lockFile   = "lock"
	socketFile = "shim.sock"
	logFile    = "shim.log"
)

// LinkDir is the directory below the state directory that holds the guest's socket. Engines show it inside the sandbox.
const LinkDir = "link"

// Config tells a shim what to run.
type Config struct {
	Driver    string
	Version   string // of the engine, as in sandbox.Image
	Spec      sandbox.Spec
	Image     *sandbox.Image `json:",omitempty"` // restored if set, booted if not
	Guest     string         // path of the guest binary
	Base      string         `json:",omitempty"` // directory below all layers, if the image needs one made
	MachineID string         // 32 hex digits
	Missing   []string       `json:",omitempty"` // what the driver already knows to be missing
	CPU       *sandbox.CPU   `json:",omitempty"` // what its images will want of the processor
}

// Engine runs one sandbox inside the shim. Calls are serialised by the shim, but for Wait, Nudge and Guard.
type Engine interface {
	// Start boots or restores what Config says. It returns when the sandbox runs; the guest need not answer yet.
	Start(ctx context.Context) error
	Pause(ctx context.Context) error
	Unpause(ctx context.Context) error
	// Prepare does what of Save can be done in advance, while the sandbox runs. Save for the same directory follows, or the directory is emptied
	// and the preparation forgotten with the next call of either. When it fails, Save has more to do.
	Prepare(ctx context.Context, dir string) error
	// Save writes the memory of the paused sandbox to files in dir. Afterwards the sandbox is still paused.
	Save(ctx context.Context, dir string) error
	// Nudge makes the guest notice that its socket is dead.
	Nudge(ctx context.Context) error
	// Wait returns, with the cause, when the sandbox has died by whatever hand.
	Wait() (cause string)
	// Destroy kills the sandbox and removes what Start made. It may be called after a failed Start, and twice.
	Destroy(ctx context.Context) error
	// Running describes what Start made.
	Running() Running
	// Guard keeps the memory limit, if there is one, by calling relieve when it is reached. It returns when ctx or the sandbox ends, or when it
	// has nothing to do.
	Guard(ctx context.Context, relieve Relieve)
}

// Relieve ends the process inside that holds the most memory, of a sandbox that holds more than limit bytes. It returns when the process
// is gone, and false if there is none to end.
type Relieve func(ctx context.Context, limit int64) (bool, error)

// Running is what an engine has running on the host.
type Running struct {
	Processes []Process
	Cgroups   []string // directories
	Missing   []string
	Marker    string // KEY=VALUE in the environment of every process, where nothing better tells whose they are
}

// Process is a process on the host, told from a later one with the same id by its start time.
type Process struct {
	Name  string
	PID   int
	Start uint64 // clock ticks after boot, field 22 of /proc/PID/stat
}

// Factory makes the engine for a config. It starts nothing.
type Factory func(cfg Config, stateDir string, log *slog.Logger) (Engine, error)

// Spare is a sandbox made ahead of need: all but its files.
type Spare interface {
	// Take returns the engine for a config, whose state directory is the spare's under another name. Its Start fails with SpareUnfit
	// when the spare cannot run that one.
	Take(cfg Config, stateDir string) Engine
	// Destroy removes what has been made.
	Destroy(ctx context.Context) error
}

// SpareUnfit is the code of the error that a sandbox cannot be made of a spare, but may be made without one.
const SpareUnfit = "spare_unfit"

// SpareFactory makes a spare. Of cfg it uses what will be the same for the sandbox: driver, version, guest, network.
type SpareFactory func(ctx context.Context, cfg Config, stateDir string, log *slog.Logger) (Spare, error)
