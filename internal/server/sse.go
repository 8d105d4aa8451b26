package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/errdefs"
)

// The format is that of https://html.spec.whatwg.org/multipage/server-sent-events.html. JSON without indentation has no line breaks, so one data line is enough.
const eventStream = "text/event-stream"

// streamWrite is how long one write to a stream's reader may take. A reader that takes nothing for that long is cut; it
// resumes where it was.
const streamWrite = 30 * time.Second

// stream sends a session's events until the client goes, the session is deleted or the server stops.
func (s *Server) stream(ctx context.Context, in *streamInput, x *exchange) error {
	after, err := in.cursor()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	seq, err := s.cfg.Backend.Events.Subscribe(ctx, in.Session, after)
	if err != nil {
		return err
	}
	h := x.w.Header()
	h.Set("Content-Type", eventStream)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // or nginx holds events back
	w := &sseWriter{w: x.w, rc: http.NewResponseController(x.w)}
	if w.comment("stream") != nil {
		return nil
	}

	type step struct {
		item api.StreamItem
		err  error
	}
	steps := make(chan step)
	go func() { // owned by this call: ends with ctx
		defer close(steps)
		for item, err := range seq {
			select {
			case steps <- step{item, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	beat := time.NewTicker(s.cfg.Heartbeat)
	defer beat.Stop()
	for {
		select {
		case st, ok := <-steps:
			switch {
			case !ok:
				return nil
			case st.err != nil:
				if ctx.Err() == nil {
					w.event(api.ErrorEvent, 0, problem(st.err))
				}
				return nil
			}
			if err := w.item(st.item); err != nil {
				s.cfg.Log.Debug("event stream cut", "session", in.Session, "err", err)
				return nil
			}
		case <-beat.C:
			if w.comment("beat") != nil {
				return nil
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// sseWriter writes server-sent events.
type sseWriter struct {
	w   http.ResponseWriter
	rc  *http.ResponseController
	buf bytes.Buffer
}

func (w *sseWriter) item(item api.StreamItem) error {
	switch {
	case item.Event != nil:
		return w.event("", item.Event.Seq, item.Event)
	case item.Delta != nil:
		return w.event(api.DeltaEvent, 0, item.Delta)
	}
	return nil
}

// event writes one event. seq 0 means that it has no id: the reader's cursor stays where it is.
func (w *sseWriter) event(name string, seq uint64, data any) error {
	body, err := json.Marshal(data)
	if err != nil {
		return errdefs.Wrap(err, errdefs.Internal, "internal", "encoding an event")
	}
	w.buf.Reset()
	if name != "" {
		fmt.Fprintf(&w.buf, "event: %s\n", name)
	}
	if seq != 0 {
		fmt.Fprintf(&w.buf, "id: %d\n", seq)
	}
	fmt.Fprintf(&w.buf, "data: %s\n\n", body)
	return w.flush()
}

// comment keeps the connection alive and is invisible to the reader.
func (w *sseWriter) comment(text string) error {
	w.buf.Reset()
	fmt.Fprintf(&w.buf, ": %s\n\n", text)
	return w.flush()
}

func (w *sseWriter) flush() error {
	// Not every writer has deadlines (a test's has none); TCP's own limits are then all there is.
	_ = w.rc.SetWriteDeadline(time.Now().Add(streamWrite))
	if _, err := w.w.Write(w.buf.Bytes()); err != nil {
		return err
	}
	if err := w.rc.Flush(); !errors.Is(err, http.ErrNotSupported) { // of an answer that is stored before it is sent
		return err
	}
	return nil
}
