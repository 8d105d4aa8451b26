package server

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"time"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/actor"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/id"
)

type listEventsInput struct {
	SessionRef
	Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	After uint64 `query:"after" doc:"The seq of the last event already seen."`
}

type streamInput struct {
	SessionRef
	After  string `query:"after" doc:"The seq of the last event already seen; 0 or absent: from the start."`
	LastID string `header:"Last-Event-ID" doc:"As after, and goes before it."`
}

// cursor is where the stream starts. What is not a number was never an id of this stream.
func (in streamInput) cursor() (uint64, error) {
	s := in.LastID
	if s == "" {
		s = in.After
	}
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 10, 63)
	if err != nil {
		return 0, errdefs.New(errdefs.Invalid, "unknown_cursor", "%q is not the seq of an event", s).WithHint("Use an id of this stream, or 0 for the start.")
	}
	return n, nil
}

func (s *Server) eventRoutes() {
	b := s.cfg.Backend.Events
	handle(s, route{
		id: "list-events", method: http.MethodGet, path: "/sessions/{s}/events", role: actor.Viewer, summary: "List a session's events",
	}, func(ctx context.Context, in *listEventsInput) (api.List[api.Event], error) {
		return b.ListEvents(ctx, in.Session, in.After, in.Limit)
	})
	handle(s, route{
		id: "send-messages", method: http.MethodPost, path: "/sessions/{s}/events", role: actor.Operator, status: http.StatusCreated,
		summary: "Send messages to a session; the answer is their events", maxBody: 8 << 20,
	}, func(ctx context.Context, in *struct {
		SessionRef
		Body api.SendMessages
	}) (api.List[api.Event], error) {
		return b.SendMessages(ctx, in.Session, in.Body)
	})
	handleStream(s, route{
		id: "stream-events", method: http.MethodGet, path: "/sessions/{s}/events/stream", role: actor.Viewer, waits: true, media: eventStream,
		summary: "Follow a session: stored events, then live ones. Events have an id, their seq; deltas (event: delta) have none",
	}, s.stream)
	handle(s, route{
		id: "get-timeline", method: http.MethodGet, path: "/sessions/{s}/timeline", role: actor.Viewer,
		summary: "Show which parts of which logs the model sees",
	}, func(ctx context.Context, in *SessionRef) (api.Timeline, error) {
		return b.Timeline(ctx, in.Session)
	})
	handle(s, route{
		id: "list-timeline-events", method: http.MethodGet, path: "/sessions/{s}/timeline/events", role: actor.Viewer,
		summary: "List the events on a session's timeline, those of its ancestors first",
	}, func(ctx context.Context, in *struct {
		SessionRef
		PageQuery
	}) (api.List[api.Event], error) {
		return b.TimelineEvents(ctx, in.Session, in.page())
	})
	handle(s, route{
		id: "diff", method: http.MethodGet, path: "/diff", role: actor.Viewer, summary: "Compare two sessions or checkpoints",
	}, func(ctx context.Context, in *struct {
		A string `query:"a" required:"true" doc:"S or S@CKPT"`
		B string `query:"b" required:"true" doc:"S or S@CKPT"`
	}) (api.Diff, error) {
		return b.Diff(ctx, in.A, in.B)
	})
	handleStream(s, route{
		id: "get-artifact", method: http.MethodGet, path: "/sessions/{s}/artifacts/{artifact}", role: actor.Viewer, waits: true, media: octetStream,
		summary: "Read an artifact; ranges work",
	}, func(ctx context.Context, in *struct {
		SessionRef
		Artifact string `path:"artifact"`
	}, x *exchange) error {
		return s.artifact(ctx, in.Session, in.Artifact, x)
	})
}

func (s *Server) artifact(ctx context.Context, ref, name string, x *exchange) error {
	if !id.Valid("art", name) {
		return errdefs.New(errdefs.NotFound, "artifact_not_found", "there is no artifact %q", name)
	}
	f, err := s.cfg.Backend.Events.Artifact(ctx, ref, id.Artifact(name))
	if err != nil {
		return err
	}
	defer f.Close()
	x.w.Header().Set("Content-Type", octetStream)
	http.ServeContent(x.w, x.r, "", time.Time{}, f)
	return nil
}

const octetStream = "application/octet-stream"

// copyOut sends a stream as it comes, so that a follower sees each piece at once.
func copyOut(x *exchange, r io.Reader) error {
	rc := http.NewResponseController(x.w)
	buf := make([]byte, 64<<10)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			if _, werr := x.w.Write(buf[:n]); werr != nil {
				return werr
			}
			if ferr := rc.Flush(); ferr != nil {
				return ferr
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// cut ends an answer whose status is already sent, so that the client sees that it is incomplete instead of a short success.
func cut(err error) error {
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	return nil
}
