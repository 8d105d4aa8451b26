package shim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/sandbox"
)

// Checkpoint implements sandbox.Sandbox. See checkpoint.go for the dialogue.
func (c *Client) Checkpoint(ctx context.Context, req sandbox.CheckpointRequest) (sandbox.Warm, error) {
	body, tell := io.Pipe()
	defer tell.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lines := json.NewEncoder(tell)
	// Ends when the request has taken the line or failed, which closes the pipe.
	go func() { _ = lines.Encode(checkpointStart{Dir: req.Dir, LeavePaused: req.LeavePaused, Alive: true}) }()
	talk := c.conversation(func() { body.CloseWithError(errGone) })
	defer talk.Close()
	resp, err := talk.do(ctx, http.MethodPost, pathCheckpoint, nil, body)
	if err != nil {
		body.CloseWithError(err)
		return nil, c.explain(err)
	}
	defer resp.Body.Close()
	answers := json.NewDecoder(resp.Body)
	hear := func() (checkpointLine, error) {
		var line checkpointLine
		switch err := answers.Decode(&line); {
		case err != nil && ctx.Err() != nil:
			return line, context.Cause(ctx)
		case err != nil:
			return line, c.explain(fmt.Errorf("%w: %w", errGone, err))
		case line.Error != nil:
			return line, line.Error.err()
		}
		return line, nil
	}
	paused, err := hear()
	if err != nil {
		return nil, err
	}
	var cutErr error
	if req.Cut != nil {
		quiet := func() {}
		if paused.Alive {
			quiet = giveSigns(lines)
		}
		cutErr = req.Cut(ctx)
		quiet()
	}
	answer := checkpointLine{CutOK: cutErr == nil}
	if cutErr != nil {
		answer.CutBad = cutErr.Error()
	}
	if err := lines.Encode(answer); err != nil {
		return nil, errors.Join(cutErr, c.explain(fmt.Errorf("%w: %w", errGone, err)))
	}
	last, err := hear()
	if cutErr != nil {
		return nil, errdefs.Wrap(cutErr, errdefs.KindOf(cutErr), "checkpoint_failed", "cut the files")
	}
	if err != nil {
		return nil, err
	}
	return warm{
		image: sandbox.Image{Dir: req.Dir, Driver: c.cfg.Driver, Version: c.cfg.Version, Bytes: last.Bytes, CPU: c.cfg.CPU},
		pause: time.Duration(last.Pause),
	}, nil
}

// giveSigns tells the shim that its caller is at work, until stop is called.
func giveSigns(lines *json.Encoder) (stop func()) {
	tick, ending, ended := time.NewTicker(aliveEvery), make(chan struct{}), make(chan struct{})
	go func() { // ends with stop
		defer close(ended)
		defer tick.Stop()
		for {
			select {
			case <-ending:
				return
			case <-tick.C:
				if lines.Encode(checkpointLine{Alive: true}) != nil {
					return
				}
			}
		}
	}()
	return func() { close(ending); <-ended }
}

// conversation returns a client for one request whose body stays open, on a connection of its own. When the shim dies the transport
// waits until the whole body is written, which for an open one is never: so the end of the connection calls ended, which closes it.
func (c *Client) conversation(ended func()) *Client {
	return &Client{dir: c.dir, cfg: c.cfg, http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, err := dial(ctx, c.dir)
			if err != nil {
				return nil, err
			}
			return watchedConn{conn, ended}, nil
		},
		DisableKeepAlives:  true,
		DisableCompression: true,
	}}}
}

// watchedConn tells of its end. Somebody must be reading, as the transport does.
type watchedConn struct {
	net.Conn
	ended func()
}

func (c watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		c.ended()
	}
	return n, err
}

// warm is a checkpoint in the page cache.
type warm struct {
	image sandbox.Image
	pause time.Duration
}

func (w warm) Image() sandbox.Image { return w.image }
func (w warm) Pause() time.Duration { return w.pause }

// Persist syncs every file of the image, then the directory.
func (w warm) Persist(ctx context.Context) error {
	entries, err := os.ReadDir(w.image.Dir)
	if err != nil {
		return errdefs.Wrap(err, errdefs.Unavailable, "image_unreadable", "list the image")
	}
	paths := []string{}
	for _, e := range entries {
		paths = append(paths, filepath.Join(w.image.Dir, e.Name()))
	}
	for _, path := range append(paths, w.image.Dir) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := syncPath(path); err != nil {
			return errdefs.Wrap(err, errdefs.Exhausted, "image_not_stored", "bring %s to the disk", path)
		}
	}
	return nil
}

func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
