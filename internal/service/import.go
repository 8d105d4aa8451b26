package service

import (
	"context"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/checkpoint"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/guest/spool"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/image"
	"perdure.dev/perdure/internal/layer"
	"perdure.dev/perdure/internal/portable"
	"perdure.dev/perdure/internal/session"
	"perdure.dev/perdure/internal/workspace"
)

// An import is all or nothing. Everything is unpacked into a directory in the trash, and verified to the trailer, before anything is put in its place. Then
// layers, checkpoint and the session's directory go where they belong, where they belong to nobody, and a start would remove them; the transaction that takes
// in the log makes them the session's. The session sleeps then. Layers, checkpoint and the key of its lineage are new; the ids of session and events are kept
// unless they are here already.

// ImportSession makes a session of an archive.
func (s *Service) ImportSession(ctx context.Context, req api.ImportSession, r io.Reader) (api.Session, error) {
	if req.Name != "" {
		if err := checkName(req.Name); err != nil {
			return api.Session{}, err
		}
	}
	dir, remove, err := s.staging("import")
	if err != nil {
		return api.Session{}, diskError(err, "make a directory for the import")
	}
	defer remove()
	in, err := portable.NewReader(r)
	if err != nil {
		return api.Session{}, err
	}
	defer in.Close()
	m := &imported{s: s, dir: dir, header: in.Header, memory: in.Header.Memory && !req.NoMemory, name: req.Name, layers: map[id.Layer]id.Layer{}}
	if err := m.admissible(ctx); err != nil {
		return api.Session{}, err
	}
	if err := m.unpack(ctx, in); err != nil {
		return api.Session{}, err
	}
	s.at("import.unpacked")
	if err := m.settle(ctx); err != nil {
		return api.Session{}, err
	}
	l, err := s.liveByID(ctx, m.own().session)
	if err != nil {
		return api.Session{}, err
	}
	out, err := s.GetSession(ctx, string(l.id))
	out.Imported = &api.Imported{
		SessionID: string(m.header.Session.ID), HeadSeq: uint64(m.original.Seq), HeadHash: m.original.Hash, Memory: m.memory, ExportedAt: m.header.CreatedAt,
	}
	return out, err
}

// imported is a session on its way in.
type imported struct {
	s      *Service
	dir    string
	header portable.Header
	memory bool   // it will have its memory
	name   string // that was asked for

	logs     stagedLogs
	here     int        // how many of the logs, all ancestors', are here already
	original event.Head // of the session's log in the archive
	state    session.State
	manifest checkpoint.Manifest // of the archive; then as it will be
	layers   map[id.Layer]id.Layer

	// What unpack has come to.
	building *layer.Builder
	part     string
	files    []string // of the memory
	engine   []engineFile
}

// engineFile is one of the driver's own files that the memory needs.
type engineFile struct {
	name     string
	modified time.Time
}

func (m *imported) own() *stagedLog { return m.logs[len(m.logs)-1] }

func (m *imported) path(elem ...string) string {
	return filepath.Join(append([]string{m.dir}, elem...)...)
}

// admissible refuses what cannot be taken in here, before the bulk of it has been read.
func (m *imported) admissible(ctx context.Context) error {
	drv, err := m.s.driver(m.header.Session.Spec.Driver)
	if err != nil {
		return err
	}
	if err := m.s.hasImage(ctx, m.header.Session.Spec.Image); err != nil {
		return err
	}
	if !m.memory {
		return nil
	}
	caps := drv.Capabilities(ctx)
	if !caps.Memory {
		return nil // then there is none to be used, and the manifest says so
	}
	if code, reason := misfit(m.header.Checkpoint.Environment, drv.Name(), caps); code != "" {
		return errdefs.New(errdefs.Conflict, "memory_unusable", "the archive's memory cannot be used on this machine: %s (%s)", reason, code).
			WithHint("take in its files and transcript alone: perdure import FILE --no-memory")
	}
	return nil
}

