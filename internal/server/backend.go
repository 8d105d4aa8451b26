package server

import (
	"context"
	"io"
	"io/fs"
	"iter"
	"time"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/id"
)

// Backend is all that the server needs; internal/service implements it. In every method, ref is a session's name or id, and
// the context carries the actor (package actor). Errors are of package errdefs.
type Backend struct {
	Sessions    Sessions
	Settings    Settings
	Ports       Ports
	Events      Events
	Execs       Execs
	Files       Files
	Checkpoints Checkpoints
	Storage     Storage
	Archives    Archives
	System      System
	Images      Images
}

// Sessions makes, shows and moves sessions.
type Sessions interface {
	// CreateSession makes a session and starts its workspace; with a goal it starts to work. It returns when the workspace answers.
	CreateSession(ctx context.Context, req api.CreateSession) (api.Session, error)
	GetSession(ctx context.Context, ref string) (api.Session, error)
	ListSessions(ctx context.Context, page api.Page) (api.List[api.Session], error)
	DeleteSession(ctx context.Context, ref string) error
	// CancelSession asks the turn in progress to stop. Without one it changes nothing.
	CancelSession(ctx context.Context, ref string, req api.CancelSession) (api.Session, error)
	// WaitSession returns when the session is in one of the states. The caller's context carries the time limit.
	WaitSession(ctx context.Context, ref string, states []string) (api.Session, error)
	PauseSession(ctx context.Context, ref string) (api.Session, error)
	SuspendSession(ctx context.Context, ref string) (api.Session, error)
	StopSession(ctx context.Context, ref string) (api.Session, error)
	// ResumeSession reverses any of pause, suspend and stop. Resuming what runs changes nothing.
	ResumeSession(ctx context.Context, ref string) (api.Session, error)
}

// Ports forwards ports into workspaces.
type Ports interface {
	ForwardPort(ctx context.Context, ref string, req api.ForwardPort) (api.Port, error)
	ListPorts(ctx context.Context, ref string) (api.List[api.Port], error)
	RemovePort(ctx context.Context, ref string, local uint16) error
}

// Settings changes what can be changed of sessions.
type Settings interface {
	// ConfigureSession wakes nothing.
	ConfigureSession(ctx context.Context, ref string, req api.ConfigureSession) (api.Session, error)
}

// Events reads and extends the logs.
type Events interface {
	// ListEvents returns events after the seq, in order.
	ListEvents(ctx context.Context, ref string, after uint64, limit int) (api.List[api.Event], error)
	// Subscribe checks ref and cursor (unknown_cursor, kind invalid, if after is beyond the head) and returns the events after the cursor,
	// stored ones first, then live ones with deltas in between, until ctx ends or the session is deleted.
	Subscribe(ctx context.Context, ref string, after uint64) (iter.Seq2[api.StreamItem, error], error)
	// SendMessages returns the events that it appended.
	SendMessages(ctx context.Context, ref string, req api.SendMessages) (api.List[api.Event], error)
	Timeline(ctx context.Context, ref string) (api.Timeline, error)
	TimelineEvents(ctx context.Context, ref string, page api.Page) (api.List[api.Event], error)
	// Diff compares two of S and S@CKPT.
	Diff(ctx context.Context, a, b string) (api.Diff, error)
	// Artifact opens an artifact of a session or of one that it was forked from.
	Artifact(ctx context.Context, ref string, artifact id.Artifact) (io.ReadSeekCloser, error)
}

// Execs starts and supervises commands. The semantics are those of sandbox.Execs; a workspace that sleeps is resumed by StartExec alone.
type Execs interface {
	// StartExec does not wait: req.Wait, req.Output and req.MaxOutput are the server's. req.ID is never empty.
	StartExec(ctx context.Context, ref string, req api.StartExec) (api.Exec, error)
	// RunExec is StartExec and WaitExec in one step, and fills in the first limit bytes of each stream, as they are. When ctx ends the
	// command goes on.
	RunExec(ctx context.Context, ref string, req api.StartExec, limit int64) (api.Exec, error)
	GetExec(ctx context.Context, ref string, exec id.Exec) (api.Exec, error)
	ListExecs(ctx context.Context, ref string, page api.Page) (api.List[api.Exec], error)
	WaitExec(ctx context.Context, ref string, exec id.Exec) (api.Exec, error)
	// AttachExec says that a client works with a command until leave is called.
	AttachExec(ctx context.Context, ref string, exec id.Exec) (leave func(), err error)
	SignalExec(ctx context.Context, ref string, exec id.Exec, signal int) error
	// WriteStdin writes at an offset, which makes repeats harmless; eof closes after data.
	WriteStdin(ctx context.Context, ref string, exec id.Exec, offset int64, data []byte, eof bool) error
	ResizeExec(ctx context.Context, ref string, exec id.Exec, size api.TerminalSize) error
	// ExecOutput reads stream "stdout" or "stderr" from an offset; with follow to its end, without until what there is.
	ExecOutput(ctx context.Context, ref string, exec id.Exec, stream string, offset int64, follow bool) (io.ReadCloser, error)
}

