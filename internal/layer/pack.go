package layer

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/internal/errdefs"
)

// Entry is one path of a layer outside of it, such as in an archive. It depends neither on who owns the layer here nor on how overlayfs marks it here.
type Entry struct {
	Path   string // relative to the layer, "." for itself
	Mode   uint32 // type and permission bits, as in stat(2)
	UID    uint32 // 0 is whoever owns layers, root or the daemon's user
	GID    uint32
	Size   int64             // of a regular file, in bytes
	Mtime  int64             // nanoseconds since 1970
	Target string            // of a symbolic link
	Link   string            // the path of an earlier regular file: this is another name of it
	Opaque bool              // a directory that hides what is below it
	Xattrs map[string]string // without overlayfs's own
	Body   io.Reader         // of a regular file that is no Link; valid until the next entry
}

// whiteoutMode is the mode of a whiteout, whose device is 0:0.
const whiteoutMode = unix.S_IFCHR

// Pack calls emit for each path of a layer, parents first. Nobody may write to it meanwhile. scratch is a directory for a temporary file, which is needed
// where modes keep the owner from his own files.
func Pack(ctx context.Context, dir, scratch string, emit func(Entry) error) error {
	if os.Geteuid() == 0 {
		return pack(ctx, dir, 0, 0, emit)
	}
	f, err := os.CreateTemp(scratch, "layer-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if _, err := perform(ctx, job{Do: "pack", Dirs: []string{dir}, To: []string{f.Name()}, UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}); err != nil {
		return err
	}
	tr := tar.NewReader(f)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		e, err := EntryOf(h, "")
		if err != nil {
			return err
		}
		e.Body = tr
		if err := emit(e); err != nil {
			return err
		}
	}
}

// packFile packs a layer into a file, anew.
func packFile(ctx context.Context, dir, name string, uid, gid uint32) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	tw := tar.NewWriter(f)
	err = pack(ctx, dir, uid, gid, func(e Entry) error {
		if err := tw.WriteHeader(e.Header("")); err != nil || e.Body == nil {
			return err
		}
		_, err := io.Copy(tw, e.Body)
		return err
	})
	return errors.Join(err, tw.Close())
}

func pack(ctx context.Context, dir string, uid, gid uint32, emit func(Entry) error) error {
	names := map[[2]uint64]string{} // of files that have several, by device and inode
	one := func(path string, st *unix.Stat_t) error {
		e := Entry{Path: path, Mode: st.Mode, UID: st.Uid, GID: st.Gid, Mtime: st.Mtim.Nano()}
		if e.UID == uid || e.UID == uint32(os.Geteuid()) {
			e.UID = 0
		}
		if e.GID == gid || e.GID == uint32(os.Getegid()) {
			e.GID = 0
		}
		full := filepath.Join(dir, path)
		var err error
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			if first, ok := names[[2]uint64{uint64(st.Dev), st.Ino}]; ok {
				e.Link = first
				return emit(e)
			}
			if st.Nlink > 1 {
				names[[2]uint64{uint64(st.Dev), st.Ino}] = path
			}
			return packRegular(ctx, dir, e, emit)
		case unix.S_IFDIR:
			e.Opaque = isOpaque(full)
		case unix.S_IFLNK:
			if e.Target, err = (Source{dir, path}).target(); err != nil {
				return err
			}
		case unix.S_IFCHR, unix.S_IFBLK:
			if st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != 0 {
				return errdefs.New(errdefs.Invalid, "device_in_layer", "%s is a device, which cannot go to another machine", path).
					WithHint("remove it, and take a checkpoint")
			}
			return emit(e)
		}
		e.Xattrs, err = xattrs(
			func(names []byte) (int, error) { return unix.Llistxattr(full, names) },
			func(name string, value []byte) (int, error) { return unix.Lgetxattr(full, name, value) },
		)
		if err != nil {
			return fmt.Errorf("attributes of %s: %w", path, err)
		}
		return emit(e)
	}
	var top unix.Stat_t
	if err := unix.Lstat(dir, &top); err != nil {
		return &os.PathError{Op: "lstat", Path: dir, Err: err}
	}
	if err := one(".", &top); err != nil {
		return err
	}
	return walkBeneath(ctx, dir, func(path string, st *unix.Stat_t, _ *os.File) error { return one(path, st) })
}

func packRegular(ctx context.Context, dir string, e Entry, emit func(Entry) error) error {
	f, err := openBeneath(dir, e.Path, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	e.Xattrs, err = xattrs(
		func(names []byte) (int, error) { return unix.Flistxattr(int(f.Fd()), names) },
		func(name string, value []byte) (int, error) { return unix.Fgetxattr(int(f.Fd()), name, value) },
	)
	if err != nil {
		return fmt.Errorf("attributes of %s: %w", e.Path, err)
	}
	e.Size = st.Size
	e.Body = io.LimitReader(contextReader{ctx, f}, st.Size)
	return emit(e)
}

// contextReader ends with its context.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.r.Read(p)
}

