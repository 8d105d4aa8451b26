package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sync/errgroup"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/errdefs"
)

// label is the checkpoint's message.
const label = "ready"

// ways are the messages to the forks.
func ways() []string {
	return []string{
		"Way 1: drop exact copies only.",
		"Way 2: keep the last version of each invoice id.",
		"Way 3: drop also what was typed twice within three days.",
	}
}

// checkpointAndFork takes the checkpoint and has three forks try three ways from it.
func (s *story) checkpointAndFork(ctx context.Context) error {
	if !s.memory {
		s.chapter("6. Forks of the files")
		s.skip("forks with RAM, each with its own interpreter and web server: the driver keeps no RAM")
		return s.filesOnly(ctx)
	}
	s.chapter("6. Three forks from one checkpoint try three ways")
	var ck api.Checkpoint
	if err := s.timed("checkpoint \""+label+"\"", func() (n int64, err error) {
		ck, err = s.c.CreateCheckpoint(ctx, name, api.CreateCheckpoint{Message: label})
		return ck.MemoryBytes + ck.FileBytes, err
	}); err != nil {
		return err
	}
	s.say("%s: log position %d, RAM %t, the workspace stood still for %.0f ms", ck.ID, ck.Seq, ck.Memory, ck.PauseMS)
	var forks []string
	if err := s.timed(fmt.Sprintf("%d forks", len(ways())), func() (int64, error) {
		list, err := s.c.ForkSession(ctx, name, api.ForkSession{Checkpoint: ck.ID, Count: len(ways()), Name: "way"})
		for _, f := range list.Data {
			forks = append(forks, f.Name)
		}
		return 0, err
	}); err != nil {
		return err
	}
	if len(forks) != len(ways()) {
		return errdefs.New(errdefs.Internal, "demo_forks", "%d forks instead of %d", len(forks), len(ways()))
	}
	if err := s.timed("three ways, at the same time", func() (int64, error) {
		g, gctx := errgroup.WithContext(ctx)
		quiet := *s // their lines would mix
		quiet.teller.hush()
		for i, f := range forks {
			g.Go(func() error { _, err := quiet.ask(gctx, f, ways()[i], nil); return err })
		}
		return 0, g.Wait()
	}); err != nil {
		return err
	}
	if err := s.compare(ctx, forks); err != nil {
		return err
	}
	return s.diff(ctx, forks)
}

// compare reads what the forks wrote, and checks it against the data file.
func (s *story) compare(ctx context.Context, forks []string) error {
	parent, err := s.web(ctx, name)
	if err != nil {
		return err
	}
	for i, f := range forks {
		text, err := s.read(ctx, f, "result.json")
		if err != nil {
			return err
		}
		var r struct {
			Way
			Loads    int     `json:"loads"`
			LoadedAt float64 `json:"loaded_at"`
		}
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			return err
		}
		r.Session = f
		s.fig.Ways = append(s.fig.Ways, r.Way)
		s.say("%s ← %s", f, ways()[i])
		s.say("%s: %d rows stay, %d go, %.2f EUR are owed", f, r.Rows, r.Dropped, float64(r.OwedCents)/100)
		if r.Loads != s.ready.Loads || r.LoadedAt != s.ready.LoadedAt {
			return errdefs.New(errdefs.Internal, "demo_fork_ram", "%s has other variables than its parent: %s", f, text)
		}
		w, err := s.web(ctx, f)
		if err != nil {
			return err
		}
		if w.PID != parent.PID || w.Served != parent.Served {
			return errdefs.New(errdefs.Internal, "demo_fork_web", "the web server of %s says %+v, its parent's %+v", f, w, parent)
		}
	}
	v := s.fig.Ways
	if err := s.claim(v[0].Rows == s.facts.Lines && v[1].Rows == s.facts.Invoices && v[2].Rows < v[1].Rows,
		"each fork worked on the RAM of the checkpoint and came to a result of its own, two of them counted again from the file", "%+v, expected %+v", v, s.facts); err != nil {
		return err
	}
	m, err := s.ram(ctx, name)
	if err != nil {
		return err
	}
	return s.claim(m == s.ready, "each fork has its own copy of the web server and its counter; the parent ran on, untouched", "%+v, before %+v", m, s.ready)
}

// diff compares two forks as `perdure diff` does.
func (s *story) diff(ctx context.Context, forks []string) error {
	a, b := forks[0], forks[1]
	var d api.Diff
	if err := s.timed(fmt.Sprintf("perdure diff %s %s", a, b), func() (n int64, err error) { d, err = s.c.Diff(ctx, a, b); return 0, err }); err != nil {
		return err
	}
	changed := map[string]bool{}
	for _, f := range d.Files {
		if path.Dir(f.Path) != s.home {
			continue
		}
		changed[path.Base(f.Path)] = true
		s.quote(fmt.Sprintf("%s %s: %d → %d bytes", f.Change, f.Path, f.ASize, f.BSize))
		if path.Base(f.Path) == "result.json" {
			for l := range strings.Lines(f.Text) {
				if strings.HasPrefix(l, "-") || strings.HasPrefix(l, "+") {
					s.quote("  " + l)
				}
			}
		}
	}
	s.quote(fmt.Sprintf("transcripts part after event %d: %d events of %s, %d of %s", d.Transcript.CommonSeq, len(d.Transcript.A), a, len(d.Transcript.B), b))
	return s.claim(changed["result.json"] && changed["clean.csv"] && len(d.Transcript.A) > 0 && len(d.Transcript.B) > 0,
		"diff tells what differs in files and transcripts, from the common point on", "%+v", d.Files)
}
