package service

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/workspace"
)

// putArtifact stores an output under sessions/SESS/artifacts/ID, with a link from artifacts/ID at the top, by which it is found.
func (s *Service) putArtifact(ctx context.Context, sid id.Session, name string, r io.Reader) (id.Artifact, int64, error) {
	a := id.NewArtifact()
	dir := s.cfg.Dirs.Artifacts(sid)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", 0, err
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

// Artifact opens a stored artifact.
func (s *Service) Artifact(_ context.Context, a id.Artifact) (io.ReadSeekCloser, error) {
	if !id.Valid("art", string(a)) {
		return nil, errdefs.New(errdefs.Invalid, "invalid_artifact", "%q is no artifact id", a)
	}
	found, err := filepath.Glob(filepath.Join(s.cfg.Dirs.Root, "sessions", "*", "artifacts", string(a)))
	if err == nil && len(found) > 0 {
		f, err := os.Open(found[0])
		if !errors.Is(err, fs.ErrNotExist) {
			return f, err
		}
	}
	return nil, errdefs.New(errdefs.NotFound, "artifact_not_found", "there is no artifact %s", a).
		WithHint("artifacts are deleted with their session")
}
