package service

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/workspace"
)

// putArtifact stores an output as sessions/SESS/artifacts/ID.
func (s *Service) putArtifact(ctx context.Context, sid id.Session, name string, r io.Reader) (id.Artifact, int64, error) {
	a := id.NewArtifact()
	dir := s.cfg.Dirs.Artifacts(sid)
	if err := os.Mkdir(dir, 0o700); errors.Is(err, fs.ErrNotExist) {
		return "", 0, errGone
	} else if err != nil && !errors.Is(err, fs.ErrExist) {
		return "", 0, diskError(err, "store the output %q", name)
	}
	f, err := os.CreateTemp(dir, ".new-*")
	if err != nil {
		return "", 0, err
	}
	defer os.Remove(f.Name())
	n, err := io.Copy(f, r)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, string(a)))
	}
	if err == nil {
		err = workspace.SyncDir(dir)
	}
	if err != nil {
		return "", n, diskError(err, "store the output %q", name)
	}
	return a, n, nil
}

// Artifact opens an artifact of a session, or of an ancestor through whose log the session's timeline goes.
func (s *Service) Artifact(ctx context.Context, ref string, a id.Artifact) (io.ReadSeekCloser, error) {
	if !id.Valid("art", string(a)) {
		return nil, errdefs.New(errdefs.Invalid, "invalid_artifact", "%q is no artifact id", a)
	}
	l, err := s.live(ctx, ref)
	if err != nil {
		return nil, err
	}
	line, err := l.timeline(ctx)
	if err != nil {
		return nil, err
	}
	places := []id.Session{l.id} // also what a rollback has left is the session's
	for _, r := range line {
		if !slices.Contains(places, r.Session) {
			places = append(places, r.Session)
		}
	}
	for _, sid := range places {
		f, err := os.Open(filepath.Join(s.cfg.Dirs.Artifacts(sid), string(a)))
		if !errors.Is(err, fs.ErrNotExist) {
			return f, err
		}
	}
	return nil, errdefs.New(errdefs.NotFound, "artifact_not_found", "session %s has no artifact %s", ref, a).
		WithHint("artifacts are deleted with their session and its forks")
}
