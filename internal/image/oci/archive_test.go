package oci_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/klauspost/compress/zstd"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/layer"
)

func TestImport(t *testing.T) {
	img := build(t, v1.Config{User: "7"}, tarOf(t, "first"), tarOf(t, "second"))
	tag, err := name.NewTag("box:3")
	if err != nil {
		t.Fatal(err)
	}
	saved := filepath.Join(t.TempDir(), "saved.tar")
	if err := tarball.WriteToFile(saved, tag, img); err != nil {
		t.Fatal(err)
	}
	docker, err := os.ReadFile(saved)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := path.AppendImage(img, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": "ghcr.io/a/box:4"})); err != nil {
		t.Fatal(err)
	}
	var lay bytes.Buffer
	w := tar.NewWriter(&lay)
	if err := w.AddFS(os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	plain := tarOf(t, "etc/", "etc/passwd")
	var zipped, zst bytes.Buffer
	z := gzip.NewWriter(&zipped)
	z.Write(plain)
	z.Close()
	e, err := zstd.NewWriter(&zst)
	if err != nil {
		t.Fatal(err)
	}
	e.Write(plain)
	e.Close()

	for what, c := range map[string]struct {
		archive      []byte
		source, name string
		file         string
		given        string
	}{
		"docker archive":       {docker, "docker-archive", "box:3", "second", ""},
		"docker archive named": {docker, "docker-archive", "mine:latest", "second", "mine"},
		"layout":               {lay.Bytes(), "oci-layout", "ghcr.io/a/box:4", "first", ""},
		"root":                 {plain, "root-fs", "", "etc/passwd", ""},
		"root gzip":            {zipped.Bytes(), "root-fs", "r:1", "etc/passwd", "r:1"},
		"root zstd":            {zst.Bytes(), "root-fs", "r:1", "etc/passwd", "r:1"},
	} {
		t.Run(what, func(t *testing.T) {
			b := newBench(t)
			got, err := b.store.Import(t.Context(), bytes.NewReader(c.archive), c.given)
			if err != nil {
				t.Fatal(err)
			}
			if got.Source != c.source || strings.Join(got.Names, " ") != c.name || b.file(got.Digest, c.file) != c.file {
				t.Errorf("imported %+v", got)
			}
			if c.source == "oci-layout" && got.Digest != digest(t, img) || c.source != "root-fs" && got.Config.User != "7" {
				t.Errorf("imported %+v", got)
			}
			again, err := b.store.Import(t.Context(), bytes.NewReader(c.archive), c.given)
			if err != nil || again.Digest != got.Digest {
				t.Errorf("again it is %s, %v", again.Digest, err)
			}
			b.clean()
		})
	}
	b := newBench(t)
	for what, c := range map[string]struct {
		archive []byte
		name    string
		code    string
	}{
		"no archive": {[]byte("hello, this is no archive at all"), "", "image_invalid"},
		"empty":      {tarOf(t), "", "image_invalid"},
		"nothing":    {nil, "", "image_invalid"},
		"cut":        {docker[:len(docker)/2], "", "image_invalid"},
		"bad name":   {plain, "No Name", "image_reference_invalid"},
		"a digest":   {plain, "a@sha256:" + strings.Repeat("a", 64), "image_reference_invalid"},
		"xz":         {[]byte("\xfd7zXZ\x00rest"), "", "image_invalid"},
		"cut gzip":   {zipped.Bytes()[:zipped.Len()/2], "", "image_invalid"},
	} {
		if _, err := b.store.Import(t.Context(), bytes.NewReader(c.archive), c.name); errdefs.CodeOf(err) != c.code {
			t.Errorf("%s: %v", what, err)
		}
	}
	b.opts.Limits = layer.UnpackLimits{Entries: 1}
	b.open()
	if _, err := b.store.Import(t.Context(), bytes.NewReader(plain), ""); errdefs.CodeOf(err) != "image_too_large" {
		t.Errorf("too many files: %v", err)
	}
	b.clean()
}
