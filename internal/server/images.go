package server

import (
	"context"
	"net/http"
	"time"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/actor"
)

// ImageRef is the image of a path.
type ImageRef struct {
	Image string `path:"i" doc:"A name or a digest of a stored image, with each slash as %2F." maxLength:"512"`
}

func (s *Server) imageRoutes() {
	b := s.cfg.Backend.Images
	handle(s, route{
		id: "list-images", method: http.MethodGet, path: "/images", role: actor.Viewer, summary: "List stored images by name",
	}, func(ctx context.Context, in *PageQuery) (api.List[api.Image], error) {
		return b.ListImages(ctx, in.page())
	})
	handle(s, route{
		id: "get-image", method: http.MethodGet, path: "/images/{i}", role: actor.Viewer, summary: "Show a stored image",
	}, func(ctx context.Context, in *ImageRef) (api.Image, error) {
		return b.GetImage(ctx, in.Image)
	})
	handle(s, route{
		id: "pull-image", method: http.MethodPost, path: "/images", role: actor.Operator, status: http.StatusCreated,
		summary: "Bring an image from a registry; the answer comes when it is there",
	}, func(ctx context.Context, in *struct{ Body api.PullImage }) (api.Image, error) {
		return b.PullImage(ctx, in.Body, nil)
	})
	handleStream(s, route{
		id: "follow-pull", method: http.MethodPost, path: "/images:pull", role: actor.Operator, waits: true, media: eventStream,
		summary: "Bring an image from a registry, and tell how far it is: events named progress, then image or error. It ends with the last client that waits for it",
	}, func(ctx context.Context, in *struct{ Body api.PullImage }, x *exchange) error {
		return s.followPull(ctx, in.Body, x)
	})
	handle(s, route{
		id: "import-image", method: http.MethodPut, path: "/images", role: actor.Operator, waits: true, request: octetStream, status: http.StatusCreated,
		summary: "Take an image from an archive: docker save's, an OCI layout, or a root file system, as tar, with gzip or zstd or without",
	}, func(ctx context.Context, in *struct {
		Name string `query:"name" maxLength:"512" doc:"NAME or NAME:TAG; empty: what the archive says."`
	}) (api.Image, error) {
		return b.ImportImage(ctx, in.Name, exchangeOf(ctx).r.Body)
	})
	handleEmpty(s, route{
		id: "delete-image", method: http.MethodDelete, path: "/images/{i}", role: actor.Operator,
		summary: "Take a name from an image, and delete the image with its last name; a digest takes all names",
	}, func(ctx context.Context, in *ImageRef) error {
		return b.DeleteImage(ctx, in.Image)
	})
}

// followPull tells how far a pull is until it is done. Nothing is sent for a request that is wrong, so that it gets an answer of its own.
func (s *Server) followPull(ctx context.Context, req api.PullImage, x *exchange) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type step struct {
		progress *api.PullProgress
		image    api.Image
		err      error
	}
	steps := make(chan step)
	go func() { // owned by this call: ends with ctx, or before
		img, err := s.cfg.Backend.Images.PullImage(ctx, req, func(p api.PullProgress) {
			select {
			case steps <- step{progress: &p}:
			case <-ctx.Done():
			}
		})
		select {
		case steps <- step{image: img, err: err}:
		case <-ctx.Done():
		}
	}()
	w := &sseWriter{w: x.w, rc: http.NewResponseController(x.w)}
	begun := false
	begin := func() {
		if begun {
			return
		}
		begun = true
		h := x.w.Header()
		h.Set("Content-Type", eventStream)
		h.Set("Cache-Control", "no-store")
		h.Set("X-Accel-Buffering", "no")
	}
	beat := time.NewTicker(s.cfg.Heartbeat)
	defer beat.Stop()
	var told api.PullProgress
	for {
		select {
		case st := <-steps:
			switch {
			case st.progress != nil && *st.progress != told:
				begin()
				told = *st.progress
				if w.event(api.PullProgressEvent, 0, told) != nil {
					return nil
				}
			case st.progress != nil:
			case st.err != nil && !begun:
				return st.err
			case st.err != nil:
				_ = w.event(api.ErrorEvent, 0, problem(st.err)) // the client is gone if this fails
				return nil
			default:
				begin()
				_ = w.event(api.PullDoneEvent, 0, withoutNulls(st.image))
				return nil
			}
		case <-beat.C:
			begin()
			if w.comment("beat") != nil {
				return nil
			}
		case <-ctx.Done():
			return nil
		}
	}
}
