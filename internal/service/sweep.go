package service

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/workspace"
)

// sweepLater removes what nothing refers to any more, in the background.
func (s *Service) sweepLater() {
	s.goroutine(func(ctx context.Context) {
		if err := s.sweep(ctx); err != nil && ctx.Err() == nil {
			s.cfg.Logger.Warn("cannot sweep the data directory", "error", err)
		}
	})
}

// sweep deletes file layers that no checkpoint and no workspace refers to, and what only deleted memory images needed. It waits until nobody has layers that are not referred to yet.
func (s *Service) sweep(ctx context.Context) error {
	removed, err := s.unlinkLayers(ctx)
	for _, remove := range removed { // without the lock: this may take long
		err = errors.Join(err, remove())
	}
	return errors.Join(err, s.checkpoints.Collect(ctx), s.sweepImages(ctx), s.cfg.Dirs.KeepReserve())
}

// unlinkLayers takes away the names of layers that nothing refers to, and returns what deletes them.
func (s *Service) unlinkLayers(ctx context.Context) (removed []func() error, err error) {
	s.gc.Lock()
	defer s.gc.Unlock()
	used, err := s.layersInUse(ctx)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(s.cfg.Dirs.Layers())
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if l := id.Layer(e.Name()); !used[l] {
			remove, err := s.cfg.Dirs.Unlink(s.cfg.Dirs.Layer(l))
			if err != nil {
				return removed, err
			}
			removed = append(removed, remove)
		}
	}
	return removed, nil
}

// layersInUse reads what is on disk, not the rows: it must err on the side of keeping.
func (s *Service) layersInUse(ctx context.Context) (map[id.Layer]bool, error) {
	used := map[id.Layer]bool{}
	complete, _, err := s.checkpoints.List()
	if err != nil {
		return nil, err
	}
	for _, c := range complete {
		m, err := s.checkpoints.Read(c, "")
		if err != nil { // a damaged manifest must not keep all others' layers for ever
			row, rerr := s.cfg.Rows.Checkpoint(ctx, c)
			if rerr != nil && !isNotFound(rerr) {
				return nil, errors.Join(err, rerr)
			}
			m.Layers = row.Layers
		}
		for _, l := range m.Layers {
			used[l] = true
		}
	}
	sessions, err := os.ReadDir(filepath.Join(s.cfg.Dirs.Root, "sessions"))
	if err != nil {
		return nil, err
	}
	for _, e := range sessions {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		g, ok, err := workspace.Live(s.cfg.Dirs, id.Session(e.Name()))
		if err != nil {
			return nil, err
		}
		if ok {
			for _, l := range g.Chain() {
				used[l] = true
			}
		}
		if j, err := (&live{svc: s, id: id.Session(e.Name())}).readJournal(); err != nil {
			return nil, err
		} else if j != nil {
			used[j.Layer] = true
			for _, l := range append(j.Generation.Chain(), j.NewGeneration.Chain()...) {
				used[l] = true
			}
		}
	}
	return used, nil
}
