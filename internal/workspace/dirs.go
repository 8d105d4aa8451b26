package workspace

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/layer"
)

// Dirs is the layout of a data directory. All paths below it are private to root, or to the user who runs the daemon.
//
//	layers/LAYER/fs            immutable file layers, shared by checkpoints and forks
//	checkpoints/CKPT/          manifest.json, memory/, seal.json
//	oci/                       images of registries and archives, and their file layers (package image/oci)
//	images/, keys/             memory images as chunks, and the keys of their lineages (package snapshot)
//	sessions/SESS/workspace/   workspace.json, GEN/{upper,work,index}
//	sessions/SESS/spool/       output of commands
//	sessions/SESS/artifacts/   what was too long for the model
//	run/SBX/                   state of a running sandbox
//	trash/                     what is being deleted
//	reserve                    space for deleting on a full disk
//	marks                      how the layers are marked, see layer.Marks
type Dirs struct {
	Root string
	// Step, if set, is called at each named point between two changes that a crash may tear apart. Tests die there; production leaves it nil.
	Step func(point string)
}

// At says that the work has come to a named point.
func (d Dirs) At(point string) {
	if d.Step != nil {
		d.Step(point)
	}
}

// Make creates the directories that are always there.
func (d Dirs) Make() error {
	for _, name := range []string{"layers", "checkpoints", "sessions", "run", "trash", "oci", "oci/layers", "oci/tmp"} {
		dir := filepath.Join(d.Root, name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		spread(dir)
	}
	return d.checkMarks(layer.Marks())
}

// checkMarks refuses layers that are marked in another way than ours: they were made as root, and this process is a user, or the other
// way round. Error: layers_of_another.
func (d Dirs) checkMarks(ours string) error {
	name := filepath.Join(d.Root, "marks")
	b, err := os.ReadFile(name)
	theirs := strings.TrimSpace(string(b))
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case err == nil && theirs == ours:
		return nil
	case err == nil:
		entries, err := os.ReadDir(d.Layers())
		if err != nil {
			return err
		}
		ofImages, err := os.ReadDir(filepath.Join(d.Images(), "layers"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		entries = append(entries, ofImages...)
		if len(entries) > 0 {
			return errdefs.New(errdefs.Conflict, "layers_of_another", "the files in %s are marked with %s, those of this daemon with %s", d.Root, theirs, ours).
				WithHint("run the daemon as it was run before: as root, or as a user")
		}
	}
	return WriteFile(name, []byte(ours+"\n"))
}

// Layers is where the layers are.
func (d Dirs) Layers() string { return filepath.Join(d.Root, "layers") }

// Images is where images that workspaces start from are.
func (d Dirs) Images() string { return filepath.Join(d.Root, "oci") }

// Layer is a layer's own directory; its files are in LayerFS.
func (d Dirs) Layer(l id.Layer) string { return filepath.Join(d.Root, "layers", string(l)) }

// LayerFS is the directory that is mounted.
func (d Dirs) LayerFS(l id.Layer) string { return filepath.Join(d.Layer(l), "fs") }

// Checkpoint is a checkpoint's directory.
func (d Dirs) Checkpoint(c id.Checkpoint) string {
	return filepath.Join(d.Root, "checkpoints", string(c))
}

// Session is a session's directory.
func (d Dirs) Session(s id.Session) string { return filepath.Join(d.Root, "sessions", string(s)) }

// Spool is where a session's command output is kept.
func (d Dirs) Spool(s id.Session) string { return filepath.Join(d.Session(s), "spool") }

// Artifacts is where a session's artifacts are kept.
func (d Dirs) Artifacts(s id.Session) string { return filepath.Join(d.Session(s), "artifacts") }

// Sandbox is the state directory of a sandbox.
func (d Dirs) Sandbox(s id.Sandbox) string { return filepath.Join(d.Root, "run", string(s)) }

// Trash moves path out of the way, at once and atomically, and then deletes it. A crash in between leaves it to EmptyTrash.
func (d Dirs) Trash(path string) error {
	remove, err := d.Unlink(path)
	if err != nil {
		return err
	}
	return remove()
}

// Unlink is the first half of Trash: path is gone from its place. It returns what deletes it. Nothing there is no error.
func (d Dirs) Unlink(path string) (remove func() error, err error) {
	to := filepath.Join(d.Root, "trash", filepath.Base(path)+"."+string(id.NewEvent()))
	if err := os.Rename(path, to); err != nil {
		if os.IsNotExist(err) {
			return func() error { return nil }, nil
		}
		return nil, err
	}
	d.At("trash.moved")
	return func() error { return removeAll(to) }, nil
}

// EmptyTrash deletes what a crash left in the trash.
func (d Dirs) EmptyTrash() error { return removeAll(filepath.Join(d.Root, "trash"), keepTop) }

type removeMode int

const keepTop removeMode = 1

// removeAll deletes a tree, also one whose directories were made unreadable from inside.
func removeAll(path string, mode ...removeMode) error {
	if len(mode) > 0 {
		entries, err := os.ReadDir(path)
		for _, e := range entries {
			if rerr := removeAll(filepath.Join(path, e.Name())); err == nil {
				err = rerr
			}
		}
		return err
	}
	err := os.RemoveAll(path)
	if err == nil || !os.IsPermission(err) {
		return err
	}
	werr := filepath.WalkDir(path, func(p string, e os.DirEntry, err error) error {
		if e != nil && e.IsDir() {
			return unix.Chmod(p, 0o700)
		}
		return nil
	})
	if werr != nil {
		return werr
	}
	return os.RemoveAll(path)
}

// WriteJSON writes v to name so that a crash leaves the old content or the new, and that the new survives a host crash.
func WriteJSON(name string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return WriteFile(name, append(b, '\n'))
}

// WriteFile is WriteJSON for bytes.
func WriteFile(name string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if _, err = f.Write(data); err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err == nil {
		err = SyncDir(filepath.Dir(name))
	}
	return err
}

// SyncDir brings a directory's entries to stable storage.
func SyncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}
