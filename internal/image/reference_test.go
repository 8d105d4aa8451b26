package image_test

import (
	"strings"
	"testing"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/image"
)

var sum = "sha256:" + strings.Repeat("ab", 32)

func TestParse(t *testing.T) {
	for ref, want := range map[string]image.Reference{
		"debian":                           {Name: "index.docker.io/library/debian:latest"},
		"debian:12":                        {Name: "index.docker.io/library/debian:12"},
		"docker.io/library/debian:12":      {Name: "index.docker.io/library/debian:12"},
		"oci:debian:12":                    {Name: "index.docker.io/library/debian:12"},
		"oci:host":                         {Name: "index.docker.io/library/host:latest"},
		"oci:dir:12":                       {Name: "index.docker.io/library/dir:12"},
		"ghcr.io/a/b":                      {Name: "ghcr.io/a/b:latest"},
		"localhost:5000/a/b:c":             {Name: "localhost:5000/a/b:c"},
		"debian@" + sum:                    {Name: "index.docker.io/library/debian:latest", Digest: sum},
		"oci:debian:12@" + sum:             {Name: "index.docker.io/library/debian:12", Digest: sum},
		sum:                                {Digest: sum},
		"oci:" + sum:                       {Digest: sum},
		sum[:len("sha256:")+12]:            {Digest: sum[:len("sha256:")+12]},
		"sha256:latest":                    {Name: "index.docker.io/library/sha256:latest"},
		"oci:ghcr.io/a/b:" + "v1@" + sum:   {Name: "ghcr.io/a/b:v1", Digest: sum},
		"registry.example:443/deep/er/x:1": {Name: "registry.example:443/deep/er/x:1"},
	} {
		got, err := image.Parse(ref)
		if err != nil || got != want {
			t.Errorf("%s is %+v, want %+v (%v)", ref, got, want, err)
		}
	}
	for _, ref := range []string{"", "oci:", "Debian", "a b", "https://x/y", "debian@sha256:12", "debian@md5:" + strings.Repeat("a", 64), "../x", "a:b:c", "x@" + sum + "@" + sum, "a\x00b"} {
		if got, err := image.Parse(ref); errdefs.CodeOf(err) != "image_reference_invalid" {
			t.Errorf("%q is %+v, %v", ref, got, err)
		}
	}
}

func TestPins(t *testing.T) {
	for pin, want := range map[string]string{
		image.Pin("debian:12", sum): sum, image.Pin("", sum): sum, "host": "", "dir:/srv": "", "oci:debian:12": "", "debian@" + sum: "", "oci:" + sum[:30]: "",
	} {
		if got := image.Digest(pin); got != want {
			t.Errorf("the digest of %s is %q", pin, got)
		}
	}
	for ref, want := range map[string]bool{"": false, "host": false, "dir:/x": false, "debian": true, "oci:host": true} {
		if image.IsStored(ref) != want {
			t.Errorf("%q is stored: %v", ref, !want)
		}
	}
}

func TestNames(t *testing.T) {
	for full, want := range map[string]string{
		"index.docker.io/library/debian:12": "debian:12", "index.docker.io/a/b:c": "a/b:c", "ghcr.io/a/b:c": "ghcr.io/a/b:c",
	} {
		if got := image.Familiar(full); got != want {
			t.Errorf("%s is %s", full, got)
		}
	}
	for file, want := range map[string]string{"/a/RootFS.tar.gz": "rootfs", "x.tgz": "x", "d.tar.zst": "d", "layout": "layout", "/": "", "ä.tar": ""} {
		if got := image.NameOfFile(file); got != want {
			t.Errorf("%s is %q", file, got)
		}
	}
}
