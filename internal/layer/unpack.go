package layer

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/internal/errdefs"
)

// UnpackLimits bound an archive, which is hostile. Zero values have defaults.
type UnpackLimits struct {
	Entries int   // default: 1,000,000
	Bytes   int64 // of the files' contents with their holes; default: 64 GiB
}

const (
	defaultEntries = 1_000_000
	defaultBytes   = 64 << 30
	longestPath    = 4096 - 1 // bytes, as the kernel takes it
)

// Unpacked says what an archive has become.
type Unpacked struct {
	Entries int   `json:"entries"`
	Bytes   int64 `json:"bytes"` // of contents
	// Skipped counts what a layer cannot have: devices, and attributes that only a privileged daemon may set.
	Skipped int `json:"skipped,omitempty"`
	// Implied are the directories that the archive has something in, but does not describe. They are made plain, and whoever stacks the
	// layer must give them what the layers below say of them.
	Implied []string `json:"implied,omitempty"`
}

// Unpack makes the empty directory dst a layer of a tar archive, as the OCI image specification describes it (layer.md, media type
// application/vnd.oci.image.layer.v1.tar): files named .wh.NAME delete NAME in the layers below, .wh..wh..opq all of a directory. Nothing is
// written outside of dst, whatever names and links say. Owners, and attributes of the name space security, are kept as far as this process
// may set them; attributes of overlayfs are never taken from an archive. What stands behind the archive's end is not read.
// Errors: image_invalid, image_too_large; those of the file system and of r are wrapped.
func Unpack(ctx context.Context, dst string, r io.Reader, limits UnpackLimits) (Unpacked, error) {
	if limits.Entries == 0 {
		limits.Entries = defaultEntries
	}
	if limits.Bytes == 0 {
		limits.Bytes = defaultBytes
	}
	top, err := unix.Open(dst, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return Unpacked{}, &os.PathError{Op: "open", Path: dst, Err: err}
	}
	u := &unpacker{top: top, limits: limits, dirs: map[string]finish{}, implied: map[string]bool{}, at: -1, buf: make([]byte, 256<<10)}
	defer u.close()
	if err := u.all(ctx, tar.NewReader(r)); err != nil {
		return u.out, err
	}
	return u.out, u.settle()
}

// finish is what a file gets last: its mode, and its time.
type finish struct {
	mode uint32
	time unix.Timespec
}

func finishOf(h *tar.Header) finish {
	when := h.ModTime
	if when.IsZero() {
		when = time.Unix(0, 0)
	}
	return finish{uint32(h.Mode) & 0o7777, unix.Timespec{Sec: when.Unix(), Nsec: int64(when.Nanosecond())}}
}

// unpacker writes an archive's entries. Everything is reached by descriptors of directories below top.
type unpacker struct {
	top     int
	limits  UnpackLimits
	out     Unpacked
	dirs    map[string]finish // of those described, at the end: until then files are made in them
	implied map[string]bool
	buf     []byte

	at     int    // the directory that the last entry was in; -1: none
	atPath string // its path
}

func (u *unpacker) close() {
	u.forget()
	unix.Close(u.top)
}

// forget drops the directory of the last entry, since its path may lead elsewhere now.
func (u *unpacker) forget() {
	if u.at >= 0 {
		unix.Close(u.at)
	}
	u.at, u.atPath = -1, ""
}

func invalid(format string, args ...any) *errdefs.Error {
	return errdefs.New(errdefs.Invalid, "image_invalid", format, args...)
}

func (u *unpacker) all(ctx context.Context, tr *tar.Reader) error {
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		h, err := tr.Next()
		switch {
		case err == io.EOF:
			return nil
		case errors.Is(err, tar.ErrHeader) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, tar.ErrFieldTooLong):
			return errdefs.Wrap(err, errdefs.Invalid, "image_invalid", "the layer is no whole tar archive")
		case err != nil:
			return err
		case h.Typeflag == tar.TypeXGlobalHeader:
			continue
		}
		if u.out.Entries++; u.out.Entries > u.limits.Entries {
			return errdefs.New(errdefs.Exhausted, "image_too_large", "a layer has more than %d files", u.limits.Entries)
		}
		if err := u.entry(ctx, h, tr); err != nil {
			return err
		}
	}
}

// inside returns a name of the archive as a path below the top, "." for the top itself.
func inside(name string) (string, error) {
	clean := path.Clean(strings.TrimLeft(name, "/"))
	switch {
	case strings.ContainsRune(name, 0):
		return "", invalid("the archive's name %q has a NUL in it", name)
	case clean == ".." || strings.HasPrefix(clean, "../"):
		return "", invalid("the archive's name %q leads out of it", name)
	case len(clean) > longestPath:
		return "", invalid("a name in the archive has %d bytes: %.60q…", len(clean), clean)
	}
	return clean, nil
}

