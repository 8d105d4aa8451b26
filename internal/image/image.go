package image

import (
	"context"
	"io"
	"time"
)

// Image is a stored image.
type Image struct {
	Digest       string   // sha256:HEX of its manifest, or of its configuration if it came without one
	ConfigDigest string   // sha256:HEX
	Others       []string // digests of the indexes by which registries offered it
	Names        []string // as people write them, such as "debian:12"; sorted; may be empty
	Source       string   // registry, oci-layout, docker-archive or root-fs
	OS, Arch     string
	Layers       []Layer   // bottom first
	CreatedAt    time.Time // by whoever built it; may be zero
	StoredAt     time.Time
	Config       Config
}

// Bytes is what all of the layers hold.
func (i Image) Bytes() int64 {
	var n int64
	for _, l := range i.Layers {
		n += l.Bytes
	}
	return n
}

// Layer is a layer of an image.
type Layer struct {
	DiffID  string // sha256:HEX of the archive without compression
	Bytes   int64  // of contents
	Entries int    // of the archive
	Skipped int    // what a layer cannot have: devices, privileged attributes
}

// Config is what an image says about the commands that run on it.
type Config struct {
	Env        []string // KEY=VALUE
	User       string   // uid, name, uid:gid or name:group; "": root
	WorkingDir string   // absolute; "": the home directory
	Entrypoint []string
	Cmd        []string
	Labels     map[string]string
	Ports      []string // such as 80/tcp
}

// Root is how an image is mounted.
type Root struct {
	Layers []string // directories, top first
	Config Config
}

// Progress says how far a pull or an import has come.
type Progress struct {
	Reference  string
	Layers     int
	LayersDone int
	Bytes      int64 // of compressed layers; 0: not known yet
	BytesDone  int64
}

// PullRequest asks for an image of a registry.
type PullRequest struct {
	Reference string
	Insecure  bool   // a registry that has no TLS
	Platform  string // OS/ARCH[/VARIANT]; "": this machine's
}

// Store keeps images. Its methods may be called at the same time.
type Store interface {
	// Pull brings an image from a registry, and says now and then how far it is, if progress is not nil. It ends with ctx, unless others wait for the same
	// image; whole layers stay for the next time. Errors: image_reference_invalid, image_not_in_registry, image_platform_missing, registry_denied,
	// registry_unreachable, image_invalid, image_too_large, image_corrupt, disk_full.
	Pull(ctx context.Context, req PullRequest, progress func(Progress)) (Image, error)
	// Import takes an image from an archive: docker save's, an OCI layout, or a root file system, with or without compression. name replaces what the
	// archive calls it; "" keeps that. Errors: as Pull has them, but for those of registries.
	Import(ctx context.Context, archive io.Reader, name string) (Image, error)
	// List returns all images, by their names, those without one last.
	List(ctx context.Context) ([]Image, error)
	// Find returns the image of a reference or a pin. Errors: image_not_found, image_reference_invalid, image_ambiguous.
	Find(ctx context.Context, ref string) (Image, error)
	// Remove takes away a name, and the image with it if that was the last one; a digest takes away all. inUse decides whether an image may go.
	// The image's layers go, unless other images have them: at once out of sight, and with the function that it returns, which may take long, for good.
	// Errors: as Find has them, and inUse's.
	Remove(ctx context.Context, ref string, inUse func(Image) error) (rest func() error, err error)
	// Root says how to mount an image. Error: image_not_found, with the pin.
	Root(ctx context.Context, pin string) (Root, error)
	// Sweep removes what crashes and canceled pulls have left for longer than a day, and images whose last name a later pull has given to another,
	// unless inUse has something against it. What it returns is as with Remove; it is never nil.
	Sweep(ctx context.Context, inUse func(Image) error) (rest func() error, err error)
}
