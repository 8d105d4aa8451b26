package service

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/image"
	"perdure.dev/perdure/internal/sandbox"
	"perdure.dev/perdure/internal/store"
)

// PullImage brings an image from a registry. progress may be nil.
func (s *Service) PullImage(ctx context.Context, req api.PullImage, progress func(api.PullProgress)) (api.Image, error) {
	var tell func(image.Progress)
	if progress != nil {
		tell = func(p image.Progress) { progress(api.PullProgress(p)) }
	}
	// A pull ends when nobody waits for it any more, and when the service stops.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.run, func() { cancel(errStopping) })()
	img, err := s.cfg.ImageStore.Pull(ctx, image.PullRequest{Reference: req.Reference, Insecure: req.Insecure}, tell)
	if err != nil {
		return api.Image{}, err
	}
	return s.showImage(ctx, img)
}

// ImportImage takes an image from an archive, under a name if one is given.
func (s *Service) ImportImage(ctx context.Context, name string, archive io.Reader) (api.Image, error) {
	img, err := s.cfg.ImageStore.Import(ctx, archive, name)
	if err != nil {
		return api.Image{}, err
	}
	return s.showImage(ctx, img)
}

// GetImage shows an image.
func (s *Service) GetImage(ctx context.Context, ref string) (api.Image, error) {
	img, err := s.cfg.ImageStore.Find(ctx, ref)
	if err != nil {
		return api.Image{}, err
	}
	return s.showImage(ctx, img)
}

func (s *Service) showImage(ctx context.Context, img image.Image) (api.Image, error) {
	used, err := s.sessionsByImage(ctx)
	return presentImage(img, used), err
}

// ListImages lists the stored images by name. The cursor is a digest.
func (s *Service) ListImages(ctx context.Context, page api.Page) (api.List[api.Image], error) {
	all, err := s.cfg.ImageStore.List(ctx)
	if err != nil {
		return api.List[api.Image]{}, err
	}
	used, err := s.sessionsByImage(ctx)
	if err != nil {
		return api.List[api.Image]{}, err
	}
	if page.After != "" {
		i := slices.IndexFunc(all, func(img image.Image) bool { return img.Digest == page.After })
		if i < 0 {
			return api.List[api.Image]{}, errdefs.New(errdefs.Invalid, "unknown_cursor", "there is no image %q to go on after", page.After)
		}
		all = all[i+1:]
	}
	out := api.List[api.Image]{}
	if out.HasMore = page.Limit > 0 && len(all) > page.Limit; out.HasMore {
		all = all[:page.Limit]
	}
	for _, img := range all {
		out.Data = append(out.Data, presentImage(img, used))
	}
	return out, nil
}

// DeleteImage takes a name from an image, and deletes the image with its last name. Error: image_in_use.
func (s *Service) DeleteImage(ctx context.Context, ref string) error {
	s.images.Lock() // nobody begins a session on it meanwhile
	rest, err := s.cfg.ImageStore.Remove(ctx, ref, func(img image.Image) error { return s.imageFree(ctx, img) })
	s.images.Unlock()
	s.goroutine(func(context.Context) { // or the next start does
		if err := rest(); err != nil {
			s.cfg.Logger.Warn("cannot delete the layers of an image", "image", ref, "error", err)
		}
	})
	return err
}

// sweepImages removes what no image needs, and images that nobody can name any more and nothing needs.
func (s *Service) sweepImages(ctx context.Context) error {
	s.images.Lock()
	rest, err := s.cfg.ImageStore.Sweep(ctx, func(img image.Image) error { return s.imageFree(ctx, img) })
	s.images.Unlock()
	return errors.Join(err, rest())
}

// imageFree fails if a session or a checkpoint stands on an image.
func (s *Service) imageFree(ctx context.Context, img image.Image) error {
	used, err := s.sessionsByImage(ctx)
	if err != nil {
		return err
	}
	if names := used[img.Digest]; len(names) > 0 {
		return errdefs.New(errdefs.Conflict, "image_in_use", "the image %s is what %s started from", img.Digest, strings.Join(names, ", ")).
			WithHint("remove what needs it first: perdure rm %s", strings.Join(names, " "))
	}
	complete, _, err := s.checkpoints.List()
	if err != nil {
		return err
	}
	for _, c := range complete {
		if m, err := s.checkpoints.Read(c, ""); err == nil && m.Environment.ImageDigest == img.Digest {
			return errdefs.New(errdefs.Conflict, "image_in_use", "the checkpoint %s needs the image %s", c, img.Digest).
				WithHint("remove the checkpoint first: perdure checkpoints rm %s", c)
		}
	}
	return nil
}

// sessionsByImage returns the names of the sessions that stand on stored images, by the images' digests.
func (s *Service) sessionsByImage(ctx context.Context) (map[string][]string, error) {
	used := map[string][]string{}
	f := store.Filter{}
	for {
		rows, more, err := s.cfg.Rows.Sessions(ctx, f)
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			if digest := image.Digest(row.Spec.Image); digest != "" {
				used[digest] = append(used[digest], row.Name)
			}
		}
		if !more {
			return used, nil
		}
		f.After = rows[len(rows)-1].ID
	}
}

// pinImage decides for good which image a new session stands on, if it is to be a stored one. s.images is held for reading until the session
// is in the log.
func (s *Service) pinImage(ctx context.Context, spec *event.Spec, caps sandbox.Capabilities) error {
	if !image.IsStored(spec.Image) {
		return nil
	}
	ref, err := image.Parse(spec.Image)
	if err != nil {
		return err
	}
	img, err := s.cfg.ImageStore.Find(ctx, spec.Image)
	if err != nil {
		return err
	}
	if caps.FlatFiles {
		return errdefs.New(errdefs.Invalid, "image_unsupported", "the driver %s cannot run stored images", spec.Driver).
			WithHint("use --driver gvisor, or --image host")
	}
	name := image.Familiar(ref.Name)
	if name == "" && len(img.Names) > 0 {
		name = img.Names[0]
	}
	spec.Image = image.Pin(name, img.Digest)
	return nil
}

// onImage adds to the description of a sandbox what a stored image has to say.
func (s *Service) onImage(out *sandbox.Spec) error {
	if image.Digest(out.Root.Image) == "" {
		return nil
	}
	root, err := s.cfg.ImageStore.Root(s.run, out.Root.Image)
	if err != nil {
		return err
	}
	out.Root.Lower, out.User, out.Dir = root.Layers, root.Config.User, root.Config.WorkingDir
	out.Env = append(out.Env, root.Config.Env...)
	return nil
}

func presentImage(img image.Image, used map[string][]string) api.Image {
	c := img.Config
	out := api.Image{
		Digest: img.Digest, ConfigDigest: img.ConfigDigest, Names: img.Names, Source: img.Source, OS: img.OS, Architecture: img.Arch,
		SizeBytes: img.Bytes(), StoredAt: img.StoredAt, Sessions: used[img.Digest],
		Config: api.ImageConfig{Env: c.Env, User: c.User, WorkingDir: c.WorkingDir, Entrypoint: c.Entrypoint, Cmd: c.Cmd, Labels: c.Labels, Ports: c.Ports},
	}
	if !img.CreatedAt.IsZero() {
		out.CreatedAt = &img.CreatedAt
	}
	for _, l := range img.Layers {
		out.Layers = append(out.Layers, api.ImageLayer{DiffID: l.DiffID, SizeBytes: l.Bytes, Entries: l.Entries, Skipped: l.Skipped})
	}
	return out
}