const (
	whiteoutPrefix = ".wh."
	opaqueWhiteout = ".wh..wh..opq"
	reservedPrefix = ".wh..wh."
)

func (u *unpacker) entry(ctx context.Context, h *tar.Header, body io.Reader) error {
	name, err := inside(h.Name)
	if err != nil {
		return err
	}
	if name == "." {
		if h.Typeflag != tar.TypeDir {
			return nil
		}
		u.dirs["."] = finishOf(h)
		return wrapEntry(h.Name, u.own(u.top, ".", h))
	}
	dir, base := path.Split(name)
	dir = path.Clean(dir)
	if isDevice(h.Typeflag) || !known(h.Typeflag) {
		u.out.Skipped++
		return nil
	}
	if strings.HasPrefix(base, reservedPrefix) && base != opaqueWhiteout {
		return nil // of a file system that is gone
	}
	parent, err := u.directory(dir)
	if err != nil {
		return wrapEntry(h.Name, err)
	}
	switch hides, isWhiteout := strings.CutPrefix(base, whiteoutPrefix); {
	case base == opaqueWhiteout:
		return wrapEntry(h.Name, settleOpaque(at(parent, "."), true))
	case isWhiteout:
		return wrapEntry(h.Name, u.whiteout(parent, hides))
	}
	return wrapEntry(h.Name, u.make(ctx, parent, name, base, h, body))
}

// wrapEntry names the entry that an error is about, and gives those their code that are the archive's fault.
func wrapEntry(name string, err error) error {
	var typed *errdefs.Error
	switch {
	case err == nil, errors.As(err, &typed), errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, unix.ENAMETOOLONG), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP), errors.Is(err, unix.EMLINK),
		errors.Is(err, unix.ENOENT), errors.Is(err, unix.EXDEV), errors.Is(err, unix.EINVAL), errors.Is(err, unix.EISDIR), errors.Is(err, unix.EEXIST),
		errors.Is(err, io.ErrUnexpectedEOF):
		return errdefs.Wrap(err, errdefs.Invalid, "image_invalid", "the archive's entry %.200q cannot be made", name)
	}
	return fmt.Errorf("unpack %.200q: %w", name, err)
}

func isDevice(flag byte) bool { return flag == tar.TypeChar || flag == tar.TypeBlock }

func known(flag byte) bool {
	switch flag {
	case tar.TypeReg, tar.TypeLink, tar.TypeSymlink, tar.TypeDir, tar.TypeFifo, tar.TypeGNUSparse, '\x00', tar.TypeCont:
		return true
	}
	return false
}

// at is a path for calls that take no descriptor. The kernel follows the descriptor and nothing else.
func at(dir int, name string) string { return "/proc/self/fd/" + strconv.Itoa(dir) + "/" + name }

// directory opens the directory dir, which is made if it is not there. Links in it are followed as if the top were the root directory.
func (u *unpacker) directory(dir string) (int, error) {
	if u.at >= 0 && u.atPath == dir {
		return u.at, nil
	}
	fd, err := u.open(dir)
	if errors.Is(err, unix.ENOENT) && dir != "." {
		up, base := path.Split(dir)
		var parent int
		if parent, err = u.directory(path.Clean(up)); err != nil {
			return -1, err
		}
		hidden := isWhiteoutAt(parent, base)
		if hidden {
			err = unix.Unlinkat(parent, base, 0)
		}
		if err == nil || !hidden {
			err = unix.Mkdirat(parent, base, 0o700)
		}
		if err == nil && hidden {
			err = settleOpaque(at(parent, base), true)
		}
		if err != nil {
			return -1, err // also where a link leads nowhere: the archive cannot write through it
		}
		u.implied[dir] = true
		fd, err = u.open(dir)
	}
	if errors.Is(err, unix.ENOTDIR) { // perhaps a whiteout is in the way, which speaks of the layers below alone
		if up, base := path.Split(dir); dir != "." {
			if parent, perr := u.directory(path.Clean(up)); perr == nil && isWhiteoutAt(parent, base) {
				if err := unix.Unlinkat(parent, base, 0); err != nil {
					return -1, err
				}
				if err := unix.Mkdirat(parent, base, 0o700); err != nil {
					return -1, err
				}
				if err := settleOpaque(at(parent, base), true); err != nil {
					return -1, err
				}
				u.implied[dir] = true
				fd, err = u.open(dir)
			}
		}
	}
	if err != nil {
		return -1, err
	}
	u.forget()
	u.at, u.atPath = fd, dir
	return fd, nil
}

