package gvisor

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/sandbox"
	"perdure.dev/perdure/internal/sandbox/shim"
)

// Origin implements sandbox.Driver: the guest binary, which each build has its own of. A base is not carried: it is made of the machine's own files.
func (d *Driver) Origin(_ context.Context, image sandbox.Image) (map[string]string, error) {
	origin, err := shim.ReadOrigin(image.Dir)
	if err != nil {
		return nil, err
	}
	guest, err := d.provided(origin.Guest)
	if err != nil {
		return nil, err
	}
	return map[string]string{filepath.Base(guest): guest}, nil
}

// originName is what the files are called that images refer to.
var originName = regexp.MustCompile(`^(guest|base|mounts)-[0-9a-f]{16}$`)

// provided returns where this machine has a file of an image's origin: in the driver's own cache, whatever directory the image says. An image may come from
// a stranger, and whatever is named here is shown inside.
func (d *Driver) provided(path string) (string, error) {
	name := filepath.Base(path)
	here := filepath.Join(d.opts.Cache, name)
	if originName.MatchString(name) {
		if _, err := os.Lstat(here); err == nil {
			return here, nil
		}
	}
	return "", errdefs.New(errdefs.Conflict, sandbox.ImageRefused,
		"the memory image does not fit this machine: it needs %.100q, which the driver %s does not have here", name, Name)
}

var guestName = regexp.MustCompile(`^guest-[0-9a-f]{16}$`)

// maxGuest bounds a guest that comes from elsewhere, in bytes.
const maxGuest = 256 << 20

// Provide implements sandbox.Driver. What is taken in runs in sandboxes whose memory came with it, and nowhere else.
func (d *Driver) Provide(_ context.Context, name string, modified time.Time, content io.Reader) (err error) {
	if !guestName.MatchString(name) {
		return errdefs.New(errdefs.Invalid, "origin_invalid", "%.100q is no file of the driver %s", name, Name)
	}
	path := filepath.Join(d.opts.Cache, name)
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	if err := os.MkdirAll(d.opts.Cache, 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(d.opts.Cache, name+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	n, err := io.Copy(f, io.LimitReader(content, maxGuest+1))
	if err == nil {
		err = f.Chmod(0o755)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	if sum, err := fileHash(f.Name()); err != nil {
		return err
	} else if n > maxGuest || name != "guest-"+sum {
		return errdefs.New(errdefs.Invalid, "origin_invalid", "%s does not hold what its name says", name)
	}
	if err := os.Chtimes(f.Name(), modified, modified); err != nil { // the image has it open, and looks at its time
		return err
	}
	return os.Rename(f.Name(), path)
}
