package portable_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/portable"
)

const (
	sess = "sess_01m8r50n0pv1y2qxgy9szt905r"
	ckpt = "ckpt_01m8r50n0pv1y2qxgy9szt905r"
	lyr  = "lyr_01m8r50n0pv1y2qxgy9szt905r"
)

func header() portable.Header {
	return portable.Header{
		CreatedAt: time.Unix(1_700_000_000, 0).UTC(), Build: "test", Session: portable.Session{ID: sess, Name: "a"},
		Logs:       []portable.Log{{SessionID: sess, Events: 1, HeadHash: "x"}},
		Checkpoint: portable.Checkpoint{ID: ckpt}, Layers: []id.Layer{lyr}, Memory: true, Bytes: 1 << 20,
	}
}

// stream is a small whole archive.
func stream(t testing.TB) []byte {
	t.Helper()
	var buf bytes.Buffer
	w, err := portable.NewWriter(&buf, header())
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"logs/" + sess + ".jsonl": "{}\n"} {
		if err := w.Bytes(name, []byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Bytes(portable.ManifestName, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	for _, h := range []*tar.Header{
		{Format: tar.FormatPAX, Typeflag: tar.TypeDir, Name: "layers/" + lyr + "/./", Mode: 0o755, PAXRecords: map[string]string{"PERDURE.opaque": "1"}},
		{Format: tar.FormatPAX, Typeflag: tar.TypeSymlink, Name: "layers/" + lyr + "/l", Linkname: "/etc"},
	} {
		if _, err := w.Add(h); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Bytes("memory/pages.img", bytes.Repeat([]byte("pages"), 1000)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.File("logs/late.jsonl", 0, time.Time{}); err == nil {
		t.Error("a member went where it does not belong")
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func TestStreamIsReadAsWritten(t *testing.T) {
	h, trailer, err := portable.Check(bytes.NewReader(stream(t)))
	if err != nil || h.Kind != portable.Kind || h.Format != portable.Format || h.Session.Name != "a" {
		t.Fatalf("%+v, %v", h, err)
	}
	if trailer.Entries != 6 || len(trailer.Parts) != 5 || trailer.Parts[3].Name != "layers/"+lyr || trailer.Parts[3].Entries != 2 {
		t.Errorf("%+v", trailer)
	}
}

// rewrite packs a stream anew with its members changed.
func rewrite(t *testing.T, change func(h *tar.Header, body []byte) (keep bool, newBody []byte)) []byte {
	t.Helper()
	zr, err := zstd.NewReader(bytes.NewReader(stream(t)))
	if err != nil {
		t.Fatal(err)
	}
	defer zr.Close()
	var buf bytes.Buffer
	zw, err := zstd.NewWriter(&buf)
	if err != nil {
		t.Fatal(err)
	}
	tr, tw := tar.NewReader(zr), tar.NewWriter(zw)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		keep, body := change(h, body)
		if !keep {
			continue
		}
		h.Size, h.Format = int64(len(body)), tar.FormatPAX
		if err := tw.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := tw.Write(body); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(tw.Close(), zw.Close()); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// TestChangedMembersAreNoticed: whatever a member says, what it holds, whether it is there.
func TestChangedMembersAreNoticed(t *testing.T) {
	type change = func(h *tar.Header, b []byte) (bool, []byte)
	in := func(name string, f change) change {
		return func(h *tar.Header, b []byte) (bool, []byte) {
			if strings.HasPrefix(h.Name, name) {
				return f(h, b)
			}
			return true, b
		}
	}
	edit := func(f func(*portable.Header)) change {
		return in("perdure.json", func(_ *tar.Header, b []byte) (bool, []byte) {
			var h portable.Header
			if err := json.Unmarshal(b, &h); err != nil {
				t.Fatal(err)
			}
			f(&h)
			b, err := json.Marshal(h)
			if err != nil {
				t.Fatal(err)
			}
			return true, b
		})
	}
	for name, c := range map[string]struct {
		change change
		want   string
	}{
		"nothing":       {func(_ *tar.Header, b []byte) (bool, []byte) { return true, b }, ""},
		"a byte":        {in("memory/", func(_ *tar.Header, b []byte) (bool, []byte) { b[7] ^= 1; return true, b }), "archive_damaged"},
		"a mode":        {in("layers/", func(h *tar.Header, b []byte) (bool, []byte) { h.Mode ^= 0o4000; return true, b }), "archive_damaged"},
		"an owner":      {in("layers/", func(h *tar.Header, b []byte) (bool, []byte) { h.Uid = 7; return true, b }), "archive_damaged"},
		"a target":      {in("layers/"+lyr+"/l", func(h *tar.Header, b []byte) (bool, []byte) { h.Linkname = "/"; return true, b }), "archive_damaged"},
		"a mark":        {in("layers/", func(h *tar.Header, b []byte) (bool, []byte) { h.PAXRecords = nil; return true, b }), "archive_damaged"},
		"a time":        {in("layers/", func(h *tar.Header, b []byte) (bool, []byte) { h.ModTime = time.Unix(9, 0); return true, b }), "archive_damaged"},
		"one less":      {in("memory/", func(*tar.Header, []byte) (bool, []byte) { return false, nil }), "archive_damaged"},
		"no trailer":    {in("trailer.json", func(*tar.Header, []byte) (bool, []byte) { return false, nil }), "archive_truncated"},
		"no header":     {in("perdure.json", func(*tar.Header, []byte) (bool, []byte) { return false, nil }), "bad_archive"},
		"another name":  {in("memory/", func(h *tar.Header, b []byte) (bool, []byte) { h.Name = "elsewhere/x"; return true, b }), "bad_archive"},
		"out of it":     {in("memory/", func(h *tar.Header, b []byte) (bool, []byte) { h.Name = "memory/../../x"; return true, b }), "bad_archive"},
		"back":          {in("memory/", func(h *tar.Header, b []byte) (bool, []byte) { h.Name = "logs/x"; return true, b }), "bad_archive"},
		"newer":         {edit(func(h *portable.Header) { h.Format = portable.Format + 1 }), "archive_newer"},
		"another kind":  {edit(func(h *portable.Header) { h.Kind = "other" }), "bad_archive"},
		"too little":    {edit(func(h *portable.Header) { h.Bytes = 10 }), "bad_archive"},
		"a wrong id":    {edit(func(h *portable.Header) { h.Logs[0].SessionID = "../x"; h.Session.ID = "../x" }), "bad_archive"},
		"a wrong layer": {edit(func(h *portable.Header) { h.Layers[0] = "../x" }), "bad_archive"},
		"the header":    {edit(func(h *portable.Header) { h.Session.Name = "b" }), "archive_damaged"},
	} {
		_, _, err := portable.Check(bytes.NewReader(rewrite(t, c.change)))
		if got := errdefs.CodeOf(err); err == nil && c.want != "" || err != nil && got != c.want {
			t.Errorf("%s: %v (%s), want %q", name, err, got, c.want)
		}
	}
	whole := stream(t)
	if _, _, err := portable.Check(bytes.NewReader(append(bytes.Clone(whole), whole...))); errdefs.CodeOf(err) != "archive_damaged" {
		t.Errorf("two in a row: %v", err)
	}
	if _, _, err := portable.Check(strings.NewReader("this is no archive at all, and never was one")); errdefs.CodeOf(err) != "bad_archive" {
		t.Errorf("a text: %v", err)
	}
	broken := errors.New("the disk is gone")
	if _, _, err := portable.Check(io.MultiReader(bytes.NewReader(whole[:len(whole)/2]), failing{broken})); !errors.Is(err, broken) {
		t.Errorf("a source that fails: %v", err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// FuzzReader reads whatever comes. The tar archive is fuzzed as it is, since no fuzzer gets through zstd.
func FuzzReader(f *testing.F) {
	zr, err := zstd.NewReader(bytes.NewReader(stream(f)))
	if err != nil {
		f.Fatal(err)
	}
	plain, err := io.ReadAll(zr)
	if err != nil {
		f.Fatal(err)
	}
	zr.Close()
	f.Add(plain)
	f.Add(plain[:len(plain)/2])
	f.Add([]byte{})
	zw, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := portable.NewReader(bytes.NewReader(zw.EncodeAll(data, nil)))
		if err != nil {
			if errdefs.KindOf(err) == errdefs.Internal {
				t.Fatalf("an error without a code: %v", err)
			}
			return
		}
		defer r.Close()
		var total int64
		for {
			m, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				if errdefs.KindOf(err) == errdefs.Internal {
					t.Fatalf("an error without a code: %v", err)
				}
				return
			}
			if strings.HasPrefix(m.Name, "/") || strings.Contains("/"+m.Name+"/", "/../") {
				t.Fatalf("a name that leads out: %q", m.Name)
			}
			if total += m.Tar.Size; total > r.Header.Bytes {
				t.Fatal("more than the header says")
			}
		}
	})
}
