package service_test

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/image"
)

// bare is the archive of a root file system that holds one file.
func bare(t *testing.T, text string) *bytes.Reader {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	if err := w.WriteHeader(&tar.Header{Name: "f", Mode: 0o644, Size: int64(len(text))}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return bytes.NewReader(buf.Bytes())
}

// An image and the sessions on it come and go at the same time: no session is ever without its image.
func TestSessionsKeepTheirImage(t *testing.T) {
	w := newWorld(t)
	first, err := w.svc.ImportImage(w.ctx(), "box", bare(t, "one"))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 200 {
			if err := w.svc.DeleteImage(w.ctx(), "box"); err == nil || errdefs.CodeOf(err) == "image_in_use" {
				return
			} else if errdefs.CodeOf(err) != "image_not_found" {
				t.Errorf("delete: %v", err)
			}
		}
	})
	s, err := w.svc.CreateSession(w.ctx(), api.CreateSession{Name: "one", Image: "box"})
	wg.Wait()
	_, gone := w.svc.GetImage(w.ctx(), first.Digest)
	switch {
	case err == nil && gone != nil:
		t.Fatalf("the session is there, and its image is not: %v", gone)
	case err != nil && (errdefs.CodeOf(err) != "image_not_found" || gone == nil):
		t.Fatalf("create: %v, image %v", err, gone)
	case err != nil:
		if _, err := w.svc.ImportImage(w.ctx(), "box", bare(t, "one")); err != nil {
			t.Fatal(err)
		}
		if s, err = w.svc.CreateSession(w.ctx(), api.CreateSession{Name: "one", Image: "box"}); err != nil {
			t.Fatal(err)
		}
	}
	w.want(s.Workspace.Image, image.Pin("box:latest", first.Digest))

	// the name means another image from now on, and this one stays as long as it is needed
	if _, err := w.svc.ImportImage(w.ctx(), "box", bare(t, "two")); err != nil {
		t.Fatal(err)
	}
	if err := w.svc.DeleteImage(w.ctx(), first.Digest); errdefs.CodeOf(err) != "image_in_use" {
		t.Errorf("it is deleted under a session: %v", err)
	}
	w.restart()
	content := func(name, want string) {
		t.Helper()
		r, _, err := w.svc.ReadFile(w.ctx(), name, "/f", 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		var got bytes.Buffer
		if _, err := got.ReadFrom(r); err != nil || got.String() != want {
			t.Errorf("%s reads %q, %v", name, got.String(), err)
		}
	}
	if _, err := w.svc.StopSession(w.ctx(), "one"); err != nil {
		t.Fatal(err)
	}
	content("one", "one")
	if list, err := w.svc.ForkSession(w.ctx(), "one", api.ForkSession{Count: 1, Name: "fork"}); err != nil || list.Data[0].Workspace.Image != s.Workspace.Image {
		t.Fatalf("fork: %+v, %v", list, err)
	}
	content("fork", "one")
	if _, err := w.svc.CreateSession(w.ctx(), api.CreateSession{Name: "two", Image: "box"}); err != nil {
		t.Fatal(err)
	}
	content("two", "two")

	// a session whose image is lost says how to bring it back, and nothing else is harmed
	if _, err := w.svc.StopSession(w.ctx(), "two"); err != nil {
		t.Fatal(err)
	}
	two, err := w.svc.GetImage(w.ctx(), "box")
	if err != nil {
		t.Fatal(err)
	}
	record := filepath.Join(w.dir, "oci", "images", two.Digest[len("sha256:"):]+".json")
	if err := os.Remove(record); err != nil {
		t.Fatal(err)
	}
	w.restart()
	if _, err := w.svc.ResumeSession(w.ctx(), "two"); errdefs.CodeOf(err) != "image_not_found" || errdefs.HintOf(err) == "" {
		t.Errorf("without its image: %v", err)
	}
	content("one", "one")
	if _, err := w.svc.ImportImage(w.ctx(), "", bare(t, "two")); err != nil {
		t.Fatal(err)
	}
	content("two", "two")
}