// hasImage fails if what a session stands on is not on this machine.
func (s *Service) hasImage(ctx context.Context, ref string) error {
	if image.Digest(ref) == "" {
		return checkImage(ref)
	}
	_, err := s.cfg.ImageStore.Find(ctx, ref)
	return err
}

// unpack reads the whole stream into the staging directory. It returns nil only when its trailer has been verified.
func (m *imported) unpack(ctx context.Context, in *portable.Reader) error {
	for _, name := range []string{"logs", "layers", "engine", "memory", "home", "home/spool", "home/artifacts"} {
		if err := os.Mkdir(m.path(name), 0o700); err != nil {
			return diskError(err, "make a directory for the import")
		}
	}
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		e, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = m.member(ctx, e)
		}
		if err != nil {
			return diskFull(err)
		}
	}
	if err := m.endLayer(); err != nil {
		return err
	}
	switch {
	case len(m.logs) != len(m.header.Logs), m.manifest.ID == "", len(m.layers) != len(m.header.Layers):
		return bad("the archive does not have all that its header names")
	case m.memory && len(m.files) != len(m.manifest.Memory.Files):
		return bad("the archive does not have the whole memory")
	}
	return nil
}

// diskFull names that cause, whoever met it.
func diskFull(err error) error {
	var typed *errdefs.Error
	if errors.As(err, &typed) {
		return err
	}
	return diskError(err, "unpack the archive")
}

func bad(format string, args ...any) error {
	return errdefs.New(errdefs.Invalid, "bad_archive", format, args...)
}

func (m *imported) member(ctx context.Context, e *portable.Member) error {
	switch {
	case strings.HasPrefix(e.Name, portable.LogsDir):
		return m.log(ctx, e)
	case e.Name == portable.ManifestName:
		return m.readManifest(ctx, e)
	case strings.HasPrefix(e.Name, portable.LayersDir):
		return m.layer(e)
	}
	if err := m.endLayer(); err != nil {
		return err
	}
	dir, name := path.Split(e.Name)
	switch {
	case dir == portable.EngineDir:
		if !m.memory {
			return nil
		}
		if !id.ValidExternal(name) || len(m.engine) >= maxEngineFiles {
			return bad("the archive has a member %.100q", e.Name)
		}
		m.engine = append(m.engine, engineFile{name, e.Tar.ModTime})
		return m.file(m.path("engine", name), e)
	case dir == portable.MemoryDir:
		if !m.memory {
			return nil
		}
		i := len(m.files)
		if m.manifest.Memory == nil || i >= len(m.manifest.Memory.Files) || m.manifest.Memory.Files[i].Name != name || m.manifest.Memory.Files[i].Size != e.Tar.Size {
			return bad("%.100q is not the next file of the memory", e.Name)
		}
		m.files = append(m.files, name)
		return m.file(m.path("memory", name), e)
	case strings.HasPrefix(dir, portable.SpoolDir):
		rest := strings.Split(strings.TrimPrefix(e.Name, portable.SpoolDir), "/")
		if len(rest) != 2 || !m.ranAtTheCut(id.Exec(rest[0])) || !id.ValidExternal(rest[1]) {
			return bad("%.100q is no output of a command", e.Name)
		}
		if !m.memory {
			return nil
		}
		if err := os.MkdirAll(m.path("home", "spool", rest[0]), 0o700); err != nil {
			return err
		}
		return m.file(m.path("home", "spool", rest[0], rest[1]), e)
	case dir == portable.ArtifactsDir && id.Valid("art", name):
		return m.file(m.path("home", "artifacts", name), e)
	}
	return bad("the archive has a member %.100q", e.Name)
}

func (m *imported) ranAtTheCut(x id.Exec) bool {
	return id.ValidExternal(string(x)) && slices.ContainsFunc(m.manifest.OpenExecs, func(o checkpoint.OpenExec) bool { return spool.CutExec(o).Status.ID == x })
}

