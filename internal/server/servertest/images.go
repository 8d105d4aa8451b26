package servertest

import (
	"context"
	"io"
	"slices"
	"strings"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/errdefs"
)

// PullImage makes an image of any reference but those with "nothing" in it, or after its progress has been told, "broken".
func (b *Backend) PullImage(ctx context.Context, req api.PullImage, progress func(api.PullProgress)) (api.Image, error) {
	if strings.Contains(req.Reference, "nothing") {
		return api.Image{}, errdefs.New(errdefs.NotFound, "image_not_in_registry", "there is no %s", req.Reference)
	}
	for i := range 3 {
		if progress != nil {
			progress(api.PullProgress{Reference: req.Reference, Layers: 2, LayersDone: i})
		}
	}
	if strings.Contains(req.Reference, "broken") {
		return api.Image{}, errdefs.New(errdefs.Unavailable, "registry_unreachable", "the transfer of %s broke", req.Reference)
	}
	return b.keepImage(req.Reference, req.Reference), ctx.Err()
}

// ImportImage makes an image whose digest is what the archive says.
func (b *Backend) ImportImage(_ context.Context, name string, archive io.Reader) (api.Image, error) {
	text, err := io.ReadAll(archive)
	if err != nil {
		return api.Image{}, err
	}
	return b.keepImage(name, string(text)), nil
}

func (b *Backend) keepImage(name, digest string) api.Image {
	b.mu.Lock()
	defer b.mu.Unlock()
	img := api.Image{Digest: digest, Names: []string{name}}
	b.images = append(b.images, img)
	return img
}

// ListImages lists all images on one page.
func (b *Backend) ListImages(context.Context, api.Page) (api.List[api.Image], error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return api.List[api.Image]{Data: slices.Clone(b.images)}, nil
}

// GetImage finds an image by its name.
func (b *Backend) GetImage(_ context.Context, ref string) (api.Image, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := b.image(ref)
	if i < 0 {
		return api.Image{}, errNoImage(ref)
	}
	return b.images[i], nil
}

// DeleteImage deletes an image by its name.
func (b *Backend) DeleteImage(_ context.Context, ref string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := b.image(ref)
	if i < 0 {
		return errNoImage(ref)
	}
	b.images = slices.Delete(b.images, i, i+1)
	return nil
}

// image returns the index of an image. b.mu is held.
func (b *Backend) image(ref string) int {
	return slices.IndexFunc(b.images, func(i api.Image) bool { return slices.Contains(i.Names, ref) })
}

func errNoImage(ref string) error {
	return errdefs.New(errdefs.NotFound, "image_not_found", "there is no image %q", ref)
}
