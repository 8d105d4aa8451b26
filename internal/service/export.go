package service

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/checkpoint"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/layer"
	"perdure.dev/perdure/internal/portable"
	"perdure.dev/perdure/internal/session"
	"perdure.dev/perdure/internal/store"
)

// staging makes a directory for what is on its way in or out. It is in the trash, so that a crash leaves it to the next start.
func (s *Service) staging(prefix string) (dir string, remove func(), err error) {
	dir, err = os.MkdirTemp(filepath.Join(s.cfg.Dirs.Root, "trash"), prefix+"-*")
	return dir, func() {
		if err := s.cfg.Dirs.Trash(dir); err != nil { // the next start does
			s.cfg.Logger.Warn("cannot remove what an archive has left", "directory", dir, "error", err)
		}
	}, err
}

// ExportSession writes a session as an archive, see package portable. It fails before the first byte, or leaves a stream without a trailer.
func (s *Service) ExportSession(ctx context.Context, ref string, req api.ExportSession, w io.Writer) error {
	l, err := s.live(ctx, ref)
	if err != nil {
		return err
	}
	row, err := l.exportable(ctx, req.Checkpoint)
	if err != nil {
		return err
	}
	defer s.use(row.ID)()
	dir, remove, err := s.staging("export")
	if err != nil {
		return diskError(err, "make a directory for the export")
	}
	defer remove()
	x := export{s: s, l: l, row: row, dir: dir, memory: row.Memory && !req.NoMemory}
	defer x.close()
	if err := x.collect(ctx); err != nil {
		return err
	}
	err = x.write(ctx, w)
	if err != nil && ctx.Err() == nil { // whoever reads sees only that it ends
		s.cfg.Logger.Error("an export ended in its middle", "session", l.id, "error", err)
	}
	return err
}

// exportable finds the checkpoint that an export is made of: the one that is named, the one that the session sleeps on, or one that is taken now.
func (l *live) exportable(ctx context.Context, ref string) (store.Checkpoint, error) {
	if ref != "" {
		row, err := l.svc.cfg.Rows.CheckpointByRef(ctx, l.id, ref)
		if err == nil && row.Deleted {
			err = errdefs.New(errdefs.NotFound, store.CodeCheckpointNotFound, "checkpoint %s has been deleted", row.ID)
		}
		if err == nil && row.SessionID != l.id {
			err = errdefs.New(errdefs.Invalid, "checkpoint_of_ancestor", "checkpoint %s is of session %s, of which this is a fork", row.ID, row.SessionID).
				WithHint("fork it and export the fork: perdure fork %s@%s", l.state().Name, row.ID)
		}
		return row, err
	}
	var c id.Checkpoint
	err := l.operate(ctx, func() error {
		st := l.state()
		if l.sleepsOn(st, st.Workspace.Base) {
			c = st.Workspace.Base
			return nil
		}
		if st.Workspace.State == session.WorkspaceNone {
			if err := l.wake(ctx); err != nil {
				return err
			}
		}
		created, err := l.take(ctx, cutting{kind: event.KindExport, message: "for an export"})
		c = created.CheckpointID
		return err
	})
	if err != nil {
		return store.Checkpoint{}, err
	}
	return l.svc.checkpoint(ctx, c)
}

// export is one on its way.
type export struct {
	s      *Service
	l      *live
	row    store.Checkpoint
	dir    string // for what is made first, since its size must be known
	memory bool

	opened    *checkpoint.Opened // nil without memory
	manifest  checkpoint.Manifest
	raw       []byte
	logs      []string // files
	spool     []string // paths below dir
	engine    map[string]string
	artifacts []string // files
	header    portable.Header
}

func (x *export) close() {
	if x.opened != nil {
		x.opened.Close()
	}
}

