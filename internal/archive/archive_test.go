package archive

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"perdure.dev/perdure/internal/errdefs"
)

func pack(t *testing.T, headers ...tar.Header) io.Reader {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, h := range headers {
		h.Mode = 0o640
		if h.Typeflag == tar.TypeReg {
			h.Size = 1
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := io.WriteString(w, "x"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &buf
}

func TestLinksComeLast(t *testing.T) {
	in := pack(t, tar.Header{Name: "t/", Typeflag: tar.TypeDir}, tar.Header{Name: "t/up", Linkname: "../..", Typeflag: tar.TypeSymlink},
		tar.Header{Name: "t/up/f", Typeflag: tar.TypeReg}, tar.Header{Name: "t/dev", Typeflag: tar.TypeChar}, tar.Header{Name: "./", Typeflag: tar.TypeDir})
	var got []string
	err := Each(in, func(err error) error { return err }, func(e Entry) error {
		line := fmt.Sprint(e.Name, " ", e.Kind)
		if e.Kind == File {
			b, err := io.ReadAll(e.Body)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %o %s", e.Mode, b)
		}
		got = append(got, line+e.Target)
		return nil
	})
	want := []string{"t 1", "t/up/f 0 640 x", "t/dev 3", ". 1", "t/up 2../.."}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("entries %q, %v; want %q", got, err, want)
	}
}

func TestK10_NamesThatLeadOutAreRefused(t *testing.T) {
	for _, name := range []string{"../f", "a/../../f", "/f", "//f", "a/..", "..", "a/../b"} {
		err := Each(pack(t, tar.Header{Name: name, Typeflag: tar.TypeReg}), nil, func(e Entry) error {
			t.Errorf("%q is given as %q", name, e.Name)
			return nil
		})
		if errdefs.CodeOf(err) != "bad_archive" {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, err := clean("a\x00b"); errdefs.CodeOf(err) != "bad_archive" {
		t.Errorf("a NUL: %v", err)
	}
}

func TestBrokenArchive(t *testing.T) {
	mine := errors.New("mine")
	err := Each(strings.NewReader(strings.Repeat("no archive ", 100)), func(error) error { return mine }, func(Entry) error { return nil })
	if !errors.Is(err, mine) {
		t.Errorf("Each = %v", err)
	}
}
