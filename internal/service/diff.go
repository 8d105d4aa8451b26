package service

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/diff"
	"golang.org/x/sys/unix"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/layer"
	"perdure.dev/perdure/internal/session"
)

// maxTextDiff is the largest file of which a text diff is made, in bytes. The algorithm is quadratic in the worst case.
const maxTextDiff = 64 << 10

// runtimeFiles are written by the runtime itself, anew for each sandbox: that two sessions differ in them says nothing about their work.
var runtimeFiles = []string{"/etc/machine-id", "/etc/hostname"}

// side is one thing that is compared: a session as it is now, or at a checkpoint.
type side struct {
	files []string // layer directories, bottom first
	line  session.Timeline
}

// Diff compares two of S and S@CKPT: files and transcripts.
func (s *Service) Diff(ctx context.Context, a, b string) (api.Diff, error) {
	from, err := s.side(ctx, a)
	if err != nil {
		return api.Diff{}, err
	}
	to, err := s.side(ctx, b)
	if err != nil {
		return api.Diff{}, err
	}
	out := api.Diff{A: a, B: b}
	if out.Files, err = fileDiffs(ctx, from.files, to.files); err != nil {
		return out, err
	}
	out.Transcript, err = s.transcriptDiff(ctx, from.line, to.line)
	return out, err
}

// side resolves S or S@CKPT.
func (s *Service) side(ctx context.Context, ref string) (side, error) {
	name, ckpt, at := strings.Cut(ref, "@")
	l, err := s.live(ctx, name)
	if err != nil {
		return side{}, err
	}
	if !at {
		line, err := l.timeline(ctx)
		if err != nil {
			return side{}, err
		}
		files, err := l.files(ctx)
		return side{files: files, line: line}, err
	}
	row, err := s.cfg.Rows.CheckpointByRef(ctx, l.id, ckpt)
	if err != nil {
		return side{}, err
	}
	line, err := session.TimelineAt(ctx, s.cfg.Log, row.SessionID, row.CutSeq)
	return side{files: s.layerPaths(row.Layers), line: line}, err
}

func (s *Service) layerPaths(layers []id.Layer) []string {
	out := make([]string, len(layers))
	for i, l := range layers {
		out[i] = s.cfg.Dirs.LayerFS(l)
	}
	return out
}

// files returns the directories, bottom first, that show the session's present files.
func (l *live) files(ctx context.Context) ([]string, error) {
	var out []string
	err := l.operate(ctx, func() error {
		if out = l.workspace.Live(); out != nil {
			return nil
		}
		st := l.state()
		if st.Workspace.Base == "" {
			return nil
		}
		row, err := l.svc.cfg.Rows.Checkpoint(ctx, st.Workspace.Base)
		out = l.svc.layerPaths(row.Layers)
		return err
	})
	return out, err
}

func fileDiffs(ctx context.Context, from, to []string) ([]api.FileDiff, error) {
	diffs, err := layer.Diff(ctx, "", from, to)
	if err != nil {
		return nil, err
	}
	out := make([]api.FileDiff, 0, len(diffs))
	for _, d := range diffs {
		if slices.Contains(runtimeFiles, d.Path) {
			continue
		}
		out = append(out, api.FileDiff{Path: d.Path, Change: presentOp(d.Op), ASize: d.From.Size, BSize: d.To.Size, Text: textDiff(d)})
	}
	return out, nil
}

// textDiff returns a unified diff of two small text files, or "".
func textDiff(d layer.Difference) string {
	a, okA := smallText(d.FromSrc, d.From)
	b, okB := smallText(d.ToSrc, d.To)
	if !okA || !okB || bytes.Equal(a, b) {
		return ""
	}
	return string(diff.Diff("a"+d.Path, a, "b"+d.Path, b))
}

// smallText reads a file if it is small and text. The side that has no file counts as an empty one.
func smallText(src layer.Source, s layer.Stamp) ([]byte, bool) {
	if src == (layer.Source{}) || s.IsWhiteout() {
		return nil, true
	}
	if s.Mode&unix.S_IFMT != unix.S_IFREG || s.Size > maxTextDiff {
		return nil, false
	}
	f, err := src.Open()
	if err != nil {
		return nil, false
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxTextDiff+1))
	return b, err == nil && len(b) <= maxTextDiff && utf8.Valid(b) && !bytes.ContainsRune(b, 0)
}

// transcriptDiff returns what each side has after the part with which both begin.
func (s *Service) transcriptDiff(ctx context.Context, a, b session.Timeline) (api.TranscriptDiff, error) {
	common := a.Common(b)
	end := common.End()
	out := api.TranscriptDiff{CommonSessionID: string(end.Session), CommonSeq: uint64(end.Seq)}
	var err error
	if out.A, err = s.spoken(ctx, a.After(end)); err != nil {
		return out, err
	}
	out.B, err = s.spoken(ctx, b.After(end))
	return out, err
}

// spoken returns the messages, tool calls and results of a timeline.
func (s *Service) spoken(ctx context.Context, line session.Timeline) ([]api.Event, error) {
	out := []api.Event{}
	for e, err := range line.Events(ctx, s.cfg.Log) {
		if err != nil {
			return nil, err
		}
		switch e.Type {
		case event.MessageUser, event.MessageAgent, event.ToolRequested, event.ToolFinished, event.SessionFinished:
			out = append(out, presentEvent(e))
		}
	}
	return out, nil
}