// collect checks all that will be written, and writes what is not in files yet.
func (x *export) collect(ctx context.Context) error {
	s, st := x.s, x.l.state()
	var err error
	if x.memory {
		if x.opened, err = s.checkpoints.Open(ctx, x.row.ID, x.row.ManifestHash); err == nil {
			x.manifest = x.opened.Manifest
		}
	} else {
		x.manifest, err = s.checkpoints.Read(x.row.ID, x.row.ManifestHash)
	}
	if err == nil {
		err = s.checkpoints.Verification().Files(ctx, x.row.ID, x.manifest.Layers) // damage does not travel
	}
	if err == nil {
		x.raw, err = x.manifest.Raw()
	}
	if err != nil {
		return err
	}
	m := x.manifest
	x.header = portable.Header{
		CreatedAt: s.cfg.Clock.Now(), Build: s.cfg.Build.Version,
		Session: portable.Session{ID: st.ID, Name: st.Name, Goal: st.Goal, Spec: st.Spec},
		Checkpoint: portable.Checkpoint{
			ID: m.ID, Message: m.Message, CutSeq: m.CutSeq, CreatedAt: m.CreatedAt, ManifestHash: x.row.ManifestHash, MemoryBytes: m.MemoryBytes(), Environment: m.Environment,
		},
		Layers: m.Layers, Memory: x.memory, Bytes: int64(len(x.raw)),
	}
	if x.memory {
		x.header.Bytes += m.MemoryBytes()
		if err := x.collectEngine(ctx); err != nil {
			return err
		}
	}
	if err := x.collectLogs(ctx); err != nil {
		return err
	}
	if err := x.collectFiles(ctx); err != nil {
		return err
	}
	for _, l := range m.Layers {
		_, n, err := layer.Hash(ctx, s.cfg.Dirs.LayerFS(l))
		if err != nil {
			return err
		}
		x.header.Bytes += n
	}
	return nil
}

// collectEngine finds the driver's own files that the memory needs.
func (x *export) collectEngine(ctx context.Context) error {
	drv, err := x.s.driver(x.manifest.Environment.Driver)
	if err != nil {
		return err
	}
	if x.engine, err = drv.Origin(ctx, x.opened.Image); err != nil {
		return err
	}
	for _, file := range x.engine {
		info, err := os.Stat(file)
		if err != nil {
			return err
		}
		x.header.Bytes += info.Size()
	}
	return nil
}

// collectLogs writes the session's log, and of its ancestors' what its timeline may go through.
func (x *export) collectLogs(ctx context.Context) error {
	head, err := x.s.cfg.Log.Head(ctx, x.l.id)
	if err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(x.dir, "logs"), 0o700); err != nil {
		return err
	}
	needed := map[id.Session]event.Seq{x.l.id: head.Seq}
	var logs []portable.Log
	for sid := x.l.id; sid != ""; {
		file := filepath.Join(x.dir, "logs", string(sid)+".jsonl")
		l, parent, err := x.writeLog(ctx, file, sid, needed)
		if err != nil {
			return err
		}
		logs, x.logs, sid = append(logs, l), append(x.logs, file), parent
	}
	slices.Reverse(logs)
	slices.Reverse(x.logs)
	x.header.Logs = logs
	for _, file := range x.logs {
		info, err := os.Stat(file)
		if err != nil {
			return err
		}
		x.header.Bytes += info.Size()
	}
	return nil
}

// writeLog writes a log up to where it is needed, and notes what it needs of its ancestors'.
func (x *export) writeLog(ctx context.Context, file string, sid id.Session, needed map[id.Session]event.Seq) (l portable.Log, parent id.Session, err error) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return l, "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	out := bufio.NewWriterSize(f, 1<<20)
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	l.SessionID = sid
	need := func(p session.Position) {
		if p.Session != sid {
			needed[p.Session] = max(needed[p.Session], p.Seq)
		}
	}
	for e, err := range readAll(ctx, x.s.cfg.Log, sid, 0) {
		if err != nil {
			return l, "", err
		}
		if e.Seq > needed[sid] {
			break
		}
		switch p, err := event.Decode(e); d := p.(type) {
		case *event.SessionCreatedData:
			if d.Fork != nil {
				parent = d.Fork.ParentID
				need(session.Position{Session: parent, Seq: d.Fork.CutSeq})
			}
		case *event.SessionRolledBackData:
			need(session.Position{Session: d.CutSession, Seq: d.CutSeq})
		default:
			if err != nil {
				return l, "", err
			}
		}
		if err := enc.Encode(e); err != nil {
			return l, "", diskError(err, "write the log for the export")
		}
		l.Events, l.HeadHash = l.Events+1, e.Hash
	}
	return l, parent, diskError(out.Flush(), "write the log for the export")
}

