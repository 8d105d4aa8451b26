package oci

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/sync/errgroup"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/image"
	"perdure.dev/perdure/internal/layer"
	"perdure.dev/perdure/internal/workspace"
)

// blob is a layer that can be had.
type blob struct {
	diffID string
	size   int64 // as it is transferred; 0: not known
	open   func(ctx context.Context) (io.ReadCloser, error)
}

// candidate is an image that can be had.
type candidate struct {
	record
	blobs []blob
}

// meter counts what a pull or an import has done.
type meter struct {
	reference        string
	layers, done     atomic.Int64
	bytes, bytesDone atomic.Int64
}

func (m *meter) progress() image.Progress {
	return image.Progress{
		Reference: m.reference, Layers: int(m.layers.Load()), LayersDone: int(m.done.Load()), Bytes: m.bytes.Load(), BytesDone: m.bytesDone.Load(),
	}
}

// atOnce is how many layers of an image are unpacked at the same time.
const atOnce = 3

// take brings an image into the store, under names if it has some.
func (s *Store) take(ctx context.Context, c candidate, names []string, m *meter) (image.Image, error) {
	if len(c.blobs) > maxLayers {
		return image.Image{}, invalid("the image has %d layers", len(c.blobs))
	}
	keys := make([]string, len(c.blobs))
	for i, b := range c.blobs {
		keys[i] = hexOf(b.diffID)
		m.bytes.Add(b.size)
	}
	m.layers.Store(int64(len(keys)))
	defer s.pin(keys...)()
	c.Layers = make([]layerRecord, len(c.blobs))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for i, b := range c.blobs {
		g.Go(func() error {
			var err error
			c.Layers[i], err = s.ensure(gctx, b, m)
			m.done.Add(1)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return image.Image{}, err
	}
	key, release, err := s.parents(ctx, c.record)
	if err != nil {
		return image.Image{}, err
	}
	defer release()
	c.Parents, c.StoredAt = key, s.opts.Clock.Now().UTC().Truncate(time.Second)
	return s.add(c.record, names)
}

// pin keeps layers from being swept until they are released.
func (s *Store) pin(keys ...string) (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range keys {
		s.pinned[k]++
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, k := range keys {
			if s.pinned[k]--; s.pinned[k] == 0 {
				delete(s.pinned, k)
			}
		}
	}
}

// lock waits until nobody else works on a layer.
func (s *Store) lock(ctx context.Context, key string) (unlock func(), err error) {
	for {
		s.mu.Lock()
		busy := s.work[key]
		if busy == nil {
			mine := make(chan struct{})
			s.work[key] = mine
			s.mu.Unlock()
			return func() {
				s.mu.Lock()
				delete(s.work, key)
				s.mu.Unlock()
				close(mine)
			}, nil
		}
		s.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// A transfer that breaks is begun again, so many times in all.
const attempts = 3

// ensure has a layer unpacked, unless it is there. The caller has pinned it.
func (s *Store) ensure(ctx context.Context, b blob, m *meter) (layerRecord, error) {
	key := hexOf(b.diffID)
	unlock, err := s.lock(ctx, key)
	if err != nil {
		return layerRecord{}, err
	}
	defer unlock()
	var have layerRecord
	if err := readJSON(s.path("layers", key, "layer.json"), &have); err == nil {
		m.bytesDone.Add(b.size)
		return have, nil
	}
	for attempt := 1; ; attempt++ {
		have, err = s.unpack(ctx, b, m)
		if err == nil || ctx.Err() != nil || attempt == attempts || errdefs.CodeOf(err) != codeUnreachable {
			return have, err
		}
		s.opts.Log.Warn("a layer's transfer broke and is begun again", "layer", b.diffID, "error", err)
		if s.opts.Clock.Sleep(ctx, time.Duration(attempt)*time.Second) != nil {
			return have, context.Cause(ctx)
		}
	}
}

// unpack makes a layer beside its place, verifies it, and moves it there.
func (s *Store) unpack(ctx context.Context, b blob, m *meter) (layerRecord, error) {
	raw, err := b.open(ctx)
	if err != nil {
		return layerRecord{}, err
	}
	defer raw.Close()
	src := &source{r: raw, meter: m}
	out := layerRecord{DiffID: b.diffID}
	err = s.place(hexOf(b.diffID), func(fs string) (layerRecord, error) {
		plain, closePlain, err := decompress(src)
		if err != nil {
			return out, err
		}
		defer closePlain()
		sum := sha256.New()
		limited := &bounded{r: plain, sum: sum, left: s.most()}
		out.Unpacked, err = layer.Unpack(ctx, fs, limited, s.opts.Limits)
		if err == nil {
			_, err = io.Copy(io.Discard, limited) // what is behind the archive's end counts for the sum
		}
		if err == nil {
			_, err = io.Copy(io.Discard, src) // and the transfer is verified at its own end
		}
		switch {
		case src.err != nil: // the cause, whatever it looked like further up
			return out, src.err
		case err != nil:
			return out, err
		}
		if got := "sha256:" + hex.EncodeToString(sum.Sum(nil)); got != b.diffID {
			return out, errdefs.New(errdefs.Corrupt, "image_corrupt", "a layer that should be %s is %s", b.diffID, got).
				WithHint("what was sent is not what the image says; get it again, or from somewhere else")
		}
		return out, nil
	})
	if err != nil {
		m.bytesDone.Add(-src.n)
	}
	return out, err
}

// most is how long a layer's archive may be, in bytes: its files, and what describes them.
func (s *Store) most() int64 {
	const described = 4 << 30
	if s.opts.Limits.Bytes > 0 {
		return s.opts.Limits.Bytes + described
	}
	return 64<<30 + described
}

// place makes a layer of what fill writes into a directory.
func (s *Store) place(key string, fill func(fs string) (layerRecord, error)) error {
	tmp, err := os.MkdirTemp(s.path("tmp"), "layer-")
	if err != nil {
		return diskError(err, "unpack a layer")
	}
	drop := func(err error) error { return errors.Join(err, s.opts.Dirs.Trash(tmp)) }
	fs := filepath.Join(tmp, "fs")
	if err := os.Mkdir(fs, 0o755); err != nil {
		return drop(diskError(err, "unpack a layer"))
	}
	if err := os.Chmod(fs, 0o755); err != nil { // Mkdir's mode is cut by the umask
		return drop(err)
	}
	rec, err := fill(fs)
	if err == nil {
		s.opts.Dirs.At("image.unpacked")
		err = workspace.WriteJSON(filepath.Join(tmp, "layer.json"), rec)
	}
	if err == nil {
		err = layer.Sync(tmp)
	}
	if err != nil {
		return drop(diskError(err, "unpack a layer"))
	}
	if err := os.Rename(tmp, s.path("layers", key)); err != nil {
		return drop(diskError(err, "put a layer in its place"))
	}
	s.opts.Dirs.At("image.layer")
	return workspace.SyncDir(s.path("layers"))
}

// source is what comes from a registry or an archive. It remembers why it ended early.
type source struct {
	r     io.Reader
	meter *meter
	n     int64
	err   error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	s.n += int64(n)
	s.meter.bytesDone.Add(int64(n))
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

// bounded reads an archive of at most left bytes, and sums it.
type bounded struct {
	r    io.Reader
	sum  hash.Hash
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, errdefs.New(errdefs.Exhausted, "image_too_large", "a layer is too long")
	}
	b.sum.Write(p[:n])
	return n, err
}

// maxWindow is how far back a compressed stream may refer, in bytes: so much memory its reader takes.
const maxWindow = 128 << 20

// decompress reads what is compressed with gzip or zstd, or not at all.
func decompress(r io.Reader) (plain io.Reader, end func(), err error) {
	in := bufio.NewReaderSize(r, 64<<10)
	magic, err := in.Peek(6)
	if err != nil && err != io.EOF {
		return nil, nil, err
	}
	broken := func(err error) error {
		return errdefs.Wrap(err, errdefs.Invalid, "image_invalid", "an archive cannot be decompressed")
	}
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, nil, broken(err)
		}
		return translated{z, broken}, func() { z.Close() }, nil
	case bytes.HasPrefix(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, nil, broken(err)
		}
		return translated{z, broken}, z.Close, nil
	case bytes.HasPrefix(magic, []byte("BZh")), bytes.HasPrefix(magic, []byte{0xfd, '7', 'z', 'X', 'Z', 0}):
		return nil, nil, invalid("the archive is compressed in a way that is not read here").WithHint("compress it with gzip or zstd, or not at all")
	}
	return in, func() {}, nil
}

// translated gives errors of decompression their code.
type translated struct {
	r io.Reader
	f func(error) error
}

func (t translated) Read(p []byte) (int, error) {
	n, err := t.r.Read(p)
	if err != nil && err != io.EOF {
		err = t.f(err)
	}
	return n, err
}
