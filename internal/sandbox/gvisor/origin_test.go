package gvisor_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/sandbox"
)

// TestOriginIsOfTheCacheAlone: an image that comes from a stranger names files of the machine, which would be shown inside.
func TestOriginIsOfTheCacheAlone(t *testing.T) {
	r := newRig(t)
	s, err := r.Start(t.Context(), r.spec())
	if err != nil {
		t.Fatal(err)
	}
	warm, err := s.Checkpoint(t.Context(), sandbox.CheckpointRequest{Dir: r.mkdir("image")})
	if err != nil {
		t.Fatal(err)
	}
	r.end(s)
	image := warm.Image()
	carried, err := r.Origin(t.Context(), image)
	if err != nil || len(carried) != 1 {
		t.Fatalf("%v, %v", carried, err)
	}
	file := filepath.Join(image.Dir, "origin.json")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(r.mkdir("elsewhere"), "guest-0123456789abcdef")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(o map[string]any){
		"a file":                func(o map[string]any) { o["Guest"] = "/etc/shadow" },
		"a file with that name": func(o map[string]any) { o["Guest"] = secret },
		"nothing":               func(o map[string]any) { o["Guest"] = "" },
	} {
		var o map[string]any
		if err := json.Unmarshal(text, &o); err != nil {
			t.Fatal(err)
		}
		change(o)
		b, err := json.Marshal(o)
		if err == nil {
			err = os.WriteFile(file, b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		s, err := r.Restore(t.Context(), r.spec(), image)
		if err == nil {
			r.end(s)
		}
		if errdefs.CodeOf(err) != sandbox.ImageRefused {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The whole machine is no base: this machine's own is taken.
	var o map[string]any
	if err := json.Unmarshal(text, &o); err != nil {
		t.Fatal(err)
	}
	o["Base"] = "/"
	b, err := json.Marshal(o)
	if err == nil {
		err = os.WriteFile(file, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if s, err = r.Restore(t.Context(), r.spec(), image); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Files().Stat(t.Context(), "/boot/grub"); err == nil {
		t.Error("the machine's own files are shown")
	}
	r.end(s)

	for name, content := range map[string]string{
		"guest-0123456789abcdef": "another", "../guest-0123456789abcdef": "x", "base-0123456789abcdef": "x", "": "x",
	} {
		if err := r.Provide(t.Context(), name, time.Unix(0, 0), strings.NewReader(content)); errdefs.CodeOf(err) != "origin_invalid" {
			t.Errorf("%q: %v", name, err)
		}
	}
}
