package service

import (
	"context"
	"slices"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/checkpoint"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/layer"
	"perdure.dev/perdure/internal/session"
	"perdure.dev/perdure/internal/store"
)

// lineages are what is stored of sessions, by the first of each family.
type lineages struct {
	order []id.Session
	of    map[id.Session]*family
}

// family is a session and its forks, as far as they are looked at.
type family struct {
	names     []string
	manifests []checkpoint.Manifest // of the checkpoints that can be read
}

// storedOf reads which sessions there are, one if ref is not empty, and their manifests.
func (s *Service) storedOf(ctx context.Context, ref string) (rows []store.Session, out lineages, err error) {
	if ref != "" {
		row, err := s.cfg.Rows.Session(ctx, ref)
		if err != nil {
			return nil, out, err
		}
		rows = append(rows, row)
	} else if rows, err = s.allSessions(ctx); err != nil {
		return nil, out, err
	}
	out.of = map[id.Session]*family{}
	for _, row := range rows {
		list, err := s.cfg.Rows.Checkpoints(ctx, row.ID)
		if err != nil {
			return nil, out, err
		}
		for _, c := range list {
			if c.Deleted || c.State == session.CheckpointFailed {
				continue
			}
			m, err := s.checkpoints.Read(c.ID, c.ManifestHash)
			if err != nil {
				continue // verifying its session tells
			}
			f := out.of[m.FirstSession()]
			if f == nil {
				f = &family{}
				out.of[m.FirstSession()] = f
				out.order = append(out.order, m.FirstSession())
			}
			f.manifests = append(f.manifests, m)
			if !slices.Contains(f.names, row.Name) {
				f.names = append(f.names, row.Name)
			}
		}
	}
	return rows, out, nil
}

func (s *Service) allSessions(ctx context.Context) ([]store.Session, error) {
	var all []store.Session
	f := store.Filter{Limit: 500}
	for {
		list, more, err := s.cfg.Rows.Sessions(ctx, f)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
		if !more || len(list) == 0 {
			return all, nil
		}
		f.After = list[len(list)-1].ID
	}
}

// CheckStorage reads all that is stored of a session's checkpoints, or of all, and compares it with its hashes. With repair, each copy of a memory image heals
// the other before that.
func (s *Service) CheckStorage(ctx context.Context, req api.CheckStorage) (api.StorageReport, error) {
	out := api.StorageReport{Sessions: []api.VerifyReport{}, Damaged: []api.DamagedPack{}, Lost: []api.LostImage{}}
	rows, families, err := s.storedOf(ctx, req.Session)
	if err != nil {
		return out, err
	}
	for _, first := range families.order {
		if err := s.checkLineage(ctx, first, families.of[first], req.Repair, &out); err != nil {
			return out, err
		}
	}
	out.OK = len(out.Lost) == 0 && (req.Repair || len(out.Damaged) == 0)
	for _, row := range rows {
		r, err := s.VerifySession(ctx, string(row.ID))
		if isNotFound(err) {
			continue // deleted meanwhile
		}
		if err != nil {
			return out, err
		}
		out.OK = out.OK && r.OK
		out.Sessions = append(out.Sessions, r)
	}
	return out, nil
}

func (s *Service) checkLineage(ctx context.Context, first id.Session, f *family, repair bool, out *api.StorageReport) error {
	found, err := s.checkpoints.CheckImages(ctx, first)
	if err != nil {
		return err
	}
	for _, d := range found.Damaged {
		out.Damaged = append(out.Damaged, api.DamagedPack{Object: d.Object, Chunks: d.Chunks, Reason: d.Reason})
	}
	if repair {
		var sealed []checkpoint.Manifest
		for _, m := range f.manifests {
			if s.checkpoints.Sealed(m.ID) {
				sealed = append(sealed, m)
			}
		}
		s.sealing.Lock()
		_, healed, err := s.checkpoints.RepairImages(ctx, first, sealed)
		s.sealing.Unlock()
		if err != nil {
			return err
		}
		for _, h := range healed {
			out.Healed = append(out.Healed, api.HealedImage{CheckpointID: string(h.Checkpoint), Copy: h.Copy})
		}
		if found, err = s.checkpoints.CheckImages(ctx, first); err != nil {
			return err
		}
	}
	out.Packs += found.Packs
	out.Chunks += found.Chunks
	out.Bytes += found.Bytes
	for _, l := range found.Lost {
		out.Lost = append(out.Lost, api.LostImage{CheckpointID: l.Snapshot, File: l.Stream, Reason: l.Reason})
	}
	return nil
}

// StorageUsage says what checkpoints take: those of one session with its relatives, or of all.
func (s *Service) StorageUsage(ctx context.Context, ref string) (api.StorageUsage, error) {
	out := api.StorageUsage{Lineages: []api.LineageUsage{}}
	_, families, err := s.storedOf(ctx, "")
	if err != nil {
		return out, err
	}
	var only id.Session
	if ref != "" {
		if only, err = s.familyOf(ctx, ref); err != nil {
			return out, err
		}
	}
	for _, first := range families.order {
		if ref != "" && first != only {
			continue
		}
		f := families.of[first]
		u, err := s.checkpoints.ImageUsage(ctx, first)
		if err != nil {
			return out, err
		}
		one := api.LineageUsage{
			Lineage: string(first), Sessions: f.names, Checkpoints: len(f.manifests), Images: u.Snapshots, Content: u.Content, Stored: u.Stored, Encrypted: u.Secret,
		}
		for _, m := range f.manifests {
			one.Logical += m.MemoryBytes()
		}
		out.Lineages = append(out.Lineages, one)
	}
	if out.Cached, err = s.checkpoints.CachedBytes(ctx); err != nil {
		return out, err
	}
	u, err := layer.DiskUsage(ctx, s.cfg.Dirs.Layers())
	out.Layers = u.Bytes
	return out, err
}

// familyOf is the first session of the lineage that a session belongs to.
func (s *Service) familyOf(ctx context.Context, ref string) (id.Session, error) {
	row, err := s.cfg.Rows.Session(ctx, ref)
	if err != nil {
		return "", err
	}
	l, err := s.liveByID(ctx, row.ID)
	if err != nil {
		return "", err
	}
	return s.lineage(ctx, l.state())
}