// xattrs returns extended attributes, without overlayfs's own.
func xattrs(list func([]byte) (int, error), get func(string, []byte) (int, error)) (map[string]string, error) {
	var out map[string]string
	err := copyXattrs(list, get, func(name string, value []byte) error {
		if name == opaqueName() {
			return nil
		}
		if out == nil {
			out = map[string]string{}
		}
		out[name] = string(value)
		return nil
	})
	return out, err
}

// The PAX records of an entry, beside those of extended attributes.
const (
	paxOpaque = "PERDURE.opaque"
	paxSocket = "PERDURE.socket"
)

// Header returns the entry as a tar archive has it, with prefix before its path: PAX with times in nanoseconds. Tar has no sockets; they are pipes with a
// mark there.
func (e Entry) Header(prefix string) *tar.Header {
	h := &tar.Header{
		Format: tar.FormatPAX, Name: prefix + e.Path, Mode: int64(e.Mode & 0o7777), Uid: int(e.UID), Gid: int(e.GID),
		ModTime: unixTime(e.Mtime), PAXRecords: map[string]string{},
	}
	for name, value := range e.Xattrs {
		h.PAXRecords[xattrRecord+name] = value
	}
	switch e.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
		if e.Opaque {
			h.PAXRecords[paxOpaque] = "1"
		}
	case unix.S_IFREG:
		h.Typeflag, h.Size = tar.TypeReg, e.Size
		if e.Link != "" {
			h.Typeflag, h.Size, h.Linkname = tar.TypeLink, 0, prefix+e.Link
		}
	case unix.S_IFLNK:
		h.Typeflag, h.Linkname = tar.TypeSymlink, e.Target
	case unix.S_IFCHR:
		h.Typeflag = tar.TypeChar
	case unix.S_IFIFO:
		h.Typeflag = tar.TypeFifo
	case unix.S_IFSOCK:
		h.Typeflag = tar.TypeFifo
		h.PAXRecords[paxSocket] = "1"
	}
	return h
}

// EntryOf undoes Header. It refuses what no layer has, with bad_archive. The caller sets Body.
func EntryOf(h *tar.Header, prefix string) (Entry, error) {
	bad := func(why string) (Entry, error) {
		return Entry{}, errdefs.New(errdefs.Invalid, "bad_archive", "%q %s", h.Name, why)
	}
	path, ok := strings.CutPrefix(h.Name, prefix)
	if !ok {
		return bad("is in the wrong place")
	}
	if h.Typeflag == tar.TypeDir {
		path = strings.TrimSuffix(path, "/")
	}
	if h.Uid < 0 || h.Gid < 0 || int64(h.Uid) > 1<<32-2 || int64(h.Gid) > 1<<32-2 {
		return bad("has an owner that cannot be")
	}
	e := Entry{Path: path, Mode: uint32(h.Mode & 0o7777), UID: uint32(h.Uid), GID: uint32(h.Gid), Mtime: h.ModTime.UnixNano()}
	for key, value := range h.PAXRecords {
		name, isXattr := strings.CutPrefix(key, xattrRecord)
		switch {
		case isXattr:
			if e.Xattrs == nil {
				e.Xattrs = map[string]string{}
			}
			e.Xattrs[name] = value
		case key == paxOpaque:
			e.Opaque = true
		}
	}
	switch h.Typeflag {
	case tar.TypeDir:
		e.Mode |= unix.S_IFDIR
	case tar.TypeReg:
		e.Mode |= unix.S_IFREG
		e.Size = h.Size
	case tar.TypeLink:
		e.Mode |= unix.S_IFREG
		if e.Link, ok = strings.CutPrefix(h.Linkname, prefix); !ok {
			return bad("is a link out of its layer")
		}
	case tar.TypeSymlink:
		e.Mode, e.Target = unix.S_IFLNK|0o777, h.Linkname
	case tar.TypeChar:
		if h.Devmajor != 0 || h.Devminor != 0 {
			return bad("is a device")
		}
		e.Mode |= whiteoutMode
	case tar.TypeFifo:
		e.Mode |= unix.S_IFIFO
		if h.PAXRecords[paxSocket] != "" {
			e.Mode = e.Mode&0o7777 | unix.S_IFSOCK
		}
	default:
		return bad("is of a kind that no layer has")
	}
	if e.Opaque && e.Mode&unix.S_IFMT != unix.S_IFDIR {
		return bad("is marked as a directory and is none")
	}
	return e, nil
}
