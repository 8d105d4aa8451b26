package shim

import (
	"context"
	"crypto/rand"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"perdure.dev/perdure/internal/guest/link"
	"perdure.dev/perdure/internal/guest/spool"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/sandbox"
)

// GuestSocket is the guest's socket in LinkDir.
const GuestSocket = "guest.sock"

// guest is the shim's end of the link, with its spool.
type guest struct {
	*link.Link
	spool *spool.Spool
	hold  *os.File // says that a shim writes to the spool
}

// streamCap is how much of one output stream is kept, in bytes: more than anybody reads, and little enough that a forgotten "yes &"
// does not fill the host's disk. The command itself goes on, and a note at the end of the stream says what happened.
const streamCap = 1 << 30

// totalCap is the same for all of a session's output together, and floor what each stream still gets beyond it: enough for a command to say
// what it has to say.
const (
	totalCap = 8 << 30
	floor    = 64 << 10
)

// newGuest opens the spool and listens for the guest in the working directory, which is the state directory.
func newGuest(ctx context.Context, cfg Config, log *slog.Logger) (*guest, error) {
	s, err := spool.Open(cfg.Spec.SpoolDir, spool.Options{Cap: streamCap, Total: totalCap, Floor: floor})
	if err != nil {
		return nil, err
	}
	hold, err := holdSpool(cfg.Spec.SpoolDir)
	if err != nil {
		s.Close()
		return nil, err
	}
	l, err := link.Open(ctx, link.Config{
		Socket: filepath.Join(LinkDir, GuestSocket),
		Spool:  s,
		Log:    log,
		Env:    cfg.Spec.Env,
		Limits: link.Limits{Processes: cfg.Spec.Limits.Processes, OpenFiles: cfg.Spec.Limits.OpenFiles},
		User:   cfg.Spec.User,
		Dir:    cfg.Spec.Dir,
	})
	if err != nil {
		hold.Close()
		s.Close()
		return nil, err
	}
	return &guest{Link: l, spool: s, hold: hold}, nil
}

func (g *guest) close(log *slog.Logger) {
	if err := g.Link.Close(); err != nil {
		log.Warn("close the link", "error", err)
	}
	g.spool.Close()
	g.hold.Close()
}

const entropyBytes = 64

// restored makes a restored guest a being of its own.
func (g *guest) restored(ctx context.Context, cfg Config) (sandbox.RestoreReport, error) {
	entropy := make([]byte, entropyBytes)
	rand.Read(entropy) // never fails, by its documentation
	in, err := g.Restored(ctx, link.RestoreInfo{Hostname: cfg.Spec.Hostname, MachineID: cfg.MachineID, Entropy: entropy})
	out := sandbox.RestoreReport{Hostname: in.Hostname, Processes: in.Processes, Reseeded: in.Reseeded, Unreseeded: in.Unreseeded, Problems: in.Problems}
	for _, c := range in.Connections {
		out.Connections = append(out.Connections, c.Remote)
	}
	return out, err
}

// spoolReader reads about commands without a shim. It never writes: the spool may have passed on to another shim of the session.
// For its reader whatever is called running is lost, with the cause of the sandbox's death.
type spoolReader struct {
	*spool.Spool
	cause string
}

func openSpool(dir, cause string) (spoolReader, error) {
	s, err := spool.Look(dir, spool.Options{})
	return spoolReader{s, cause}, err
}

// settled is the status of a command of a dead sandbox.
func (s spoolReader) settled(st sandbox.ExecStatus) sandbox.ExecStatus {
	if st.State == sandbox.ExecRunning {
		st.State, st.Cause = sandbox.ExecLost, s.cause
	}
	return st
}

func (s spoolReader) status(exec id.Exec) (sandbox.ExecStatus, error) {
	r, err := s.Get(exec)
	if err != nil {
		return sandbox.ExecStatus{}, err
	}
	return s.settled(r.Status()), nil
}

func (s spoolReader) list() []sandbox.ExecStatus {
	list := s.List()
	for i := range list {
		list[i] = s.settled(list[i])
	}
	return list
}

// result adds the beginning of the output to a status.
func (s spoolReader) result(ctx context.Context, st sandbox.ExecStatus, limit int) (sandbox.ExecResult, error) {
	res := sandbox.ExecResult{Status: st}
	r, err := s.Get(st.ID)
	if err != nil {
		return res, err
	}
	res.Stdout, res.Stderr, err = r.Heads(ctx, limit)
	return res, err
}

// output reads a stream to its end. The reader owns the spool.
func (s spoolReader) output(ctx context.Context, exec id.Exec, stream sandbox.Stream, offset int64) (io.ReadCloser, error) {
	r, err := s.Get(exec)
	if err != nil {
		return nil, err
	}
	out, err := r.Reader(ctx, stream, offset, false)
	if err != nil {
		return nil, err
	}
	return spoolOutput{out, s}, nil
}

type spoolOutput struct {
	io.ReadCloser
	spool spoolReader
}

func (o spoolOutput) Close() error {
	err := o.ReadCloser.Close()
	o.spool.Close()
	return err
}
