package oci

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/image"
)

// Import implements image.Store.
func (s *Store) Import(ctx context.Context, archive io.Reader, name string) (image.Image, error) {
	var names []string
	if name != "" {
		ref, err := image.Parse(name)
		if err != nil {
			return image.Image{}, err
		}
		if ref.Digest != "" {
			return image.Image{}, errdefs.New(errdefs.Invalid, "image_reference_invalid", "%q has a digest, and that is what the archive decides", name).
				WithHint("give a name, such as box:1")
		}
		names = []string{ref.Name}
	}
	a, err := s.receive(ctx, archive)
	if err != nil {
		return image.Image{}, err
	}
	defer a.close()
	c, own, err := a.read()
	if err != nil {
		return image.Image{}, err
	}
	if name == "" {
		names = own
	}
	return s.take(ctx, c, names, &meter{})
}

// archive is a received tar archive.
type archive struct {
	file    *os.File
	sum     string // sha256:HEX
	size    int64
	entries map[string]extent
	links   map[string]string
	any     bool // there is an entry
}

// extent is where an archive has a file.
type extent struct{ start, size int64 }

func (a *archive) close() {
	a.file.Close()
	os.Remove(a.file.Name()) // or it goes at the next start
}

// receive brings an archive to the disk, without its compression, since what stands at its end may be needed first.
func (s *Store) receive(ctx context.Context, r io.Reader) (*archive, error) {
	plain, end, err := decompress(r)
	if err != nil {
		return nil, received(ctx, err)
	}
	defer end()
	f, err := os.CreateTemp(s.path("tmp"), "archive-")
	if err != nil {
		return nil, diskError(err, "receive the archive")
	}
	a := &archive{file: f, entries: map[string]extent{}, links: map[string]string{}}
	sum := sha256.New()
	_, err = io.Copy(f, &stoppable{ctx, &bounded{r: plain, sum: sum, left: s.most()}})
	if err == nil {
		a.sum = "sha256:" + hex.EncodeToString(sum.Sum(nil))
		err = a.scan(ctx)
	}
	if err != nil {
		a.close()
		return nil, received(ctx, diskError(err, "receive the archive"))
	}
	return a, nil
}