// file writes a member that must be a plain file.
func (m *imported) file(name string, e *portable.Member) (err error) {
	if e.Tar.Typeflag != '0' {
		return bad("%.100q is no file", e.Name)
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, os.ErrExist) {
		return bad("%.100q comes twice", e.Name)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = layer.WriteSparse(f, e.Body, make([]byte, 1<<20))
	return err
}

func (m *imported) log(ctx context.Context, e *portable.Member) error {
	if len(m.logs) >= len(m.header.Logs) {
		return bad("the archive has more logs than its header names")
	}
	want := m.header.Logs[len(m.logs)]
	if e.Name != portable.LogsDir+string(want.SessionID)+".jsonl" || e.Tar.Typeflag != '0' {
		return bad("%.100q is not the next log", e.Name)
	}
	l, err := stageLog(ctx, m.path("logs", string(want.SessionID)+".jsonl"), want, e.Body)
	if err != nil {
		return err
	}
	m.logs = append(m.logs, l)
	return nil
}

// readManifest folds the session from its logs, and holds the manifest against them: its hash is in the log, whose chain has been verified.
func (m *imported) readManifest(ctx context.Context, e *portable.Member) error {
	if len(m.logs) != len(m.header.Logs) || m.manifest.ID != "" {
		return bad("%s is in the wrong place", e.Name)
	}
	t, err := session.Load(ctx, m.logs, m.own().session)
	if err != nil {
		return bad("the archive's logs do not make a session: %v", err)
	}
	m.state, m.original = t.State(), m.own().head
	if m.state.Spec.Driver != m.header.Session.Spec.Driver || m.state.Spec.Image != m.header.Session.Spec.Image {
		return bad("the archive's header and log name different drivers or images")
	}
	if e.Tar.Size > maxManifest {
		return bad("%s has %d bytes", e.Name, e.Tar.Size)
	}
	b, err := io.ReadAll(e.Body)
	if err != nil {
		return err
	}
	want := m.header.Checkpoint
	hash := ""
	for ev, err := range m.own().events(0) {
		if err != nil {
			return err
		}
		if ev.Type != event.CheckpointCreated {
			continue
		}
		if d, err := event.DecodeData[event.CheckpointCreatedData](ev); err == nil && d.CheckpointID == want.ID {
			hash = d.ManifestHash
		}
	}
	if hash == "" || hash != want.ManifestHash {
		return bad("the session's log does not know checkpoint %s as the archive has it", want.ID)
	}
	if m.manifest, err = checkpoint.Decode(want.ID, b, hash); err != nil {
		return bad("the archive's checkpoint: %v", err)
	}
	switch c := m.manifest; {
	case c.SessionID != m.own().session, !slices.Equal(c.Layers, m.header.Layers), c.CutSeq != want.CutSeq:
		return bad("the archive's checkpoint is not the one that its header names")
	case m.memory && c.Memory == nil:
		return bad("the archive's header speaks of a memory that the checkpoint does not have")
	case c.Memory != nil && slices.ContainsFunc(c.Memory.Files, func(f checkpoint.File) bool { return !id.ValidExternal(f.Name) || f.Size < 0 }):
		return bad("the archive's memory has a file with a name that cannot be")
	}
	if m.memory { // the header's word was not enough
		m.header.Checkpoint.Environment = m.manifest.Environment
		return m.admissible(ctx)
	}
	return nil
}

const (
	maxManifest    = 64 << 20 // bytes
	maxEngineFiles = 16
)

// provide gives the driver the files of its own that the memory needs. They are named by their content, and the driver holds them to that.
func (m *imported) provide(ctx context.Context) error {
	drv, err := m.s.driver(m.manifest.Environment.Driver)
	if err != nil {
		return err
	}
	for _, e := range m.engine {
		f, err := os.Open(m.path("engine", e.name))
		if err != nil {
			return err
		}
		err = drv.Provide(ctx, e.name, e.modified, f)
		f.Close()
		if err != nil {
			return diskFull(err)
		}
	}
	return nil
}

// layer takes a path of a layer.
func (m *imported) layer(e *portable.Member) error {
	name, _, _ := strings.Cut(strings.TrimPrefix(e.Name, portable.LayersDir), "/")
	if name != m.part || m.building == nil {
		if err := m.endLayer(); err != nil {
			return err
		}
		if m.manifest.ID == "" || len(m.layers) >= len(m.header.Layers) || name != string(m.header.Layers[len(m.layers)]) {
			return bad("%.100q is not of the next layer", e.Name)
		}
		fresh := id.NewLayer()
		if err := os.MkdirAll(m.path("layers", string(fresh), "fs"), 0o700); err != nil {
			return err
		}
		m.part, m.layers[id.Layer(name)] = name, fresh
		m.building = layer.NewBuilder(m.path("layers", string(fresh), "fs"))
	}
	entry, err := layer.EntryOf(e.Tar, portable.LayersDir+name+"/")
	if err != nil {
		return err
	}
	entry.Body = e.Body
	return m.building.Add(entry)
}

func (m *imported) endLayer() error {
	if m.building == nil {
		return nil
	}
	b := m.building
	m.building = nil
	return b.Close()
}

// settle puts everything in its place, and ends with the transaction that makes it a session.
func (m *imported) settle(ctx context.Context) (err error) {
	s := m.s
	if m.name == "" {
		m.name = m.state.Name
	}
	if err := checkName(m.name); err != nil {
		return err
	}
	if _, err := s.cfg.Rows.Session(ctx, m.name); err == nil {
		return errdefs.New(errdefs.Conflict, event.CodeNameTaken, "a session is named %q already", m.name).
			WithHint("give it another one: perdure import FILE --name N")
	} else if !isNotFound(err) {
		return err
	}
	if err := m.choose(ctx); err != nil {
		return err
	}
	if err := m.provide(ctx); err != nil {
		return err
	}
	cutHash, err := m.own().hashAt(m.manifest.CutSeq)
	if err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx) // from here on it goes to its end
	s.images.RLock()
	defer s.images.RUnlock()
	if err := s.hasImage(ctx, m.state.Spec.Image); err != nil { // it was, when the upload began
		return err
	}
	s.gc.RLock()
	defer s.gc.RUnlock()
	next := m.manifest
	next.ID, next.SessionID, next.CutHash, next.ParentID, next.Keep = id.NewCheckpoint(), m.own().session, cutHash, m.manifest.ID, false
	next.Kind, next.Lineage, next.Environment.Layers = event.KindSuspend, m.logs[0].session, layer.Marks()
	next.Layers = nil
	memory := ""
	if m.memory {
		memory = m.path("memory")
		image := *m.manifest.Memory
		image.Of = ""
		next.Memory = &image
	} else {
		next.Kind, next.Memory = event.KindStop, nil
	}
	var undo []func() error
	defer func() {
		if err == nil {
			return
		}
		for _, f := range slices.Backward(undo) {
			if uerr := f(); uerr != nil {
				s.cfg.Logger.Warn("cannot remove what is left of a failed import", "error", uerr) // the next start does
			}
		}
	}()
	for _, l := range m.manifest.Layers {
		fresh := m.layers[l]
		next.Layers = append(next.Layers, fresh)
		if err := os.Rename(m.path("layers", string(fresh)), s.cfg.Dirs.Layer(fresh)); err != nil {
			return err
		}
		undo = append(undo, func() error { return s.cfg.Dirs.Trash(s.cfg.Dirs.Layer(fresh)) })
	}
	s.at("import.layers")
	undo = append(undo, func() error {
		err := s.checkpoints.Delete(ctx, next.ID)
		if there, xerr := s.exists(ctx)(next.Lineage); xerr == nil && !there {
			err = errors.Join(err, s.checkpoints.DestroyLineage(ctx, next.Lineage))
		}
		return err
	})
	next, hash, err := s.checkpoints.Admit(ctx, next, memory)
	if err != nil {
		return diskFull(err)
	}
	s.at("import.checkpoint")
	home := s.cfg.Dirs.Session(next.SessionID)
	if err := os.Rename(m.path("home"), home); err != nil {
		return err
	}
	undo = append(undo, func() error { return s.cfg.Dirs.Trash(home) })
	if err := errors.Join(workspace.SyncDir(filepath.Dir(home)), workspace.SyncDir(s.cfg.Dirs.Layers())); err != nil {
		return err
	}
	s.at("import.home")
	_, err = s.cfg.Rows.Import(ctx, m.logs.rows(m.here), signed(ctx, m.drafts(next, hash)))
	if errdefs.CodeOf(err) == event.CodeNameTaken {
		err = errdefs.New(errdefs.Conflict, event.CodeNameTaken, "a session is named %q already", m.name).
			WithHint("give it another one: perdure import FILE --name N")
	}
	if err == nil {
		s.at("import.done")
	}
	return err
}