// open opens a directory below the top.
func (u *unpacker) open(dir string) (int, error) {
	const flags = unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC
	fd, err := unix.Openat2(u.top, dir, &unix.OpenHow{Flags: flags, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS})
	if errors.Is(err, unix.ENOSYS) { // before Linux 5.6: without links
		return openStepwise(u.top, dir, flags|unix.O_NOFOLLOW)
	}
	return fd, err
}

func statAt(dir int, name string) (st unix.Stat_t, there bool, err error) {
	err = unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return st, false, nil
	}
	return st, err == nil, err
}

func isWhiteout(st unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0 }

func isWhiteoutAt(dir int, name string) bool {
	st, there, err := statAt(dir, name)
	return err == nil && there && isWhiteout(st)
}

// whiteout hides what the layers below have at name. What this layer has there itself stays, before and after.
func (u *unpacker) whiteout(parent int, name string) error {
	if name == "" || name == "." || name == ".." {
		return invalid("the archive deletes %q", name)
	}
	st, there, err := statAt(parent, name)
	switch {
	case err != nil:
		return err
	case there && st.Mode&unix.S_IFMT == unix.S_IFDIR:
		return settleOpaque(at(parent, name), true)
	case there:
		return nil
	}
	return unix.Mknodat(parent, name, unix.S_IFCHR, 0)
}

// make makes an entry in the place of whatever is there.
func (u *unpacker) make(ctx context.Context, parent int, name, base string, h *tar.Header, body io.Reader) error {
	st, there, err := statAt(parent, base)
	if err != nil {
		return err
	}
	isDir := there && st.Mode&unix.S_IFMT == unix.S_IFDIR
	if h.Typeflag == tar.TypeDir && isDir {
		u.dirs[name] = finishOf(h)
		delete(u.implied, name)
		return u.own(parent, base, h)
	}
	if h.Typeflag == tar.TypeLink {
		target, err := inside(h.Linkname)
		if err != nil {
			return err
		}
		if target == name {
			return nil
		}
	}
	hidden := there && isWhiteout(st)
	if there {
		if err := u.remove(parent, name, base, isDir); err != nil {
			return err
		}
		if isDir {
			if parent, err = u.directory(path.Clean(path.Dir(name))); err != nil {
				return err
			}
		}
	}
	switch h.Typeflag {
	case tar.TypeDir:
		if err := unix.Mkdirat(parent, base, 0o700); err != nil {
			return err
		}
		u.dirs[name] = finishOf(h)
		if hidden {
			if err := settleOpaque(at(parent, base), true); err != nil {
				return err
			}
		}
		return u.own(parent, base, h)
	case tar.TypeLink:
		return u.link(parent, base, h)
	case tar.TypeSymlink:
		if strings.ContainsRune(h.Linkname, 0) || h.Linkname == "" {
			return invalid("the link %q has no target", h.Name)
		}
		if err := unix.Symlinkat(h.Linkname, parent, base); err != nil {
			return err
		}
	case tar.TypeFifo:
		if err := unix.Mknodat(parent, base, unix.S_IFIFO|0o600, 0); err != nil {
			return err
		}
	default:
		if err := u.file(ctx, parent, base, h, body); err != nil {
			return err
		}
	}
	if err := u.own(parent, base, h); err != nil {
		return err
	}
	return end(parent, base, finishOf(h), h.Typeflag != tar.TypeSymlink)
}

// remove deletes what an earlier entry made.
func (u *unpacker) remove(parent int, name, base string, isDir bool) error {
	if !isDir {
		if err := unix.Unlinkat(parent, base, 0); err != nil {
			return err
		}
		return nil
	}
	below := func(p string) bool { return p == name || strings.HasPrefix(p, name+"/") }
	for p := range u.dirs {
		if below(p) {
			delete(u.dirs, p)
		}
	}
	for p := range u.implied {
		if below(p) {
			delete(u.implied, p)
		}
	}
	err := os.RemoveAll(at(parent, base))
	u.forget()
	return err
}

// link makes a hard link to what the layer has already.
func (u *unpacker) link(parent int, base string, h *tar.Header) error {
	target, err := inside(h.Linkname)
	if err != nil {
		return err
	}
	dir, old := path.Split(target)
	from, err := u.open(path.Clean(dir))
	if err != nil {
		return fmt.Errorf("%q is a hard link to %q: %w", h.Name, h.Linkname, err)
	}
	defer unix.Close(from)
	st, there, err := statAt(from, old)
	switch {
	case err != nil:
		return err
	case !there || isWhiteout(st):
		return invalid("%q is a hard link to %q, which the layer does not have", h.Name, h.Linkname)
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		return invalid("%q is a hard link to the directory %q", h.Name, h.Linkname)
	}
	return unix.Linkat(from, old, parent, base, 0)
}

