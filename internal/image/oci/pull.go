package oci

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/image"
)

// codeUnreachable is the code of errors that the network may recover from.
const codeUnreachable = "registry_unreachable"

// pull is one at work, for whoever wants the image.
type pull struct {
	meter   *meter
	cancel  context.CancelFunc
	done    chan struct{} // closed when what follows is valid
	image   image.Image
	err     error
	waiting int // how many; guarded by Store.mu
}

// tellEvery is how often a puller hears how far it is.
const tellEvery = 200 * time.Millisecond

// Pull implements image.Store.
func (s *Store) Pull(ctx context.Context, req image.PullRequest, progress func(image.Progress)) (image.Image, error) {
	ref, err := image.Parse(req.Reference)
	if err != nil {
		return image.Image{}, err
	}
	if ref.Name == "" {
		return image.Image{}, errdefs.New(errdefs.Invalid, "image_reference_invalid", "%q does not say where the image is", req.Reference).
			WithHint("write NAME@%s", ref.Digest)
	}
	p := s.join(ctx, req, ref)
	defer s.leave(req, p)
	tick := time.NewTicker(tellEvery)
	defer tick.Stop()
	for {
		select {
		case <-p.done:
			if progress != nil && p.err == nil {
				progress(p.meter.progress())
			}
			return p.image, p.err
		case <-tick.C:
			if progress != nil {
				progress(p.meter.progress())
			}
		case <-ctx.Done():
			return image.Image{}, context.Cause(ctx)
		}
	}
}

func pullKey(req image.PullRequest) string {
	insecure := ""
	if req.Insecure {
		insecure = "insecure "
	}
	return insecure + req.Platform + " " + strings.TrimPrefix(req.Reference, "oci:")
}

// join begins a pull, or joins the one that is at work.
func (s *Store) join(ctx context.Context, req image.PullRequest, ref image.Reference) *pull {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := pullKey(req)
	p := s.pulls[key]
	if p == nil {
		run, cancel := context.WithCancel(context.WithoutCancel(ctx)) // it ends with the last who waits, not with the first who asked
		p = &pull{meter: &meter{reference: req.Reference}, cancel: cancel, done: make(chan struct{})}
		s.pulls[key] = p
		go func() {
			p.image, p.err = s.pull(run, req, ref, p.meter)
			cancel()
			s.mu.Lock()
			if s.pulls[key] == p {
				delete(s.pulls, key)
			}
			s.mu.Unlock()
			close(p.done)
		}()
	}
	p.waiting++
	return p
}

// leave cancels a pull that nobody waits for any more, and lets it end: nothing is left at work when it returns.
func (s *Store) leave(req image.PullRequest, p *pull) {
	s.mu.Lock()
	p.waiting--
	last := p.waiting == 0
	if key := pullKey(req); last && s.pulls[key] == p {
		delete(s.pulls, key) // whoever comes now begins anew
	}
	s.mu.Unlock()
	if last {
		p.cancel()
		<-p.done
	}
}

func (s *Store) pull(ctx context.Context, req image.PullRequest, ref image.Reference, m *meter) (image.Image, error) {
	c, err := s.fetch(ctx, req, ref)
	if err != nil {
		return image.Image{}, err
	}
	return s.take(ctx, c, []string{nameOf(ref)}, m)
}

// nameOf is the name under which a pulled image is kept. One that was asked for by its digest takes no tag from another.
func nameOf(ref image.Reference) string {
	if ref.Digest == "" {
		return ref.Name
	}
	return ref.Name[:strings.LastIndexByte(ref.Name, ':')] + "@" + ref.Digest
}