// choose decides whether the logs keep their ids. They do if none of the session is here, and of its ancestors nothing else than is in the archive.
func (m *imported) choose(ctx context.Context) error {
	exists := m.s.exists(ctx)
	keep := true
	for i, l := range m.logs {
		there, err := exists(l.session)
		if err != nil {
			return err
		}
		switch {
		case there && i == len(m.logs)-1:
			keep = false
		case there:
			same, err := m.s.sameLog(ctx, l)
			if err != nil {
				return err
			}
			keep = keep && same && m.here == i // an ancestor of what is here is here
			m.here = i + 1
		}
	}
	if keep {
		return nil
	}
	m.here = 0
	known := []id.Checkpoint{m.manifest.ID}
	for _, l := range m.logs {
		for e, err := range l.events(0) {
			if err != nil {
				return err
			}
			if e.Type != event.CheckpointCreated {
				continue
			}
			d, err := event.DecodeData[event.CheckpointCreatedData](e)
			if err != nil {
				return err
			}
			known = append(known, d.CheckpointID)
		}
	}
	logs, names, err := m.logs.rewrite(ctx, known)
	if err != nil {
		return err
	}
	m.logs = logs
	m.manifest.ID = id.Checkpoint(names[string(m.manifest.ID)])
	t, err := session.Load(ctx, logs, m.own().session)
	if err != nil {
		return err
	}
	m.state = t.State()
	return nil
}