// file writes a regular file, with holes where whole blocks are zero.
func (u *unpacker) file(ctx context.Context, parent int, base string, h *tar.Header, body io.Reader) error {
	if h.Size < 0 || h.Size > u.limits.Bytes-u.out.Bytes {
		return errdefs.New(errdefs.Exhausted, "image_too_large", "a layer holds more than %d bytes", u.limits.Bytes)
	}
	u.out.Bytes += h.Size
	fd, err := unix.Openat(parent, base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), base)
	if err := u.contents(ctx, f, h.Size, body); err != nil {
		return errors.Join(err, f.Close())
	}
	return f.Close()
}

const holeBlock = 4096 // bytes

func (u *unpacker) contents(ctx context.Context, f *os.File, size int64, body io.Reader) error {
	var pos int64
	for pos < size {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		buf := u.buf[:min(int64(len(u.buf)), size-pos)]
		if _, err := io.ReadFull(body, buf); err != nil {
			return err
		}
		for start := 0; start < len(buf); {
			end := start
			for end < len(buf) && !zero(buf[end:min(end+holeBlock, len(buf))]) {
				end = min(end+holeBlock, len(buf))
			}
			if end > start {
				if _, err := f.WriteAt(buf[start:end], pos+int64(start)); err != nil {
					return err
				}
			}
			start = min(end+holeBlock, len(buf))
		}
		pos += int64(len(buf))
	}
	return f.Truncate(size)
}

var zeros [holeBlock]byte

func zero(b []byte) bool { return string(b) == string(zeros[:len(b)]) }

// own gives an entry its owner and attributes. That comes before the mode: a change of owner clears set-id bits, and a file that may not be
// written takes no attributes.
func (u *unpacker) own(parent int, base string, h *tar.Header) error {
	if err := unix.Fchownat(parent, base, h.Uid, h.Gid, unix.AT_SYMLINK_NOFOLLOW); err != nil && !mayNotChown(err) {
		return err
	}
	return u.attributes(at(parent, base), h)
}

// end gives an entry its time, and its mode if it has one.
func end(parent int, base string, f finish, hasMode bool) error {
	if err := unix.UtimesNanoAt(parent, base, []unix.Timespec{f.time, f.time}, unix.AT_SYMLINK_NOFOLLOW); err != nil || !hasMode {
		return err
	}
	return unix.Fchmodat(parent, base, f.mode, 0) // last: it may close the directory to its owner
}

const xattrRecord = "SCHILY.xattr."

// attributes sets what an archive may say: what users keep for themselves, and capabilities. Overlayfs's own would lead it to other files.
func (u *unpacker) attributes(name string, h *tar.Header) error {
	for key, value := range h.PAXRecords {
		attr, ok := strings.CutPrefix(key, xattrRecord)
		if !ok {
			continue
		}
		if attr != "security.capability" && !strings.HasPrefix(attr, "user.") || strings.HasPrefix(attr, "user.overlay.") {
			u.out.Skipped++
			continue
		}
		err := unix.Lsetxattr(name, attr, []byte(value), 0)
		switch {
		case errors.Is(err, unix.EPERM), errors.Is(err, unix.ENOTSUP), errors.Is(err, unix.EACCES):
			u.out.Skipped++ // of a link, without privileges, or on a file system that has none
		case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.E2BIG), errors.Is(err, unix.ERANGE):
			return invalid("the attribute %s of %.200q is too long", attr, h.Name)
		case err != nil:
			return fmt.Errorf("attribute %s: %w", attr, err)
		}
	}
	return nil
}

// settle ends the directories, what is in them first.
func (u *unpacker) settle() error {
	for dir := range u.implied {
		u.dirs[dir] = finish{mode: 0o755}
		u.out.Implied = append(u.out.Implied, dir)
	}
	slices.Sort(u.out.Implied)
	paths := make([]string, 0, len(u.dirs))
	for dir := range u.dirs {
		paths = append(paths, dir)
	}
	slices.SortFunc(paths, func(a, b string) int { return strings.Compare(b, a) })
	if n := len(paths); n > 0 && paths[n-1] != "." { // "." sorts before letters, but not before every name
		if i := slices.Index(paths, "."); i >= 0 {
			paths = append(slices.Delete(paths, i, i+1), ".")
		}
	}
	for _, dir := range paths {
		fd, err := u.open(dir)
		if gone(err) {
			continue // replaced by way of another name
		}
		if err == nil {
			err = end(fd, ".", u.dirs[dir], true)
			unix.Close(fd)
		}
		if err != nil {
			return wrapEntry(filepath.Join("/", dir), err)
		}
	}
	return nil
}
