// Package sandbox defines what runs a workspace: the Driver that makes sandboxes and the Sandbox that executes one.
//
// # Life of a sandbox
//
//	Start/Restore ──► running ◄──Pause/Unpause──► paused
//	                     │ Checkpoint (from either; the sandbox is as it was afterwards)
//	                     ▼
//	                  Destroy, or death from inside (Status says "dead" with a cause)
//
// # Guarantees that every driver keeps (and sandboxtest checks)
//
//   - A sandbox does not depend on the process that started it: killing the daemon kills no sandbox. Recover finds it again.
//   - Exec is idempotent in the exec id: starting an id again returns the command that has it, running or finished.
//   - Output is spooled outside the sandbox by byte offset, in the session's spool directory, which outlives the client, the daemon, the
//     sandbox and any rollback. A reader resumes at any offset.
//   - An exit code is what the process returned. There is none (nil) for a process that was killed or lost.
//   - A failed Checkpoint leaves the sandbox as it was. A failed Restore leaves the image as it was and no sandbox behind.
//   - Destroy leaves no process, mount, network namespace, cgroup or file outside the spool.
//
// Drivers come in three shapes: image engines, whose checkpoint is a memory image in files; template engines, whose checkpoint is
// first kept in RAM and dumped later; and machine engines, which own their files. Hence Checkpoint returns a Warm
// handle before anything is durable, Rollback is a verb of its own, and Capabilities tells who owns the files.
package sandbox

import (
	"context"
	"io"
	"time"

	"perdure.dev/perdure/internal/id"
)

// Driver makes sandboxes of one technology. Its methods may be called at the same time.
type Driver interface {
	// Name is the driver's word on the command line, such as "gvisor".
	Name() string
	// Capabilities probes this machine and says what the driver can do here. It starts nothing.
	Capabilities(ctx context.Context) Capabilities
	// Start boots a sandbox on the given files. It returns when the guest answers.
	Start(ctx context.Context, spec Spec) (Sandbox, error)
	// Restore boots a sandbox from a memory image taken by the same driver; spec may name other directories, host name and
	// session than the image was taken with. It returns when the guest answers. An error with the code ImageRefused says that the image is
	// whole, and that its files can be started, but not its processes here and now.
	Restore(ctx context.Context, spec Spec, image Image) (Sandbox, error)
	// Rollback puts image in the place of old: on success old is destroyed, on failure old is as it was.
	// old may be paused. Engines without rollback in place use RestoreBeside.
	Rollback(ctx context.Context, old Sandbox, spec Spec, image Image) (Sandbox, error)
	// Recover returns the sandbox whose state directory is given: a running one, or a dead one with its cause.
	// It fails with sandbox_not_found when the directory holds no trace of one.
	Recover(ctx context.Context, stateDir string) (Sandbox, error)
	// Origin returns the files of the driver's own that an image needs to be restored by the same engine version elsewhere, such as the guest that runs in
	// it: paths, by names that follow from the content.
	Origin(ctx context.Context, image Image) (map[string]string, error)
	// Provide takes in a file that Origin has named elsewhere, unless it is here. It does not trust it. Error: origin_invalid.
	Provide(ctx context.Context, name string, modified time.Time, content io.Reader) error
}

// Capabilities says what a driver can do on this machine.
type Capabilities struct {
	Available       bool     // it can run sandboxes at all
	Memory          bool     // checkpoints hold processes and RAM
	InPlaceRollback bool     // Rollback needs no second sandbox
	SharedFork      bool     // forks may share memory
	OwnsFiles       bool     // file layers are the driver's, not the workspace's
	FlatFiles       bool     // cannot stack layers: Spec.Root must have none, and all files in Upper
	Network         bool     // a gateway sees every flow
	Isolation       string   // "kernel" (own kernel), "namespace", "none"
	Version         string   // of the engine; images are only good for the same one
	Missing         []string // what is not there and why, for people: "no TAP device: open /dev/net/tun: …"
	Hint            string   // what to do if it is not available, for people; may be empty
	CPU             *CPU     // what an image that is taken here will want of a processor; nil: images do not depend on it
}

// Spec is what a sandbox is made from.
type Spec struct {
	ID       id.Sandbox
	Session  id.Session
	StateDir string // private to this sandbox: sockets, logs; made by the caller, emptied by Destroy
	SpoolDir string // the session's exec spool; made by the caller; outlives the sandbox
	Root     Root
	Hostname string
	Env      []string // KEY=VALUE, the base environment of every exec
	User     string   // whom commands run as, and who owns the files that are made: NAME or UID, and perhaps :GROUP; "": root
	Dir      string   // where commands start, made if missing; "": the user's home directory
	Limits   Limits
	Network  NetworkMode
}

