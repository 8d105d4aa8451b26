package checkpoint

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/zeebo/blake3"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

func hashBytes(b []byte) string {
	sum := blake3.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// hashFile reads a regular file through and returns its hash and size. It follows no final symbolic link.
func hashFile(ctx context.Context, name string) (string, int64, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	h := blake3.New()
	n, err := io.CopyBuffer(h, contextReader{ctx, f}, make([]byte, 1<<20))
	if err != nil {
		return "", n, fmt.Errorf("read %s: %w", name, err)
	}
	return hex.EncodeToString(h.Sum(nil)), n, nil
}

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

// ofDir returns the files of a flat directory, several at a time.
func (k *contents) ofDir(ctx context.Context, dir string) ([]File, int64, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, 0, err
	}
	files := make([]File, len(entries))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(2)
	for i, e := range entries {
		g.Go(func() error {
			hash, size, err := k.of(ctx, filepath.Join(dir, e.Name()))
			files[i] = File{Name: e.Name(), Size: size, Hash: hash}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, 0, err
	}
	slices.SortFunc(files, func(a, b File) int { return cmp.Compare(a.Name, b.Name) })
	var total int64
	for _, f := range files {
		total += f.Size
	}
	return files, total, nil
}
