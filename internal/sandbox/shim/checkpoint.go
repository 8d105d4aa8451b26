package shim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/sandbox"
)

// checkpoint is a dialogue over one request, so that the shim notices when its caller dies in the middle:
//
//	client: checkpointStart
//	shim:   {Paused}             the client copies files now
//	client: {Alive} every now and then, if both say that they know of it
//	client: {CutOK} or {CutBad}
//	shim:   {Done, …} or {Error}
func (s *server) checkpoint(w http.ResponseWriter, r *http.Request) {
	rc := http.NewResponseController(w)
	if err := rc.EnableFullDuplex(); err != nil {
		writeError(w, err)
		return
	}
	in, out := json.NewDecoder(r.Body), json.NewEncoder(w)
	send := func(line checkpointLine) error {
		if err := out.Encode(line); err != nil {
			return err
		}
		return rc.Flush()
	}
	var req checkpointStart
	if err := in.Decode(&req); err != nil {
		writeError(w, errdefs.Wrap(err, errdefs.Invalid, "bad_request", "read the request"))
		return
	}
	cut := func(ctx context.Context) error {
		if err := send(checkpointLine{Paused: true, Alive: true}); err != nil {
			return fmt.Errorf("the caller went away: %w", err)
		}
		answer, err := hear(ctx, rc, in, req.Alive)
		if err != nil {
			return err
		}
		if !answer.CutOK {
			return errors.New(answer.CutBad)
		}
		return nil
	}
	pause, size, err := s.cut(r.Context(), req, cut)
	last := checkpointLine{Done: true, Pause: int64(pause), Bytes: size}
	if err != nil {
		last = checkpointLine{Error: toWire(err)}
	}
	if err := send(last); err != nil && req.LeavePaused {
		// Nobody knows that the sandbox stands still: it must not do so for ever.
		s.log.Warn("the caller of a checkpoint went away at its end: running on")
		_, _ = s.unpause(context.WithoutCancel(r.Context()), none{})
	}
}

// hear waits for the caller's answer until ctx ends, and while it gives signs of life if it can.
func hear(ctx context.Context, rc *http.ResponseController, in *json.Decoder, signs bool) (checkpointLine, error) {
	end, _ := ctx.Deadline()
	for {
		until := end
		if next := time.Now().Add(silenceLimit); signs && next.Before(end) {
			until = next
		}
		if err := rc.SetReadDeadline(until); err != nil {
			return checkpointLine{}, err
		}
		var line checkpointLine
		err := in.Decode(&line)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return line, errors.New("the caller stands still")
		case err != nil:
			return line, fmt.Errorf("the caller went away: %w", err)
		case !line.Alive:
			return line, rc.SetReadDeadline(time.Time{})
		}
	}
}

// cut takes the checkpoint. Whatever fails, the sandbox is afterwards as it was, and the directory empty.
func (s *server) cut(ctx context.Context, req checkpointStart, cutFiles func(ctx context.Context) error) (time.Duration, int64, error) {
	s.life.Lock()
	defer s.life.Unlock()
	before, err := s.alive()
	if err != nil {
		return 0, 0, err
	}
	if before == sandbox.Running && !req.LeavePaused {
		err := s.engine.Prepare(ctx, req.Dir)
		if ctx.Err() != nil { // nobody waits for it any more
			return 0, 0, errors.Join(context.Cause(ctx), emptyDir(req.Dir))
		}
		if err != nil {
			s.log.Warn("not all was saved ahead of a pause", "error", err)
		}
	}
	// From here on the caller's death must not leave things half done.
	ctx = context.WithoutCancel(ctx)
	limited, cancel := context.WithTimeout(ctx, stillnessLimit)
	defer cancel()

	began := s.clock.Now()
	if before == sandbox.Running {
		if err := s.engine.Pause(ctx); err != nil {
			return 0, 0, errdefs.Wrap(err, errdefs.Internal, "checkpoint_failed", "pause the sandbox")
		}
	}
	// Saving flushes file times that the engine has cached, so the files are cut only when memory is saved.
	s.stale = true
	err = s.engine.Save(limited, req.Dir)
	if err == nil {
		err = writeOrigin(req.Dir, s.cfg)
	}
	if err != nil {
		if errdefs.CodeOf(err) == "internal" {
			err = errdefs.Wrap(err, errdefs.Internal, "checkpoint_failed", "save the memory")
		}
	} else if err = cutFiles(limited); err != nil {
		err = errdefs.Wrap(err, errdefs.KindOf(err), "checkpoint_failed", "cut the files")
	}
	resume := before == sandbox.Running && (err != nil || !req.LeavePaused)
	if resume {
		if uerr := s.engine.Unpause(ctx); uerr != nil {
			s.setState(sandbox.Paused)
			err = errors.Join(err, errdefs.Wrap(uerr, errdefs.Internal, "unpause_failed", "unpause the sandbox"))
		}
	} else {
		s.setState(sandbox.Paused)
	}
	pause := s.clock.Now().Sub(began)
	if resume {
		if rerr := s.reconnect(ctx); rerr != nil {
			s.log.Warn("the guest does not answer after a checkpoint", "error", rerr)
		}
	}
	if err != nil {
		if derr := emptyDir(req.Dir); derr != nil {
			s.log.Warn("cannot empty the directory of a failed checkpoint", "error", derr)
		}
		return 0, 0, err
	}
	size, err := dirSize(req.Dir)
	return pause, size, err
}

// reconnect makes the guest dial again: saving broke its socket, but its blocked read does not notice.
func (s *server) reconnect(ctx context.Context) error {
	s.guest.Drop()
	s.guest.DropTunnels()
	s.stale = false
	ctx, stop := s.whileAlive(ctx)
	defer stop()
	if err := s.engine.Nudge(ctx); err != nil {
		return err
	}
	return s.awaitGuest(ctx)
}

// emptyDir removes what is in dir, but for the names to keep.
func emptyDir(dir string, keep ...string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	var errs []error
next:
	for _, e := range entries {
		for _, k := range keep {
			if e.Name() == k {
				continue next
			}
		}
		errs = append(errs, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return errors.Join(append(errs, err)...)
}

func dirSize(dir string) (int64, error) {
	var sum int64
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return 0, err
		}
		sum += info.Size()
	}
	return sum, nil
}
