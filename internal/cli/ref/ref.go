// Package ref reads the references of the command line: S, S@CKPT and S:PATH.
package ref

import (
	"context"
	"strings"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/client"
	"perdure.dev/perdure/internal/cli/env"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/id"
)

// Point is a session, or one of its checkpoints.
type Point struct {
	Session    string // name or id
	Checkpoint string // id or message; empty: the present state
}

// ParsePoint reads S or S@CKPT. The session ends at the first @; a message may hold more of them.
func ParsePoint(s string) (Point, error) {
	session, checkpoint, at := strings.Cut(s, "@")
	if session == "" || strings.ContainsAny(session, "/: \t\n\x00") {
		return Point{}, errdefs.New(errdefs.Invalid, "bad_reference", "%q does not start with a session's name or id", s).
			WithHint("Write S, or S@CKPT where CKPT is a checkpoint's id or message.")
	}
	if at && checkpoint == "" {
		return Point{}, errdefs.New(errdefs.Invalid, "bad_reference", "%q names no checkpoint after the @", s).
			WithHint("List them with: perdure checkpoints %s", session)
	}
	return Point{Session: session, Checkpoint: checkpoint}, nil
}

// String is the form that ParsePoint reads.
func (p Point) String() string {
	if p.Checkpoint == "" {
		return p.Session
	}
	return p.Session + "@" + p.Checkpoint
}

// CheckpointID finds the id of a checkpoint that is named by id or by message. Of several with the same message, it is the latest.
func CheckpointID(ctx context.Context, c *client.Client, session, name string) (string, error) {
	if id.Valid("ckpt", name) {
		return name, nil
	}
	all, err := Checkpoints(ctx, c, session)
	if err != nil {
		return "", err
	}
	found := ""
	for _, k := range all.Data {
		if k.Message == name {
			found = k.ID
		}
	}
	if found == "" {
		return "", errdefs.New(errdefs.NotFound, "checkpoint_not_found", "%s has no checkpoint %q", session, name).
			WithHint("List them with: perdure checkpoints %s", session)
	}
	return found, nil
}

// Checkpoints are all of a session's.
func Checkpoints(ctx context.Context, c *client.Client, session string) (api.List[api.Checkpoint], error) {
	return env.All(func(k api.Checkpoint) string { return k.ID }, func(p api.Page) (api.List[api.Checkpoint], error) {
		return c.Checkpoints(ctx, session, p)
	})
}

// Location is a path on this machine, or in a session's workspace.
type Location struct {
	Session string // empty: this machine
	Path    string // "-" is the standard stream
}

// ParseLocation reads S:PATH or PATH. A local path that holds a colon is written with a slash before it, as in ./a:b.
func ParseLocation(s string) (Location, error) {
	if s == "" || strings.ContainsRune(s, 0) {
		return Location{}, errdefs.New(errdefs.Invalid, "bad_reference", "%q is neither PATH nor S:PATH", s)
	}
	session, path, ok := strings.Cut(s, ":")
	if !ok || session == "" || strings.Contains(session, "/") {
		return Location{Path: s}, nil
	}
	if strings.HasPrefix(session, ".") {
		return Location{Path: s}, nil
	}
	if path == "" {
		return Location{}, errdefs.New(errdefs.Invalid, "bad_reference", "%q names no path after the colon", s).WithHint("Write S:/PATH, or %s:. for the home directory.", session)
	}
	if !strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "~/") && path != "~" {
		path = Home + "/" + path
	}
	return Location{Session: session, Path: path}, nil
}

// Home is the home directory of a workspace, where relative paths start.
const Home = "~"

// String is the form that ParseLocation reads.
func (l Location) String() string {
	if l.Session == "" {
		return l.Path
	}
	return l.Session + ":" + l.Path
}
