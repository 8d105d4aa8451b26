package client_test

import (
	"strings"
	"testing"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/client"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/server/servertest"
)

func TestImages(t *testing.T) {
	d := servertest.NewDaemon(t)
	c, err := client.New(client.Options{Socket: d.Socket})
	if err != nil {
		t.Fatal(err)
	}
	const name = "ghcr.io/a/b:1" // a slash and a colon in a path
	var told []int
	img, err := c.PullImage(t.Context(), api.PullImage{Reference: name}, func(p api.PullProgress) { told = append(told, p.LayersDone) })
	if err != nil || img.Names[0] != name || len(told) != 3 || told[2] != 2 {
		t.Errorf("pulled %+v, told %v, %v", img, told, err)
	}
	if _, err := c.PullImage(t.Context(), api.PullImage{Reference: "nothing"}, nil); errdefs.CodeOf(err) != "image_not_in_registry" {
		t.Errorf("before the first word: %v", err)
	}
	if _, err := c.PullImage(t.Context(), api.PullImage{Reference: "broken"}, nil); errdefs.CodeOf(err) != "registry_unreachable" {
		t.Errorf("in the middle: %v", err)
	}
	if _, err := c.PullImage(t.Context(), api.PullImage{}, nil); errdefs.KindOf(err) != errdefs.Invalid {
		t.Errorf("no reference: %v", err)
	}
	if img, err := c.ImportImage(t.Context(), "box:1", strings.NewReader("sha256:box")); err != nil || img.Digest != "sha256:box" {
		t.Errorf("imported %+v, %v", img, err)
	}
	if img, err := c.Image(t.Context(), name); err != nil || img.Names[0] != name {
		t.Errorf("it is %+v, %v", img, err)
	}
	if list, err := c.Images(t.Context(), api.Page{}); err != nil || len(list.Data) != 2 || list.Data[0].Layers == nil {
		t.Errorf("images %+v, %v", list, err)
	}
	if err := c.DeleteImage(t.Context(), name); err != nil {
		t.Error(err)
	}
	if err := c.DeleteImage(t.Context(), name); errdefs.CodeOf(err) != "image_not_found" {
		t.Errorf("deleted twice: %v", err)
	}
}