// Files reads and writes files inside a workspace. The semantics are those of sandbox.Files.
type Files interface {
	// ReadFile returns length bytes from offset (length < 0: to the end), and the file's whole size.
	ReadFile(ctx context.Context, ref, path string, offset, length int64) (io.ReadCloser, int64, error)
	WriteFile(ctx context.Context, ref, path string, mode fs.FileMode, data io.Reader) error
	// Unpack writes the files of a tar archive below a directory.
	Unpack(ctx context.Context, ref, path string, tar io.Reader) error
	ListFiles(ctx context.Context, ref, path string) (api.List[api.FileInfo], error)
	StatFile(ctx context.Context, ref, path string) (api.FileInfo, error)
	RemoveFile(ctx context.Context, ref, path string, recursive bool) error
	Mkdir(ctx context.Context, ref, path string, mode fs.FileMode) error
	Processes(ctx context.Context, ref string) (api.List[api.Process], error)
}

// Checkpoints takes checkpoints and goes to them.
type Checkpoints interface {
	// CreateCheckpoint returns when the checkpoint is at least warm.
	CreateCheckpoint(ctx context.Context, ref string, req api.CreateCheckpoint) (api.Checkpoint, error)
	ListCheckpoints(ctx context.Context, ref string, page api.Page) (api.List[api.Checkpoint], error)
	GetCheckpoint(ctx context.Context, checkpoint id.Checkpoint) (api.Checkpoint, error)
	DeleteCheckpoint(ctx context.Context, checkpoint id.Checkpoint) error
	// ForkSession makes req.Count sessions, all or none. req.Count is at least 1.
	ForkSession(ctx context.Context, ref string, req api.ForkSession) (api.List[api.Session], error)
	RollbackSession(ctx context.Context, ref string, req api.RollbackSession) (api.RollbackPlan, error)
	// UndoSession goes back to before the last rollback. Error: nothing_to_undo, kind conflict.
	UndoSession(ctx context.Context, ref string) (api.RollbackPlan, error)
	VerifySession(ctx context.Context, ref string) (api.VerifyReport, error)
	// RecoverSession goes to the newest state that verifies. Error: nothing_to_recover, kind conflict.
	RecoverSession(ctx context.Context, ref string, req api.RecoverSession) (api.RecoverReport, error)
}

// Storage looks after what is stored of checkpoints.
type Storage interface {
	// CheckStorage reads all of it, and heals it if asked to.
	CheckStorage(ctx context.Context, req api.CheckStorage) (api.StorageReport, error)
	// StorageUsage says what it takes: for a session with its relatives, or for all if ref is empty.
	StorageUsage(ctx context.Context, ref string) (api.StorageUsage, error)
}

// Images keeps what workspaces start from. A reference is a name or a digest, see package image.
type Images interface {
	// PullImage brings an image from a registry; progress, if not nil, hears how far it is.
	PullImage(ctx context.Context, req api.PullImage, progress func(api.PullProgress)) (api.Image, error)
	// ImportImage takes an image from an archive; name may be empty.
	ImportImage(ctx context.Context, name string, archive io.Reader) (api.Image, error)
	ListImages(ctx context.Context, page api.Page) (api.List[api.Image], error)
	GetImage(ctx context.Context, ref string) (api.Image, error)
	// DeleteImage fails with image_in_use while a session or checkpoint stands on the image.
	DeleteImage(ctx context.Context, ref string) error
}

// Archives writes sessions as archives, and makes sessions of them. See package portable.
type Archives interface {
	// ExportSession writes an archive. It fails before the first byte, or leaves one without an end.
	ExportSession(ctx context.Context, ref string, req api.ExportSession, w io.Writer) error
	// ImportSession makes a session of an archive, all or nothing. Errors: bad_archive, archive_truncated, archive_damaged, memory_unusable, name_taken.
	ImportSession(ctx context.Context, req api.ImportSession, archive io.Reader) (api.Session, error)
}

// System tells about the daemon and its machine.
type System interface {
	Health(ctx context.Context) (api.Health, error)
	Doctor(ctx context.Context) (api.DoctorReport, error)
	Version() api.BuildInfo
}

// IdempotencyStore remembers the answers to POSTs that carried an Idempotency-Key. It is durable.
type IdempotencyStore interface {
	// Begin claims a key for a request. If the key is new, it stores the fingerprint and returns nil, nil: the caller goes on and must call
	// Finish or Abandon. Otherwise it returns what is stored, whoever stored it.
	Begin(ctx context.Context, key string, fingerprint []byte) (*Answer, error)
	// Finish stores the answer.
	Finish(ctx context.Context, key string, answer Answer) error
	// Abandon forgets a claimed key, so that the request may be made again.
	Abandon(ctx context.Context, key string) error
}

// Answer is a stored answer. Status 0 means that the request is still in flight.
type Answer struct {
	Fingerprint []byte // of method, path and body
	Status      int
	Header      map[string]string // those that matter: Content-Type
	Body        []byte
	CreatedAt   time.Time
}
