package oci

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io/fs"
	"maps"
	"path"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/layer"
)

// Some builders describe in a layer only what they changed: it has /tmp/x, and says nothing of /tmp. Unpacked over the layers below it, /tmp
// stays what it was, open to all. But here each layer is unpacked for itself, since several images may have it over others, and an overlay
// shows a directory as its topmost layer has it. So where it matters an image gets one more layer on top, of such directories alone, as the
// layers below have them.

// mostImplied bounds the directories that are looked after. A layer that names so many files and no directories was made to be looked at.
const mostImplied = 50_000

// parents returns the key of an image's layer of directories, "" if it needs none. The layer stays until it is released.
func (s *Store) parents(ctx context.Context, r record) (key string, release func(), err error) {
	release = func() {}
	implied := map[string]bool{}
	for _, l := range r.Layers {
		for _, dir := range l.Implied {
			implied[dir] = true
		}
	}
	if len(implied) == 0 || len(r.Layers) == 1 {
		return "", release, nil
	}
	if len(implied) > mostImplied {
		return "", release, invalid("the image's layers leave %d directories undescribed", len(implied))
	}
	v := view{store: s, layers: r.Layers}
	found := map[string]layer.Stamp{}
	for dir := range implied {
		if ctx.Err() != nil {
			return "", release, context.Cause(ctx)
		}
		shown, below, err := v.look(dir)
		if err != nil {
			return "", release, err
		}
		if shown && below != nil {
			found[dir] = *below
		}
	}
	if len(found) == 0 {
		return "", release, nil
	}
	archive, err := v.archive(found)
	if err != nil {
		return "", release, err
	}
	key = "dirs-" + hexOf(digestOf(archive))
	release = s.pin(key)
	_, err = s.ensureDirs(ctx, key, archive)
	return key, release, err
}

func (s *Store) ensureDirs(ctx context.Context, key string, archive []byte) (layerRecord, error) {
	unlock, err := s.lock(ctx, key)
	if err != nil {
		return layerRecord{}, err
	}
	defer unlock()
	var rec layerRecord
	if err := readJSON(s.path("layers", key, "layer.json"), &rec); err == nil {
		return rec, nil
	}
	err = s.place(key, func(dir string) (layerRecord, error) {
		rec.Unpacked, err = layer.Unpack(ctx, dir, bytes.NewReader(archive), s.opts.Limits)
		return rec, err
	})
	return rec, err
}

// view is an image's layers put together.
type view struct {
	store  *Store
	layers []layerRecord // bottom first
}

// at returns what layer i has at dir. gone says that it has nothing there.
func (v view) at(i int, dir string) (st layer.Stamp, gone bool, err error) {
	st, err = layer.Look(v.store.path("layers", hexOf(v.layers[i].DiffID), "fs"), dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) || errors.Is(err, fs.ErrPermission) {
		return st, true, nil
	}
	return st, false, err
}

// look reports whether the image shows a directory at dir that its topmost layer with it does not describe, and how the one below has it
// that does; nil if none does.
func (v view) look(dir string) (shown bool, described *layer.Stamp, err error) {
	for i := len(v.layers) - 1; i >= 0; i-- {
		st, gone, err := v.at(i, dir)
		if err != nil {
			return false, nil, err
		}
		if !gone {
			if !st.IsDir() {
				return shown, nil, nil
			}
			if _, undescribed := slices.BinarySearch(v.layers[i].Implied, dir); !undescribed {
				return shown, &st, nil
			}
			shown = true
			if st.Opaque {
				return shown, nil, nil
			}
		}
		hides, err := v.hides(i, dir)
		if err != nil || hides {
			return shown, nil, err
		}
	}
	return shown, nil, nil
}

// hides reports whether layer i lets nothing below it show at dir.
func (v view) hides(i int, dir string) (bool, error) {
	for up := path.Dir(dir); up != "."; up = path.Dir(up) {
		st, gone, err := v.at(i, up)
		if err != nil {
			return false, err
		}
		if !gone && (st.Opaque || !st.IsDir()) {
			return true, nil
		}
	}
	return false, nil
}

// archive describes directories and those that they are in.
func (v view) archive(found map[string]layer.Stamp) ([]byte, error) {
	all := maps.Clone(found)
	all["."] = layer.Stamp{}
	for dir := range found {
		for up := path.Dir(dir); up != "."; up = path.Dir(up) {
			if _, have := all[up]; have {
				continue
			}
			st, err := v.shown(up)
			if err != nil {
				return nil, err
			}
			all[up] = st
		}
	}
	st, err := v.shown(".")
	if err != nil {
		return nil, err
	}
	all["."] = st
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, dir := range slices.Sorted(maps.Keys(all)) {
		st := all[dir]
		h := &tar.Header{
			Name: dir + "/", Typeflag: tar.TypeDir, Mode: int64(st.Mode & 0o7777), Uid: int(st.UID), Gid: int(st.GID), ModTime: time.Unix(0, st.Mtime), Format: tar.FormatPAX,
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, errdefs.Wrap(err, errdefs.Invalid, "image_invalid", "the directory %.200q of the image cannot be described", dir)
		}
	}
	err = w.Close()
	return buf.Bytes(), err
}

// shown returns a directory as the topmost layer has it.
func (v view) shown(dir string) (layer.Stamp, error) {
	for i := len(v.layers) - 1; i >= 0; i-- {
		st, gone, err := v.at(i, dir)
		if err != nil {
			return st, err
		}
		if !gone && st.IsDir() {
			return st, nil
		}
	}
	return layer.Stamp{Mode: unix.S_IFDIR | 0o755}, nil
}