// received tells of an archive whose sender has gone.
func received(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// stoppable ends with its context.
type stoppable struct {
	ctx context.Context
	r   io.Reader
}

func (s *stoppable) Read(p []byte) (int, error) {
	if s.ctx.Err() != nil {
		return 0, context.Cause(s.ctx)
	}
	return s.r.Read(p)
}

// mostEntries bounds an archive of archives, or a root file system.
const mostEntries = 1_000_000

// scan finds out where the archive has what an image of any kind may consist of.
func (a *archive) scan(ctx context.Context) error {
	if _, err := a.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	tr := tar.NewReader(a.file)
	for n := 0; ; n++ {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		h, err := tr.Next()
		switch {
		case err == io.EOF:
			a.size, err = a.file.Seek(0, io.SeekEnd)
			if err == nil && !a.any {
				err = invalid("the file is no image: it is empty")
			}
			return err
		case err != nil:
			return errdefs.Wrap(err, errdefs.Invalid, "image_invalid", "the file is no tar archive, or is not whole")
		case n >= mostEntries:
			return errdefs.New(errdefs.Exhausted, "image_too_large", "the archive has more than %d files", mostEntries)
		}
		a.any = true
		name := path.Clean(strings.TrimPrefix(h.Name, "/"))
		if strings.Contains(name, "/") && !strings.HasSuffix(name, ".json") && !strings.HasSuffix(name, ".tar") && !strings.HasPrefix(name, "blobs/") {
			continue
		}
		switch h.Typeflag {
		case tar.TypeReg:
			start, err := a.file.Seek(0, io.SeekCurrent)
			if err != nil {
				return err
			}
			a.entries[name] = extent{start, h.Size}
		case tar.TypeSymlink, tar.TypeLink:
			target := path.Join(path.Dir(name), h.Linkname)
			if h.Typeflag == tar.TypeLink {
				target = path.Clean(h.Linkname)
			}
			a.links[name] = target
		}
	}
}

// open reads one file of the archive.
func (a *archive) open(name string) (*io.SectionReader, error) {
	name = path.Clean(name)
	if to, ok := a.links[name]; ok {
		name = to // docker save shares layers so; never with a chain
	}
	x, ok := a.entries[name]
	if !ok {
		return nil, invalid("the archive does not have %q, which it names", name)
	}
	return io.NewSectionReader(a.file, x.start, x.size), nil
}

// document reads a JSON file of the archive.
func (a *archive) document(name string) ([]byte, error) {
	r, err := a.open(name)
	if err != nil {
		return nil, err
	}
	if r.Size() > maxDocument {
		return nil, errdefs.New(errdefs.Exhausted, "image_too_large", "%s in the archive has %d bytes", name, r.Size())
	}
	return io.ReadAll(r)
}

// blob reads a file of a layout by its digest, and verifies it.
func (a *archive) blob(d v1.Hash) ([]byte, error) {
	b, err := a.document(blobName(d))
	if err != nil {
		return nil, err
	}
	if got := digestOf(b); got != d.String() {
		return nil, errdefs.New(errdefs.Corrupt, "image_corrupt", "%s in the archive is %s", d.String(), got)
	}
	return b, nil
}

func blobName(d v1.Hash) string { return path.Join("blobs", d.Algorithm, d.Hex) }

// read finds the one image that the archive holds, and the names that it has there.
func (a *archive) read() (candidate, []string, error) {
	_, layout := a.entries["oci-layout"]
	_, index := a.entries["index.json"]
	_, docker := a.entries["manifest.json"]
	switch {
	case layout && index:
		return a.layout()
	case docker:
		return a.dockerSave()
	}
	c, err := a.rootFS()
	return c, nil, err
}

// severalImages is for archives of which only a part is wanted.
func severalImages(n int) error {
	return invalid("the archive holds %d images", n).WithHint("make one of a single image, such as: docker save NAME:TAG")
}

// layout reads an OCI layout: index.json names manifests, or further indexes.
func (a *archive) layout() (candidate, []string, error) {
	b, err := a.document("index.json")
	if err != nil {
		return candidate{}, nil, err
	}
	found, err := a.manifests(b, 0)
	if err != nil {
		return candidate{}, nil, err
	}
	switch len(found) {
	case 0:
		return candidate{}, nil, errdefs.New(errdefs.Invalid, "image_platform_missing", "the archive holds no image for linux/%s", runtime.GOARCH)
	case 1:
	default:
		return candidate{}, nil, severalImages(len(found))
	}
	raw, err := a.blob(found[0].digest)
	if err != nil {
		return candidate{}, nil, err
	}
	m, err := v1.ParseManifest(bytes.NewReader(raw))
	if err != nil {
		return candidate{}, nil, errdefs.Wrap(err, errdefs.Invalid, "image_invalid", "the image's manifest cannot be read")
	}
	if err := checkManifest(m); err != nil {
		return candidate{}, nil, err
	}
	config, err := a.blob(m.Config.Digest)
	if err != nil {
		return candidate{}, nil, err
	}
	c := candidate{record: record{Source: "oci-layout", Others: found[0].others}}
	if err := c.describe(found[0].digest.String(), config, m); err != nil {
		return candidate{}, nil, err
	}
	for i, d := range m.Layers {
		c.blobs[i].open = a.opener(blobName(d.Digest))
	}
	return c, found[0].names, nil
}

func (a *archive) opener(name string) func(context.Context) (io.ReadCloser, error) {
	return func(context.Context) (io.ReadCloser, error) {
		r, err := a.open(name)
		if err != nil {
			return nil, err
		}
		return io.NopCloser(r), nil
	}
}

// found is a manifest of a layout.
type found struct {
	digest v1.Hash
	others []string
	names  []string
}

// deepest is how far indexes may refer to indexes.
const deepest = 3

// manifests finds the manifests for this machine.
func (a *archive) manifests(raw []byte, depth int) ([]found, error) {
	index, err := v1.ParseIndexManifest(bytes.NewReader(raw))
	if err != nil {
		return nil, errdefs.Wrap(err, errdefs.Invalid, "image_invalid", "the archive's index cannot be read")
	}
	if depth == deepest || len(index.Manifests) > maxLayers {
		return nil, invalid("the archive's index is too deep or too long")
	}
	var out []found
	for _, d := range index.Manifests {
		names := namesOf(d.Annotations)
		var here []found
		switch {
		case d.MediaType.IsIndex():
			nested, err := a.blob(d.Digest)
			if err != nil {
				return nil, err
			}
			if here, err = a.manifests(nested, depth+1); err != nil {
				return nil, err
			}
			for i := range here {
				here[i].others = append(here[i].others, d.Digest.String())
			}
		case d.Platform != nil && (d.Platform.OS != "linux" || d.Platform.Architecture != runtime.GOARCH):
		default:
			here = []found{{digest: d.Digest}}
		}
		for _, f := range here {
			f.names = append(f.names, names...)
			if i := slices.IndexFunc(out, func(o found) bool { return o.digest == f.digest }); i >= 0 {
				out[i].names = append(out[i].names, f.names...)
			} else {
				out = append(out, f)
			}
		}
	}
	return out, nil
}

// namesOf reads what tools write into a layout: containerd the whole name, others a name or only a tag.
func namesOf(annotations map[string]string) []string {
	for _, key := range []string{"io.containerd.image.name", "org.opencontainers.image.ref.name"} {
		text := annotations[key]
		if !strings.ContainsAny(text, ":/") {
			continue // a tag alone names nothing
		}
		if ref, err := image.Parse(text); err == nil && ref.Name != "" && ref.Digest == "" {
			return []string{ref.Name}
		}
	}
	return nil
}

// dockerSave reads what docker save writes: manifest.json names the configuration and the layers.
func (a *archive) dockerSave() (candidate, []string, error) {
	b, err := a.document("manifest.json")
	if err != nil {
		return candidate{}, nil, err
	}
	var list []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	if err := json.Unmarshal(b, &list); err != nil {
		return candidate{}, nil, errdefs.Wrap(err, errdefs.Invalid, "image_invalid", "the archive's manifest.json cannot be read")
	}
	if len(list) != 1 {
		return candidate{}, nil, severalImages(len(list))
	}
	config, err := a.document(list[0].Config)
	if err != nil {
		return candidate{}, nil, err
	}
	c := candidate{record: record{Source: "docker-archive"}}
	m := &v1.Manifest{}
	for _, l := range list[0].Layers {
		r, err := a.open(l)
		if err != nil {
			return candidate{}, nil, err
		}
		m.Layers = append(m.Layers, v1.Descriptor{Size: r.Size()})
	}
	if err := c.describe(digestOf(config), config, m); err != nil {
		return candidate{}, nil, err
	}
	for i, l := range list[0].Layers {
		c.blobs[i].open = a.opener(l)
	}
	var names []string
	for _, tag := range list[0].RepoTags {
		if ref, err := image.Parse(tag); err == nil && ref.Name != "" && ref.Digest == "" {
			names = append(names, ref.Name)
		}
	}
	return c, names, nil
}

// rootFS takes the archive as the one layer of an image of its own. The same archive always gives the same image.
func (a *archive) rootFS() (candidate, error) {
	hash, err := v1.NewHash(a.sum)
	if err != nil {
		return candidate{}, err
	}
	config, err := json.Marshal(v1.ConfigFile{
		Architecture: runtime.GOARCH, OS: "linux", RootFS: v1.RootFS{Type: "layers", DiffIDs: []v1.Hash{hash}},
	})
	if err != nil {
		return candidate{}, err
	}
	c := candidate{record: record{Source: "root-fs"}}
	if err := c.describe(digestOf(config), config, &v1.Manifest{Layers: []v1.Descriptor{{Size: a.size}}}); err != nil {
		return candidate{}, err
	}
	c.blobs[0].open = func(context.Context) (io.ReadCloser, error) {
		return io.NopCloser(io.NewSectionReader(a.file, 0, a.size)), nil
	}
	return c, nil
}
