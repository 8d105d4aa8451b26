package server

import (
	"context"
	"io"
	"time"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/id"
)

// follow reads a stream of a command's output to its real end. The backend's own reader may end early, because the workspace went to sleep or its
// sandbox was replaced; as long as the command counts as running, and then until its last byte, the stream is opened again at the offset reached.
func (s *Server) follow(ctx context.Context, ref string, exec id.Exec, stream string, offset int64) io.ReadCloser {
	ctx, cancel := context.WithCancel(ctx)
	return &follower{b: s.cfg.Backend.Execs, ctx: ctx, cancel: cancel, ref: ref, exec: exec, stream: stream, at: offset}
}

// follower is used by one goroutine. To end a Read from elsewhere, end its context.
type follower struct {
	b      Execs
	ctx    context.Context // of the one request; ends with Close
	cancel context.CancelFunc
	ref    string
	exec   id.Exec
	stream string
	at     int64
	r      io.ReadCloser
	stop   func() bool
}

// reopenAfter is the wait before a stream that ended early is opened again.
const reopenAfter = 200 * time.Millisecond

func (f *follower) Read(p []byte) (int, error) {
	for {
		var err error
		if f.r == nil {
			err = f.open()
		}
		if err == nil {
			var n int
			n, err = f.r.Read(p)
			f.at += int64(n)
			if n > 0 {
				return n, nil
			}
			if err == nil {
				continue
			}
			f.drop()
		}
		if f.ctx.Err() != nil {
			return 0, context.Cause(f.ctx)
		}
		if err := f.ended(err); err != nil {
			return 0, err
		}
	}
}

func (f *follower) open() error {
	r, err := f.b.ExecOutput(f.ctx, f.ref, f.exec, f.stream, f.at, true)
	if err != nil {
		return err
	}
	f.r = r
	f.stop = context.AfterFunc(f.ctx, func() { r.Close() }) // wakes a Read that does not watch the context
	return nil
}

func (f *follower) drop() {
	f.stop()
	f.r.Close()
	f.r = nil
}

// ended decides after a reader ended with err: io.EOF at the real end, err if the command is over, nil to open again.
func (f *follower) ended(err error) error {
	st, serr := f.b.GetExec(f.ctx, f.ref, f.exec)
	switch {
	case serr != nil:
		return serr
	case st.State != api.ExecRunning:
		size := st.StdoutSize
		if f.stream == "stderr" {
			size = st.StderrSize
		}
		if f.at < size && err == io.EOF {
			return nil // it went on, and ended, between the two looks
		}
		return err
	}
	return f.pause()
}

// pause waits before the stream is opened again: not at all if the command ends, for usually its output ends a moment before it does.
func (f *follower) pause() error {
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	over := make(chan struct{})
	go func() { // ends with ctx
		if _, err := f.b.WaitExec(ctx, f.ref, f.exec); err == nil {
			close(over)
		}
	}()
	t := time.NewTimer(reopenAfter)
	defer t.Stop()
	select {
	case <-over:
		return nil
	case <-t.C:
		return nil
	case <-f.ctx.Done():
		return context.Cause(f.ctx)
	}
}

// Close ends reading.
func (f *follower) Close() error {
	f.cancel()
	if f.r != nil {
		f.drop()
	}
	return nil
}
