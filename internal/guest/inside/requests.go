package inside

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"syscall"

	"perdure.dev/perdure/internal/guest/wire"
)

// request is one that the host may still ask about.
type request struct {
	reply []byte // its frame; nil while it runs
}

func pid() int { return os.Getpid() }

// onRequest runs a request once. Repeated while it runs, it changes nothing; afterwards, it gets the same reply again.
func (g *Guest) onRequest(r wire.Request) {
	g.mu.Lock()
	host := g.hostID
	known := g.requests[r.ID]
	if known == nil {
		known = &request{}
		g.requests[r.ID] = known
		g.mu.Unlock()
		go g.serve(host, r)
		return
	}
	reply := known.reply
	g.mu.Unlock()
	if reply != nil {
		g.out.send(reply)
	}
}

// serve carries a request out and keeps its reply for as long as the same host wants it.
func (g *Guest) serve(host string, r wire.Request) {
	result, blob, err := g.contained(r)
	head := wire.ReplyHead{Error: wireError(err)}
	if err == nil && result != nil {
		if head.Result, err = json.Marshal(result); err != nil {
			head.Error = wireError(err)
		}
	}
	data, err := json.Marshal(head)
	if err != nil {
		data = []byte(`{"Error":{"Kind":"internal","Code":"guest_reply","Message":"the reply could not be encoded"}}`)
	}
	frame := wire.AppendReply(nil, wire.Reply{ID: r.ID, Head: data, Blob: blob})
	g.mu.Lock()
	defer g.mu.Unlock()
	req := g.requests[r.ID]
	if g.hostID != host || req == nil {
		return // given up, or of a host that is gone
	}
	req.reply = frame
	g.out.send(frame)
}

// contained turns a panic in a handler into an error, so that one bad request harms no other.
func (g *Guest) contained(r wire.Request) (result any, blob []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			g.log.Error("a handler panicked", "method", r.Method, "panic", p, "stack", string(debug.Stack()))
			result, blob, err = nil, nil, fail("internal", "guest_panic", "the guest failed in %s: %v", r.Method, p)
		}
	}()
	return g.handle(r)
}

func (g *Guest) handle(r wire.Request) (any, []byte, error) {
	switch r.Method {
	case wire.MethodExecStart:
		return with(r, g.execStart)
	case wire.MethodExecSignal:
		return with(r, g.execSignal)
	case wire.MethodExecStdin:
		return with(r, func(a wire.StdinArgs) (any, error) { return g.execStdin(a, r.Blob) })
	case wire.MethodExecResize:
		return with(r, g.execResize)
	case wire.MethodFileRead:
		var a wire.ReadArgs
		if err := json.Unmarshal(r.Head, &a); err != nil {
			return nil, nil, err
		}
		return g.fileRead(a)
	case wire.MethodFileWrite:
		return with(r, func(a wire.WriteArgs) (any, error) { return nil, g.fileWrite(a, r.Blob) })
	case wire.MethodFilePut:
		return with(r, func(a wire.PutArgs) (any, error) { return nil, g.filePut(a, r.Blob) })
	case wire.MethodFileList:
		return with(r, g.fileList)
	case wire.MethodFileStat:
		return with(r, g.fileStat)
	case wire.MethodFileRemove:
		return with(r, g.fileRemove)
	case wire.MethodFileMkdir:
		return with(r, g.fileMkdir)
	case wire.MethodFileWatch:
		return with(r, func(a wire.PathArgs) (any, error) { return nil, g.fileWatch(r.ID, a.Path) })
	case wire.MethodFileUnwatch:
		return with(r, func(a wire.UnwatchArgs) (any, error) { g.unwatch(a.Watch); return nil, nil })
	case wire.MethodProcesses:
		return wire.ProcessesResult{Processes: g.processes()}, nil, nil
	case wire.MethodRestored:
		return with(r, g.restored)
	case wire.MethodConfine:
		return with(r, func(a wire.ConfineArgs) (any, error) { return nil, g.confine(a) })
	case wire.MethodRelieve:
		return with(r, g.relieve)
	case wire.MethodDial:
		return with(r, g.tunnel)
	case wire.MethodHooks:
		return with(r, g.runHooks)
	}
	return nil, nil, fail("invalid", "guest_method", "the guest does not know %q", r.Method)
}

// with decodes a request's head for its handler.
func with[A any](r wire.Request, f func(A) (any, error)) (any, []byte, error) {
	var args A
	if err := json.Unmarshal(r.Head, &args); err != nil {
		return nil, nil, fail("invalid", "guest_request", "a malformed request: %v", err)
	}
	result, err := f(args)
	return result, nil, err
}

func fail(kind, code, format string, args ...any) *wire.Error {
	return &wire.Error{Kind: kind, Code: code, Message: fmt.Sprintf(format, args...)}
}

// wireError translates errors of the system to codes that Files promises.
func wireError(err error) *wire.Error {
	var w *wire.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &w):
		return w
	case errors.Is(err, fs.ErrNotExist):
		return fail("not_found", "file_not_found", "%v", err)
	case errors.Is(err, syscall.ENOTDIR):
		return fail("invalid", "not_a_directory", "%v", err)
	case errors.Is(err, syscall.EISDIR):
		return fail("invalid", "is_a_directory", "%v", err)
	case errors.Is(err, syscall.ENOTEMPTY):
		return fail("conflict", "directory_not_empty", "%v", err)
	case errors.Is(err, fs.ErrExist):
		return fail("conflict", "file_exists", "%v", err)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return fail("denied", "file_denied", "%v", err)
	case errors.Is(err, syscall.ENAMETOOLONG), errors.Is(err, syscall.ELOOP):
		return fail("invalid", "path_invalid", "%v", err)
	case errors.Is(err, syscall.ENXIO), errors.Is(err, syscall.ENODEV), errors.Is(err, syscall.EIO), errors.Is(err, syscall.ETXTBSY):
		return fail("conflict", "file_unusable", "%v", err) // a device without its other end, memory that is not mapped, a program that runs
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fail("exhausted", "disk_full", "%v", err)
	}
	return fail("internal", "guest_error", "%v", err)
}
