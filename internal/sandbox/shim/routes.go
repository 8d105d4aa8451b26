package shim

import (
	"context"
	"encoding/json"
	"io"
	"io/fs"
	"net/http"
	"strconv"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/sandbox"
)

func (s *server) execRoutes(mux *http.ServeMux) {
	execs := s.guest.Execs()
	handle(mux, pathExecStart, execs.Start)
	handle(mux, pathExecRun, func(ctx context.Context, req runRequest) (sandbox.ExecResult, error) {
		return execs.Run(ctx, req.Spec, req.Limit)
	})
	handle(mux, pathExecStatus, execs.Status)
	handle(mux, pathExecList, func(ctx context.Context, _ none) ([]sandbox.ExecStatus, error) { return execs.List(ctx) })
	handle(mux, pathExecWait, execs.Wait)
	handle(mux, pathExecSignal, func(ctx context.Context, req execRequest) (none, error) {
		return none{}, execs.Signal(ctx, req.ID, req.Signal)
	})
	handle(mux, pathExecStdin, func(ctx context.Context, req execRequest) (none, error) {
		return none{}, execs.Stdin(ctx, req.ID, req.Offset, req.Data, req.EOF)
	})
	mux.HandleFunc("PUT "+pathExecStdin, s.execStdin)
	handle(mux, pathExecResize, func(ctx context.Context, req execRequest) (none, error) {
		return none{}, execs.Resize(ctx, req.ID, req.Size)
	})
	mux.HandleFunc("GET "+pathExecOutput, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		offset, err := strconv.ParseInt(q.Get("offset"), 10, 64)
		if err != nil {
			writeError(w, errdefs.Wrap(err, errdefs.Invalid, "bad_request", "read the offset"))
			return
		}
		out, err := execs.Output(r.Context(), id.Exec(q.Get("id")), sandbox.Stream(q.Get("stream")), offset, q.Get("follow") == "1")
		if err != nil {
			writeError(w, err)
			return
		}
		defer out.Close()
		stream(w, out)
	})
}

// execStdin takes input as the body, without the cost of JSON.
func (s *server) execStdin(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	offset, err := strconv.ParseInt(q.Get("offset"), 10, 64)
	if err != nil {
		writeError(w, errdefs.Wrap(err, errdefs.Invalid, "bad_request", "read the offset"))
		return
	}
	data, err := io.ReadAll(r.Body)
	if err != nil {
		writeError(w, errdefs.Wrap(err, errdefs.Invalid, "bad_request", "read the input"))
		return
	}
	if err := s.guest.Execs().Stdin(r.Context(), id.Exec(q.Get("id")), offset, data, q.Get("eof") == "1"); err != nil {
		writeError(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

const headerSize = "Perdure-File-Size"

func (s *server) fileRoutes(mux *http.ServeMux) {
	files := s.guest.Files()
	handle(mux, pathFilePut, func(ctx context.Context, req []sandbox.NewFile) (none, error) { return none{}, files.Put(ctx, req) })
	handle(mux, pathFileList, func(ctx context.Context, req fileRequest) ([]sandbox.FileInfo, error) {
		return files.List(ctx, req.Path)
	})
	handle(mux, pathFileStat, func(ctx context.Context, req fileRequest) (sandbox.FileInfo, error) {
		return files.Stat(ctx, req.Path)
	})
	handle(mux, pathFileRemove, func(ctx context.Context, req fileRequest) (none, error) {
		return none{}, files.Remove(ctx, req.Path, req.Recursive)
	})
	handle(mux, pathFileMkdir, func(ctx context.Context, req fileRequest) (none, error) {
		return none{}, files.Mkdir(ctx, req.Path, fs.FileMode(req.Mode))
	})
	handle(mux, pathProcesses, func(ctx context.Context, _ none) ([]sandbox.Process, error) { return files.Processes(ctx) })
	mux.HandleFunc("GET "+pathFileRead, s.fileRead)
	mux.HandleFunc("PUT "+pathFileWrite, s.fileWrite)
	mux.HandleFunc("GET "+pathFileWatch, s.fileWatch)
}

func (s *server) fileRead(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	offset, err1 := strconv.ParseInt(q.Get("offset"), 10, 64)
	length, err2 := strconv.ParseInt(q.Get("length"), 10, 64)
	if err1 != nil || err2 != nil {
		writeError(w, errdefs.New(errdefs.Invalid, "bad_request", "read the offset and length"))
		return
	}
	data, size, err := s.guest.Files().Read(r.Context(), q.Get("path"), offset, length)
	if err != nil {
		writeError(w, err)
		return
	}
	defer data.Close()
	w.Header().Set(headerSize, strconv.FormatInt(size, 10))
	stream(w, data)
}

func (s *server) fileWrite(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	mode, err := strconv.ParseUint(q.Get("mode"), 8, 32)
	if err != nil {
		writeError(w, errdefs.Wrap(err, errdefs.Invalid, "bad_request", "read the mode"))
		return
	}
	if err := s.guest.Files().Write(r.Context(), q.Get("path"), fs.FileMode(mode), r.Body); err != nil {
		writeError(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (s *server) fileWatch(w http.ResponseWriter, r *http.Request) {
	changes, err := s.guest.Files().Watch(r.Context(), r.URL.Query().Get("path"))
	if err != nil {
		writeError(w, err)
		return
	}
	rc := http.NewResponseController(w)
	w.WriteHeader(http.StatusOK)
	_ = rc.Flush() // the caller learns that the watch is set
	enc := json.NewEncoder(w)
	for c := range changes {
		if enc.Encode(c) != nil || rc.Flush() != nil {
			return
		}
	}
}

// stream copies bytes as they come. An error in the middle cuts the connection, so that the reader sees it.
func stream(w http.ResponseWriter, from io.Reader) {
	rc := http.NewResponseController(w)
	w.WriteHeader(http.StatusOK)
	if err := rc.Flush(); err != nil {
		return
	}
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if _, werr := w.Write(buf[:n]); werr != nil {
				return
			}
			if werr := rc.Flush(); werr != nil {
				return
			}
		}
		switch {
		case err == io.EOF:
			return
		case err != nil:
			panic(http.ErrAbortHandler) // net/http's way to cut a response short
		}
	}
}
