package wire

import (
	"io/fs"
	"time"
)

// The methods of requests, each with the types of its head and result.
const (
	MethodExecStart   = "exec.start"   // ExecSpec → ExecStarted
	MethodExecSignal  = "exec.signal"  // SignalArgs → nothing
	MethodExecStdin   = "exec.stdin"   // StdinArgs + blob → StdinResult
	MethodExecResize  = "exec.resize"  // ResizeArgs → nothing
	MethodFileRead    = "file.read"    // ReadArgs → ReadResult + blob
	MethodFileWrite   = "file.write"   // WriteArgs + blob → nothing
	MethodFilePut     = "file.put"     // PutArgs + blob → nothing
	MethodFileList    = "file.list"    // ListArgs → ListResult
	MethodFileStat    = "file.stat"    // PathArgs → FileInfo
	MethodFileRemove  = "file.remove"  // RemoveArgs → nothing
	MethodFileMkdir   = "file.mkdir"   // MkdirArgs → nothing
	MethodFileWatch   = "file.watch"   // PathArgs → nothing; Events follow
	MethodFileUnwatch = "file.unwatch" // UnwatchArgs → nothing
	MethodProcesses   = "processes"    // nothing → ProcessesResult
	MethodRestored    = "restored"     // RestoredArgs → RestoredResult
	MethodConfine     = "confine"      // ConfineArgs → nothing; an error says why the limit does not hold
	MethodRelieve     = "relieve"      // RelieveArgs → RelieveResult
	MethodDial        = "dial"         // DialArgs → nothing, once the guest has connected both ends
	MethodHooks       = "hooks"        // HooksArgs → HooksResult
)

// ExecStarted answers exec.start. Its end, if it has one, comes as an Exit.
type ExecStarted struct {
	PID       int
	StartedAt time.Time
	Cause     string `json:",omitempty"` // for people: such as that the interpreter had to be started anew
}

// SignalArgs go with exec.signal.
type SignalArgs struct {
	Exec   string
	Signal int
}

// StdinArgs go with exec.stdin; the data is the blob.
type StdinArgs struct {
	Exec   string
	Offset int64
	EOF    bool
}

// StdinResult answers exec.stdin.
type StdinResult struct {
	Next int64 // the offset of the next byte that is not yet taken
}

// ResizeArgs go with exec.resize.
type ResizeArgs struct {
	Exec string
	Size Size
}

// PathArgs name a file.
type PathArgs struct{ Path string }

// ReadArgs go with file.read: one piece of at most MaxBlob bytes.
type ReadArgs struct {
	Path   string
	Offset int64
	Length int64
	Inode  uint64 // zero, or what an earlier piece said: the file must still be the same
}

// ReadResult answers file.read; the data is the blob.
type ReadResult struct {
	Size  int64
	Inode uint64
}

// WriteArgs go with file.write. The pieces of one file share an upload id; the last one has Commit.
type WriteArgs struct {
	Upload string
	Path   string
	Mode   fs.FileMode
	Offset int64
	Commit bool
	Abort  bool
}

// PutArgs go with file.put; the blob is the contents of the regular files, one after the other.
type PutArgs struct{ Files []NewFile }

// NewFile is sandbox.NewFile in this language.
type NewFile struct {
	Path   string
	Mode   fs.FileMode
	Target string `json:",omitempty"`
	Size   int64  `json:",omitempty"` // of its part of the blob
}

// ListArgs go with file.list: entries after the name After, as many as fit.
type ListArgs struct{ Path, After string }

// ListResult answers file.list.
type ListResult struct {
	Entries []FileInfo
	More    bool
}

// FileInfo is sandbox.FileInfo in this language.
type FileInfo struct {
	Name    string
	Size    int64
	Mode    fs.FileMode
	ModTime time.Time
	Target  string `json:",omitempty"`
}

// RemoveArgs go with file.remove.
type RemoveArgs struct {
	Path      string
	Recursive bool
}

// MkdirArgs go with file.mkdir.
type MkdirArgs struct {
	Path string
	Mode fs.FileMode
}

// UnwatchArgs go with file.unwatch.
type UnwatchArgs struct{ Watch uint64 }

// ProcessesResult answers processes.
type ProcessesResult struct{ Processes []Process }

// Process is sandbox.Process in this language.
type Process struct {
	PID, PPID int
	Args      []string
	State     string
	RSS       int64
	Exec      string `json:",omitempty"`
}

// ConfineArgs go with confine. Zero is no limit.
type ConfineArgs struct {
	Processes int   // how many processes and threads commands may have at a time
	Memory    int64 // bytes of the sandbox, of which files in memory may take half
}

// RelieveArgs go with relieve: memory is short, and the largest process is to be killed.
type RelieveArgs struct{ Limit int64 } // in bytes; told to people

// RelieveResult answers relieve, once the process is gone, or does not go.
type RelieveResult struct {
	PID  int // 0: there was none to kill
	Name string
	RSS  int64 // bytes
}

// RestoredArgs go with restored: the guest has just come back from an image.
type RestoredArgs struct {
	Hostname  string
	MachineID string // 32 hex digits; written to /etc/machine-id
	Entropy   []byte // at least 32 bytes from outside
	Now       time.Time
}

// RestoredResult answers restored.
type RestoredResult struct {
	Processes    []Process
	Clock        time.Duration // the guest's wall clock minus the host's
	Hostname     string        // what it is now
	Reseeded     []string      // what got new randomness
	Unreseeded   []Process     // processes whose user-space random state nobody can renew
	Connections  []Connection  // to the outside, which the cut has broken
	Interpreters []Interpreter
	Problems     []string // what could not be done, for people
}

// Connection is an established TCP connection that left the sandbox.
type Connection struct{ Local, Remote string }

// Interpreter is a persistent interpreter.
type Interpreter struct {
	Kind, Name string
	PID        int
	Alive      bool
}