// collectFiles finds the output of what ran, and the artifacts.
func (x *export) collectFiles(ctx context.Context) error {
	dirs := x.s.cfg.Dirs
	if x.memory && len(x.manifest.OpenExecs) > 0 {
		spool := filepath.Join(x.dir, "spool")
		if err := os.Mkdir(spool, 0o700); err != nil {
			return err
		}
		if err := copySpool(dirs.Spool(x.l.id), spool, x.manifest.OpenExecs); err != nil {
			return err
		}
		err := filepath.WalkDir(spool, func(p string, e fs.DirEntry, err error) error {
			if err == nil && e.Type().IsRegular() {
				x.spool = append(x.spool, p)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	line, err := x.l.timeline(ctx)
	if err != nil {
		return err
	}
	places := []id.Session{x.l.id}
	for _, r := range line {
		if !slices.Contains(places, r.Session) {
			places = append(places, r.Session)
		}
	}
	for _, sid := range places {
		entries, err := os.ReadDir(dirs.Artifacts(sid))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, e := range entries {
			if id.Valid("art", e.Name()) {
				x.artifacts = append(x.artifacts, filepath.Join(dirs.Artifacts(sid), e.Name()))
			}
		}
	}
	for _, p := range slices.Concat(x.spool, x.artifacts) {
		info, err := os.Stat(p)
		if err != nil {
			return err
		}
		x.header.Bytes += info.Size()
	}
	return nil
}

// write writes the stream.
func (x *export) write(ctx context.Context, w io.Writer) error {
	out, err := portable.NewWriter(w, x.header)
	if err != nil {
		return err
	}
	if err := x.members(ctx, out); err != nil {
		out.Abort()
		return err
	}
	return out.Close()
}

func (x *export) members(ctx context.Context, out *portable.Writer) error {
	for _, file := range x.logs {
		if err := putFile(ctx, out, portable.LogsDir+filepath.Base(file), file); err != nil {
			return err
		}
	}
	if err := out.Bytes(portable.ManifestName, x.raw); err != nil {
		return err
	}
	for _, l := range x.manifest.Layers {
		prefix := portable.LayersDir + string(l) + "/"
		err := layer.Pack(ctx, x.s.cfg.Dirs.LayerFS(l), x.dir, func(e layer.Entry) error {
			body, err := out.Add(e.Header(prefix))
			if err != nil || e.Body == nil {
				return err
			}
			_, err = io.Copy(body, e.Body)
			return err
		})
		if err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(x.engine)) {
		if err := putFile(ctx, out, portable.EngineDir+name, x.engine[name]); err != nil {
			return err
		}
	}
	if x.opened != nil {
		for _, file := range x.opened.ImageFiles() {
			if err := putFile(ctx, out, portable.MemoryDir+filepath.Base(file), file); err != nil {
				return err
			}
		}
	}
	for _, file := range x.spool {
		rel, err := filepath.Rel(filepath.Join(x.dir, "spool"), file)
		if err == nil {
			err = putFile(ctx, out, portable.SpoolDir+filepath.ToSlash(rel), file)
		}
		if err != nil {
			return err
		}
	}
	for _, file := range x.artifacts {
		if err := putFile(ctx, out, portable.ArtifactsDir+filepath.Base(file), file); err != nil {
			return err
		}
	}
	return nil
}

func putFile(ctx context.Context, out *portable.Writer, name, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	w, err := out.File(name, info.Size(), info.ModTime())
	if err != nil {
		return err
	}
	buf := make([]byte, 1<<20)
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		n, err := f.Read(buf)
		if _, werr := w.Write(buf[:n]); werr != nil {
			return werr
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