// Root says how the root file system is put together. The driver mounts an overlay: Upper over Layers over Base.
type Root struct {
	Image  string   // "host", "dir:PATH", or the pin of a stored image: "oci:…"
	Lower  []string // directories of a stored image, top first
	Layers []string // directories, top first, each as overlayfs left it (whiteouts, opaque marks)
	Upper  string   // receives every write as it happens
	Work   string   // overlayfs work directory, beside Upper, empty
}

// StoredImage begins Root.Image where Root.Lower has the image's files.
const StoredImage = "oci:"

// NetworkMode says what a sandbox can reach.
type NetworkMode string

// The network modes.
const (
	NetworkNone    NetworkMode = "none"    // loopback only
	NetworkGateway NetworkMode = "gateway" // one interface, whose every flow the gateway judges
)

// Limits bound a sandbox. Zero means none.
type Limits struct {
	MemoryBytes int64
	Processes   int
	OpenFiles   int // of each process
}

// Whole are the limits that hold for the sandbox as a whole, not for each process.
func (l Limits) Whole() Limits {
	l.OpenFiles = 0
	return l
}

// Sandbox runs one workspace. Its methods may be called at the same time; lifecycle calls are serialised inside.
type Sandbox interface {
	ID() id.Sandbox
	// Status never blocks on the sandbox: it reports a dead one as dead.
	Status(ctx context.Context) (Status, error)
	// Wait returns when the sandbox has died or been destroyed, with the last status.
	Wait(ctx context.Context) (Status, error)
	Pause(ctx context.Context) error
	Unpause(ctx context.Context) error
	// Checkpoint takes a consistent cut. See CheckpointRequest.
	Checkpoint(ctx context.Context, req CheckpointRequest) (Warm, error)
	// Destroy kills everything inside and removes all traces. Destroying a dead sandbox is fine.
	Destroy(ctx context.Context) error
	Execs() Execs
	Files() Files
	Guest
}

// State is the state of a sandbox.
type State string

// The states.
const (
	Running State = "running"
	Paused  State = "paused"
	Dead    State = "dead"
)

// Status is a sandbox's state.
type Status struct {
	ID        id.Sandbox
	State     State
	Cause     string // why it is dead, for people
	StartedAt time.Time
	PIDs      []int    // on the host: the shim first
	Missing   []string // what it runs without, such as "network: no TAP device"
}

// RestoreReport says what a restore kept and what it reset, as seen from inside.
type RestoreReport struct {
	Processes   []Process
	Hostname    string    // as it is now; "": unknown
	Reseeded    []string  // what got new randomness
	Unreseeded  []Process // their own random generators are copies of the original's
	Connections []string  // ADDRESS:PORT of the other ends of connections to the outside, which are broken
	Problems    []string  // what could not be done, for people
}

// CheckpointRequest asks for a consistent cut of memory and files. A driver that keeps no memory makes everything stand still for Cut; its
// image is one that Restore refuses.
type CheckpointRequest struct {
	Dir string // receives the memory image; made by the caller, empty
	// Cut is called once, while everything inside stands still; the caller copies files in it. If it fails, the checkpoint fails.
	// It may run beside the saving of memory. Nil means nothing to do.
	Cut func(ctx context.Context) error
	// LeavePaused keeps the sandbox paused after a successful cut, for a caller who destroys it next.
	LeavePaused bool
}

// Warm is a checkpoint that can be restored on this machine, but may be gone after a crash.
type Warm interface {
	// Image is what Restore takes. It is valid at once.
	Image() Image
	// Pause is how long the sandbox stood still for it.
	Pause() time.Duration
	// Persist brings everything to stable storage: after it, Image survives a host crash. It may run while the sandbox runs on.
	Persist(ctx context.Context) error
}

// ImageRefused is the code of the error that a memory image does not fit this machine any more: another processor, or other files below
// the layers.
const ImageRefused = "image_refused"

// Image is a stored memory image.
type Image struct {
	Dir     string
	Driver  string
	Version string // of the engine
	Bytes   int64
	CPU     *CPU `json:",omitempty"` // what it wants of the processor; nil: not known, or nothing
}