// fetch reads what an image consists of.
func (s *Store) fetch(ctx context.Context, req image.PullRequest, ref image.Reference) (candidate, error) {
	var options []name.Option
	if req.Insecure {
		options = append(options, name.Insecure)
	}
	where := ref.Name
	if ref.Digest != "" {
		where += "@" + ref.Digest
	}
	at, err := name.ParseReference(where, options...)
	if err != nil {
		return candidate{}, errdefs.Wrap(err, errdefs.Invalid, "image_reference_invalid", "%q does not name an image", req.Reference)
	}
	platform := v1.Platform{OS: "linux", Architecture: runtime.GOARCH}
	if req.Platform != "" {
		p, err := v1.ParsePlatform(req.Platform)
		if err != nil {
			return candidate{}, errdefs.Wrap(err, errdefs.Invalid, "invalid_request", "%q is no platform", req.Platform)
		}
		platform = *p
	}
	remotes := []remote.Option{
		remote.WithContext(ctx), remote.WithAuthFromKeychain(s.opts.Keychain), remote.WithPlatform(platform), remote.WithUserAgent("perdure"),
	}
	if s.opts.Transport != nil {
		remotes = append(remotes, remote.WithTransport(s.opts.Transport))
	}
	told := func(err error) error { return registryError(ctx, err, req.Reference, at.Context().RegistryStr()) }
	desc, err := remote.Get(at, remotes...)
	if err != nil {
		return candidate{}, told(err)
	}
	if int64(len(desc.Manifest)) > maxDocument {
		return candidate{}, errdefs.New(errdefs.Exhausted, "image_too_large", "the image's manifest has %d bytes", len(desc.Manifest))
	}
	c := candidate{record: record{Source: "registry"}}
	if desc.MediaType.IsIndex() {
		c.Others = []string{desc.Digest.String()}
	} else if !desc.MediaType.IsImage() {
		return candidate{}, invalid("%s is no image, but %s", req.Reference, desc.MediaType)
	}
	img, err := desc.Image()
	if err != nil {
		if strings.Contains(err.Error(), "no child with platform") {
			return candidate{}, errdefs.New(errdefs.Invalid, "image_platform_missing", "%s has no image for %s", req.Reference, platform.String())
		}
		return candidate{}, told(err)
	}
	manifest, err := img.Manifest()
	if err != nil {
		return candidate{}, told(err)
	}
	if err := checkManifest(manifest); err != nil {
		return candidate{}, err
	}
	digest, err := img.Digest()
	if err != nil {
		return candidate{}, told(err)
	}
	config, err := img.RawConfigFile()
	if err != nil {
		return candidate{}, told(err)
	}
	if err := c.describe(digest.String(), config, manifest); err != nil {
		return candidate{}, err
	}
	for i, d := range manifest.Layers {
		c.blobs[i].open = func(context.Context) (io.ReadCloser, error) {
			l, err := img.LayerByDigest(d.Digest)
			if err != nil {
				return nil, told(err)
			}
			body, err := l.Compressed()
			if err != nil {
				return nil, told(err)
			}
			return transfer{body, told}, nil
		}
	}
	return c, nil
}

// checkManifest refuses what is in a registry like an image, and is none, and what is too large to be read.
func checkManifest(m *v1.Manifest) error {
	switch m.Config.MediaType {
	case types.DockerConfigJSON, types.OCIConfigJSON:
	default:
		return invalid("this is no image that can be run, but an artifact of the type %s", m.Config.MediaType)
	}
	if m.Config.Size > maxDocument {
		return errdefs.New(errdefs.Exhausted, "image_too_large", "the image's configuration has %d bytes", m.Config.Size)
	}
	return nil
}

// describe fills in what manifest and configuration say. The blobs are still to be opened.
func (c *candidate) describe(digest string, config []byte, m *v1.Manifest) error {
	parsed, err := parseConfig(config)
	if err != nil {
		return err
	}
	if !json.Valid(config) {
		return invalid("the image's configuration is no JSON document")
	}
	if len(m.Layers) != len(parsed.RootFS.DiffIDs) {
		return invalid("the image has %d layers, and its configuration speaks of %d", len(m.Layers), len(parsed.RootFS.DiffIDs))
	}
	c.Digest, c.ConfigDigest, c.Config = digest, digestOf(config), config
	c.OS, c.Arch, c.CreatedAt = parsed.OS, parsed.Architecture, parsed.Created.UTC()
	for i, d := range parsed.RootFS.DiffIDs {
		c.blobs = append(c.blobs, blob{diffID: d.String(), size: max(0, m.Layers[i].Size)})
	}
	return nil
}

// transfer gives the errors of a transfer their codes.
type transfer struct {
	io.ReadCloser
	told func(error) error
}

func (t transfer) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = t.told(err)
	}
	return n, err
}

// registryError says what an error of the library means.
func registryError(ctx context.Context, err error, ref, registry string) error {
	var typed *errdefs.Error
	var refused *transport.Error
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &typed):
		return err
	case strings.Contains(err.Error(), "error verifying"):
		return errdefs.Wrap(err, errdefs.Corrupt, "image_corrupt", "%s sent something else than it promised for %s", registry, ref)
	case errors.As(err, &refused):
		switch refused.StatusCode {
		case http.StatusUnauthorized, http.StatusForbidden:
			e := errdefs.New(errdefs.Denied, "registry_denied", "%s does not let us have %s", registry, ref)
			e.Err = err
			return e.WithHint("check the name; if it is right: docker login %s, as the user who runs the daemon, or DOCKER_CONFIG for the daemon", registry)
		case http.StatusNotFound:
			e := errdefs.New(errdefs.NotFound, "image_not_in_registry", "%s does not have %s", registry, ref)
			e.Err = err
			return e.WithHint("check the name and the tag")
		case http.StatusTooManyRequests:
			e := errdefs.New(errdefs.Unavailable, "registry_denied", "%s allows no more pulls for now", registry)
			e.Err = err
			return e.WithHint("wait, or docker login %s, as the user who runs the daemon", registry)
		}
	}
	e := errdefs.New(errdefs.Unavailable, codeUnreachable, "%s cannot be read from %s", ref, registry)
	e.Err = err
	if strings.Contains(err.Error(), "server gave HTTP response to HTTPS client") {
		return e.WithHint("the registry has no TLS: --insecure takes the image all the same")
	}
	return e.WithHint("try again; whole layers are not sent twice")
}
