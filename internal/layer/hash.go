package layer

import (
	"context"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"os"

	"github.com/zeebo/blake3"
	"golang.org/x/sys/unix"
)

// Hash hashes everything in a layer: paths, types, modes, owners, link targets, devices and contents; times too, since a restored program
// depends on them. It returns the BLAKE3 sum in hexadecimal, and how many bytes of content there are. Nobody may write to dir meanwhile.
func Hash(ctx context.Context, dir string) (string, int64, error) {
	r, err := perform(ctx, job{Do: "hash", Dirs: []string{dir}, UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())})
	return r.Hash, r.Bytes, err
}

// hashTree is Hash. What root owns counts as owned by uid and gid where root of a user namespace hashes for a user.
func hashTree(ctx context.Context, dir string, uid, gid uint32) (string, int64, error) {
	h, buf := blake3.New(), make([]byte, 1<<20)
	var total int64
	err := walkBeneath(ctx, dir, func(path string, st *unix.Stat_t, _ *os.File) error {
		content, mtime, owner, group := "", st.Mtim.Nano(), st.Uid, st.Gid
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			sum, n, err := hashFile(ctx, dir, path, buf)
			if err != nil {
				return err
			}
			content, total = sum, total+n
		case unix.S_IFLNK:
			var err error
			if content, err = (Source{dir, path}).target(); err != nil {
				return err
			}
		case unix.S_IFDIR:
			mtime = 0
		}
		if owner == 0 {
			owner = uid
		}
		if group == 0 {
			group = gid
		}
		_, err := fmt.Fprintf(h, "%q %o %d %d %d %d %q\n", "/"+path, st.Mode, owner, group, st.Rdev, mtime, content)
		return err
	})
	return sumOf(h), total, err
}

func hashFile(ctx context.Context, dir, path string, buf []byte) (string, int64, error) {
	f, err := openBeneath(dir, path, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	h := blake3.New()
	var total int64
	for {
		if ctx.Err() != nil {
			return "", total, context.Cause(ctx)
		}
		n, err := f.Read(buf)
		h.Write(buf[:n])
		total += int64(n)
		if err == io.EOF {
			return sumOf(h), total, nil
		}
		if err != nil {
			return "", total, err
		}
	}
}

func sumOf(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }
