package sandbox

import (
	"context"
	"io"
	"io/fs"
	"time"

	"perdure.dev/perdure/internal/id"
)

// Execs starts and supervises the commands of a sandbox. Reading about commands works from the spool when the sandbox is dead.
type Execs interface {
	// Start begins a command, or returns the one that already has the id. Errors: sandbox_dead, exec_invalid, interpreter_failed, and those
	// that also leave a finished record, with the exit code that a shell gives: command_not_found (127), command_not_executable (126).
	Start(ctx context.Context, spec ExecSpec) (ExecStatus, error)
	// Run is Start, Wait and Output in one step: it begins a command, or joins the one that already has the id, and returns when it has
	// ended, with the first limit bytes of each stream. After an error the command may run all the same; Status tells.
	Run(ctx context.Context, spec ExecSpec, limit int) (ExecResult, error)
	// Status returns one command. Error: exec_not_found.
	Status(ctx context.Context, exec id.Exec) (ExecStatus, error)
	// List returns every command that the spool knows, oldest first.
	List(ctx context.Context) ([]ExecStatus, error)
	// Wait returns when the command has ended, also if by the death of the sandbox.
	Wait(ctx context.Context, exec id.Exec) (ExecStatus, error)
	// Signal sends a signal to the command's process group. For shell and python commands, to what the interpreter runs.
	Signal(ctx context.Context, exec id.Exec, signal int) error
	// Stdin writes at an offset, which makes repeats harmless. eof closes it after data.
	Stdin(ctx context.Context, exec id.Exec, offset int64, data []byte, eof bool) error
	// Resize sets the terminal's size.
	Resize(ctx context.Context, exec id.Exec, size TerminalSize) error
	// Output reads a stream from an offset. With follow it goes on until the stream's end; without, until what there is.
	Output(ctx context.Context, exec id.Exec, stream Stream, offset int64, follow bool) (io.ReadCloser, error)
}

// ExecKind says what runs a command.
type ExecKind string

// The kinds.
const (
	ExecProcess ExecKind = "process" // a new process: Argv
	ExecShell   ExecKind = "shell"   // the persistent bash named Interpreter: Code
	ExecPython  ExecKind = "python"  // the persistent Python named Interpreter: Code
)

// ExecSpec describes a command.
type ExecSpec struct {
	ID          id.Exec
	Kind        ExecKind
	Argv        []string
	Code        string
	Interpreter string // "" means "main"
	Dir         string // "" means where Spec has commands start; ignored for interpreters, which keep their own
	User        string // NAME or UID, and perhaps :GROUP; "" means Spec's; not for interpreters, which are the workspace's user's
	Env         []string
	TTY         *TerminalSize // a terminal of this size; stdout and stderr are then one stream, Stdout
	Stdin       bool          // false: stdin is /dev/null
	Timeout     time.Duration // 0: none. At the timeout the whole process group is killed, and the command has ended with TimedOut
	Background  bool          // meant to outlive the call that started it: a label for lists, no difference in handling
	Label       string        // free text for lists
}

// TerminalSize is in characters.
type TerminalSize struct{ Rows, Cols uint16 }

// Stream is one of a command's output streams.
type Stream string

// The streams.
const (
	Stdout Stream = "stdout"
	Stderr Stream = "stderr"
)

// ExecState is the state of a command.
type ExecState string

// The states.
const (
	ExecRunning ExecState = "running"
	ExecExited  ExecState = "exited" // has an exit code or a signal
	ExecLost    ExecState = "lost"   // its sandbox died, or the timeline it ran in was left; Cause says which
)

// ExecStatus is what is known of a command.
type ExecStatus struct {
	ID         id.Exec
	Spec       ExecSpec
	State      ExecState
	PID        int    // inside the sandbox
	ExitCode   *int   // nil unless the process itself returned it
	Signal     string // the name of the signal that ended it, such as "SIGKILL"
	Cause      string // for people, when lost or failed to start
	TimedOut   bool
	StartedAt  time.Time
	EndedAt    time.Time // zero while running
	StdoutSize int64     // bytes spooled so far
	StderrSize int64
	StdinSize  int64 // bytes of input accepted, as the last call of Stdin found; an empty one at offset 0 finds out
}

// ExecResult is a command that has ended, with the beginning of its output.
type ExecResult struct {
	Status ExecStatus
	Stdout []byte // Status.StdoutSize tells how much there is in all
	Stderr []byte
}

// Files reads and writes files inside the sandbox, through its own eyes. Paths are absolute,
// inside the sandbox, or start at its home directory: ~ and ~/…, or where its commands start: . and ./….
// Errors: file_not_found, file_exists, not_a_directory, is_a_directory, file_denied, disk_full, sandbox_dead.
type Files interface {
	// Read returns length bytes from offset (length < 0: to the end), and the file's whole size.
	Read(ctx context.Context, path string, offset, length int64) (io.ReadCloser, int64, error)
	// Write replaces a file atomically (write beside, fsync, rename), making its parents. Mode 0 means 0644 or what the file had.
	Write(ctx context.Context, path string, mode fs.FileMode, data io.Reader) error
	// Put makes many small files, directories and symbolic links in order, each as Write and Mkdir would, or in the place of a file or link that is
	// there. It stops at the first error. Unlike Write it leaves syncing to others.
	Put(ctx context.Context, files []NewFile) error
	// List returns a directory's entries by name.
	List(ctx context.Context, path string) ([]FileInfo, error)
	// Stat does not follow a final symbolic link.
	Stat(ctx context.Context, path string) (FileInfo, error)
	// Remove deletes a file, or a tree if recursive. A missing file is no error.
	Remove(ctx context.Context, path string, recursive bool) error
	// Mkdir makes a directory and its parents.
	Mkdir(ctx context.Context, path string, mode fs.FileMode) error
	// Watch reports changes below a directory until ctx ends. Where some were missed, since the tree is too large, the reader too slow or the
	// connection was broken, it reports OpOverflow for the directory itself.
	Watch(ctx context.Context, path string) (<-chan FileChange, error)
	// Processes lists every process of the sandbox but the guest itself.
	Processes(ctx context.Context) ([]Process, error)
}

// NewFile is one that Put makes.
type NewFile struct {
	Path   string
	Mode   fs.FileMode // its type, a regular file's, a directory's or a symbolic link's, and its permissions; none: as with Write and Mkdir
	Target string      // of a symbolic link
	Data   []byte      // of a regular file
}

// FileInfo describes a file.
type FileInfo struct {
	Name    string
	Size    int64
	Mode    fs.FileMode
	ModTime time.Time
	Target  string // of a symbolic link
}

// FileChange is one change that Watch saw.
type FileChange struct {
	Path string
	Op   string // create, write, remove, rename, or OpOverflow
}

// OpOverflow is the Op of a FileChange that stands for changes that were missed: read the directory again.
const OpOverflow = "overflow"

// Process is one process inside a sandbox.
type Process struct {
	PID, PPID int
	Args      []string
	State     string  // one letter, as in /proc/PID/stat
	RSS       int64   // bytes
	Exec      id.Exec // the command that it belongs to, if known
}
