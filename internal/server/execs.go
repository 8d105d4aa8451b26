package server

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/actor"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/id"
)

// ExecRef is the command of a path.
type ExecRef struct {
	SessionRef
	Exec string `path:"exec" doc:"A command's id." maxLength:"128"`
}

func (r ExecRef) id() (id.Exec, error) {
	if !id.ValidExternal(r.Exec) {
		return "", errdefs.New(errdefs.NotFound, "exec_not_found", "there is no command %q", r.Exec)
	}
	return id.Exec(r.Exec), nil
}

const defaultInline = 1 << 20 // bytes of each stream in a StartExec answer

func (s *Server) execRoutes() {
	b := s.cfg.Backend.Execs
	handle(s, route{
		id: "start-exec", method: http.MethodPost, path: "/sessions/{s}/execs", role: actor.Operator, waits: true, maxBody: 8 << 20,
		summary: "Start a command; an id that exists answers with its command",
	}, func(ctx context.Context, in *struct {
		SessionRef
		Body api.StartExec
	}) (api.Exec, error) {
		return s.startExec(ctx, in.Session, in.Body)
	})
	handle(s, route{
		id: "list-execs", method: http.MethodGet, path: "/sessions/{s}/execs", role: actor.Viewer, summary: "List commands, oldest first",
	}, func(ctx context.Context, in *struct {
		SessionRef
		PageQuery
	}) (api.List[api.Exec], error) {
		return b.ListExecs(ctx, in.Session, in.page())
	})
	handle(s, route{
		id: "get-exec", method: http.MethodGet, path: "/sessions/{s}/execs/{exec}", role: actor.Viewer, waits: true, summary: "Show a command",
	}, func(ctx context.Context, in *struct {
		ExecRef
		Wait bool `query:"wait" doc:"Answer when it has ended."`
	}) (api.Exec, error) {
		exec, err := in.id()
		if err != nil {
			return api.Exec{}, err
		}
		if in.Wait {
			return b.WaitExec(ctx, in.Session, exec)
		}
		return b.GetExec(ctx, in.Session, exec)
	})
	handleEmpty(s, route{
		id: "signal-exec", method: http.MethodPost, path: "/sessions/{s}/execs/{exec}:signal", role: actor.Operator,
		summary: "Send a signal to a command's process group",
	}, func(ctx context.Context, in *struct {
		ExecRef
		Body api.SignalExec
	}) error {
		exec, err := in.id()
		if err != nil {
			return err
		}
		sig, err := parseSignal(in.Body.Signal)
		if err != nil {
			return err
		}
		return b.SignalExec(ctx, in.Session, exec, sig)
	})
	handleEmpty(s, route{
		id: "resize-exec", method: http.MethodPost, path: "/sessions/{s}/execs/{exec}:resize", role: actor.Operator,
		summary: "Set the size of a command's terminal",
	}, func(ctx context.Context, in *struct {
		ExecRef
		Body api.TerminalSize
	}) error {
		exec, err := in.id()
		if err != nil {
			return err
		}
		return b.ResizeExec(ctx, in.Session, exec, in.Body)
	})
	s.execStreamRoutes()
}

// startExec starts a command, and then waits as long as its client does. The command itself goes on in any case.
func (s *Server) startExec(ctx context.Context, ref string, req api.StartExec) (api.Exec, error) {
	if req.ID == "" {
		req.ID = string(id.NewExec())
	}
	wait, limit := req.Wait || req.Output, req.MaxOutput
	switch {
	case !req.Output:
		limit = 0
	case limit == 0:
		limit = defaultInline
	}
	req.Wait, req.Output, req.MaxOutput = false, false, 0
	b := s.cfg.Backend.Execs
	if !wait {
		return b.StartExec(context.WithoutCancel(ctx), ref, req)
	}
	exec, err := b.RunExec(ctx, ref, req, limit)
	if err != nil {
		return exec, errors.Join(err, context.Cause(ctx))
	}
	exec.Stdout, exec.Stderr = strings.ToValidUTF8(exec.Stdout, "\uFFFD"), strings.ToValidUTF8(exec.Stderr, "\uFFFD")
	return exec, nil
}

func (s *Server) execStreamRoutes() {
	b := s.cfg.Backend.Execs
	handleStream(s, route{
		id: "read-output", method: http.MethodGet, path: "/sessions/{s}/execs/{exec}/output/{stream}", role: actor.Viewer, waits: true, media: octetStream,
		summary: "Read a command's output from a byte offset, with follow to its end",
	}, func(ctx context.Context, in *struct {
		ExecRef
		Stream string `path:"stream" enum:"stdout,stderr"`
		Offset int64  `query:"offset" minimum:"0"`
		Follow bool   `query:"follow"`
	}, x *exchange) error {
		exec, err := in.id()
		if err != nil {
			return err
		}
		r, err := b.ExecOutput(ctx, in.Session, exec, in.Stream, in.Offset, false) // says what is wrong before the answer starts
		if err != nil {
			return err
		}
		if in.Follow {
			r.Close()
			r = s.follow(ctx, in.Session, exec, in.Stream, in.Offset)
		}
		defer r.Close()
		x.w.Header().Set("Content-Type", octetStream)
		x.w.WriteHeader(http.StatusOK)
		if err := http.NewResponseController(x.w).Flush(); err != nil {
			return cut(err)
		}
		return cut(copyOut(x, r))
	})
	handleEmpty(s, route{
		id: "write-stdin", method: http.MethodPut, path: "/sessions/{s}/execs/{exec}/stdin", role: actor.Operator, maxBody: 8 << 20,
		summary: "Write input at a byte offset; a repeat is harmless",
	}, func(ctx context.Context, in *struct {
		ExecRef
		Offset  int64  `query:"offset" minimum:"0"`
		EOF     bool   `query:"eof" doc:"Close the input after these bytes."`
		RawBody []byte `contentType:"application/octet-stream"`
	}) error {
		exec, err := in.id()
		if err != nil {
			return err
		}
		return b.WriteStdin(ctx, in.Session, exec, in.Offset, in.RawBody, in.EOF)
	})
}
