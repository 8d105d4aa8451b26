package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/sandbox"
)

// Programs and libraries of the machine's /usr, or of a directory image, are not in a memory image: it refers to them. If one is another when
// the image is restored, as after an upgrade, its processes would go on in the middle of foreign code. So an image says which files its
// processes have mapped, and how they looked.

// hostFilesName is a file of an image.
const hostFilesName = "host-files.json"

// hostFile is how a file looked.
type hostFile struct {
	Size    int64
	ModTime int64 // nanoseconds
}

func lookAt(path string) (hostFile, error) {
	info, err := os.Stat(path)
	if err != nil {
		return hostFile{}, err
	}
	return hostFile{info.Size(), info.ModTime().UnixNano()}, nil
}

// onHost is where the host has what the sandbox shows at path, if it is not the workspace's own.
func (e *Engine) onHost(path string) (string, bool) {
	if dir, ok := strings.CutPrefix(e.cfg.Spec.Root.Image, "dir:"); ok {
		return filepath.Join(dir, path), true
	}
	stored := strings.HasPrefix(e.cfg.Spec.Root.Image, sandbox.StoredImage) // whose layers do not change
	return path, !stored && strings.HasPrefix(path, "/usr/")
}

// mappedFiles adds to hostFiles, by their paths inside, what of the host the processes of the paused sandbox have mapped and touched since
// they were saved or restored. The stub processes have it mapped from the very files. What had been found before stays: not all is touched
// again.
func (e *Engine) mappedFiles() error {
	const inGofer = "/root" // where the gofer, from which the files come, has the sandbox's root
	for _, pid := range descendants(e.container.Sandbox.Getpid()) {
		maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
		if errors.Is(err, fs.ErrNotExist) || len(maps) == 0 {
			continue // it has ended
		}
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(maps)) {
			_, path, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " "+inGofer+"/")
			if !ok {
				continue
			}
			path = "/" + path
			host, ok := e.onHost(path)
			if _, known := e.hostFiles[path]; known || !ok {
				continue
			}
			shown, err := lookAt(filepath.Join(e.root.path, path))
			if err != nil {
				continue // deleted meanwhile, or a mount of ours
			}
			if had, err := lookAt(host); err == nil && had == shown {
				e.hostFiles[path] = had
			}
		}
	}
	return nil
}

// descendants returns the children of a process, and theirs.
func descendants(pid int) []int {
	var all []int
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return nil // only for a malformed pattern
	}
	for _, task := range tasks {
		text, err := os.ReadFile(task)
		if err != nil {
			continue // the thread has ended
		}
		for _, field := range strings.Fields(string(text)) {
			var child int
			if _, err := fmt.Sscan(field, &child); err == nil {
				all = append(append(all, child), descendants(child)...)
			}
		}
	}
	return all
}

// writeHostFiles notes in an image what it refers to.
func (e *Engine) writeHostFiles(dir string) error {
	b, err := json.Marshal(e.hostFiles)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, hostFilesName), b, 0o600)
}

// checkHostFiles refuses an image whose files of the host are others now, and remembers them.
func (e *Engine) checkHostFiles() error {
	if e.cfg.Image == nil {
		return nil
	}
	b, err := os.ReadFile(filepath.Join(e.cfg.Image.Dir, hostFilesName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // older than this file
	}
	if err == nil {
		err = json.Unmarshal(b, &e.hostFiles)
	}
	if err != nil {
		return errdefs.Wrap(err, errdefs.Corrupt, "image_unreadable", "read the memory image")
	}
	for path, had := range e.hostFiles {
		host, _ := e.onHost(path)
		if has, err := lookAt(host); err != nil || has != had {
			return errdefs.New(errdefs.Conflict, sandbox.ImageRefused,
				"the memory image does not fit this machine any more: %s, which a process has in use, has been changed", host)
		}
	}
	return nil
}