// sameLog says whether a log that is here begins with a staged one.
func (s *Service) sameLog(ctx context.Context, l *stagedLog) (bool, error) {
	at, err := s.cfg.Log.Read(ctx, l.session, l.head.Seq-1, 1)
	return len(at) == 1 && at[0].Hash == l.head.Hash, err
}

// drafts tell of the import: the checkpoint that the session sleeps on, what was taken in, and that the other checkpoints are not here.
func (m *imported) drafts(next checkpoint.Manifest, hash string) []event.Draft {
	created := next.Created(hash)
	out := []event.Draft{
		{Type: event.CheckpointCreated, Data: created},
		{Type: event.CheckpointDurable, Data: event.CheckpointDurableData{CheckpointID: next.ID}},
		{Type: event.SessionImported, Data: event.SessionImportedData{
			SessionID: m.header.Session.ID, Name: m.name, HeadSeq: m.original.Seq, HeadHash: m.original.Hash, CheckpointID: next.ID,
			Original: m.header.Checkpoint.ID, CutSession: next.SessionID, CutSeq: next.CutSeq, Memory: m.memory, ExportedAt: event.Stamp(m.header.CreatedAt),
		}},
	}
	if len(m.state.Spec.Ports) > 0 { // this machine's addresses are not for an archive to take
		d := m.state.Spec.Configured()
		d.Ports = nil
		out = append(out, event.Draft{Type: event.SessionConfigured, Data: d})
	}
	for _, c := range m.state.Checkpoints {
		out = append(out, event.Draft{Type: event.CheckpointDeleted, Data: event.CheckpointDeletedData{CheckpointID: c.ID, Reason: "not in the archive"}})
	}
	return out
}
