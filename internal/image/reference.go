package image

import (
	"path"
	"regexp"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"

	"perdure.dev/perdure/internal/errdefs"
)

// The references that are no stored images.
const (
	Host      = "host"
	dirPrefix = "dir:"
	ociPrefix = "oci:"
)

// Dir returns the directory of a reference such as dir:/srv/root.
func Dir(ref string) (string, bool) { return strings.CutPrefix(ref, dirPrefix) }

// IsStored reports whether a reference speaks of a stored image, there or not.
func IsStored(ref string) bool {
	_, isDir := Dir(ref)
	return ref != "" && ref != Host && !isDir
}

// Reference is a reference to a stored image, taken apart.
type Reference struct {
	Name   string // in full, with its tag, such as index.docker.io/library/debian:12; "" if there is only a digest
	Digest string // sha256:HEX, or its beginning if Name is empty; "" if there is only a name
}

var digestPattern = regexp.MustCompile(`^sha256:[0-9a-f]{12,64}$`)

// The names that the OCI distribution specification has, which the library does not check.
var (
	registryPattern   = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9a-fA-F:]+\])(:[0-9]+)?$`)
	repositoryPattern = regexp.MustCompile(`^[a-z0-9]+([._-][._-]*[a-z0-9]+)*(/[a-z0-9]+([._-][._-]*[a-z0-9]+)*)*$`)
)

const digestLength = len("sha256:") + 64

// Parse takes a reference to a stored image apart. Error: image_reference_invalid.
func Parse(ref string) (Reference, error) {
	text := strings.TrimPrefix(ref, ociPrefix)
	if digestPattern.MatchString(text) {
		return Reference{Digest: text}, nil
	}
	bad := func(err error) error {
		e := errdefs.New(errdefs.Invalid, "image_reference_invalid", "%q does not name an image", ref)
		e.Err = err
		return e.WithHint("write NAME:TAG, NAME@sha256:DIGEST or sha256:DIGEST, such as debian:12; or host, or dir:/PATH")
	}
	if strings.Contains(text, "://") {
		return Reference{}, bad(nil)
	}
	base, digest, pinned := strings.Cut(text, "@")
	if pinned && (len(digest) != digestLength || !digestPattern.MatchString(digest)) {
		return Reference{}, bad(nil)
	}
	tag, err := name.NewTag(base)
	if err != nil || !registryPattern.MatchString(tag.RegistryStr()) || !repositoryPattern.MatchString(tag.RepositoryStr()) {
		return Reference{}, bad(err)
	}
	return Reference{Name: tag.Name(), Digest: digest}, nil
}

// Pin is the reference of one image for good. name is one of the image's, as Familiar writes it, or "".
func Pin(name, digest string) string {
	if name == "" {
		return ociPrefix + digest
	}
	return ociPrefix + name + "@" + digest
}

// Digest returns the digest of a pin, or "" for what is none.
func Digest(pin string) string {
	if !strings.HasPrefix(pin, ociPrefix) {
		return ""
	}
	r, err := Parse(pin)
	if err != nil || len(r.Digest) != digestLength {
		return ""
	}
	return r.Digest
}

// Familiar writes a full name as people do: without Docker's registry, and its library.
func Familiar(full string) string {
	if rest, ok := strings.CutPrefix(full, name.DefaultRegistry+"/"); ok {
		if plain, ok := strings.CutPrefix(rest, "library/"); ok {
			return plain
		}
		return rest
	}
	return full
}

// NameOfFile makes a name of an archive's file name: rootfs.tar.gz is rootfs. It is "" if nothing is left of it.
func NameOfFile(file string) string {
	base := strings.ToLower(path.Base(file))
	for _, suffix := range []string{".gz", ".tgz", ".zst", ".zstd", ".tar", ".oci"} {
		base = strings.TrimSuffix(base, suffix)
	}
	if _, err := Parse(base); err != nil {
		return ""
	}
	return base
}
