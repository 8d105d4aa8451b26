package shim

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/sandbox"
)

// The paths of the shim's socket. Every call is a POST with a JSON body and a JSON answer, unless it says otherwise.
const (
	pathStatus     = "/status"
	pathWait       = "/wait"
	pathPause      = "/pause"
	pathUnpause    = "/unpause"
	pathCheckpoint = "/checkpoint" // a dialogue of JSON lines, see checkpoint.go
	pathDestroy    = "/destroy"
	pathLend       = "/lend"
	pathReclaim    = "/reclaim"
	pathReport     = "/restore-report"
	pathHooks      = "/hooks"
	pathDial       = "/dial" // becomes a stream of bytes in both directions, see dial.go

	pathExecStart  = "/exec/start"
	pathExecRun    = "/exec/run"
	pathExecStatus = "/exec/status"
	pathExecList   = "/exec/list"
	pathExecWait   = "/exec/wait"
	pathExecSignal = "/exec/signal"
	pathExecStdin  = "/exec/stdin"
	pathExecResize = "/exec/resize"
	pathExecOutput = "/exec/output" // GET, answers bytes

	pathFileRead   = "/file/read"  // GET, answers bytes
	pathFileWrite  = "/file/write" // PUT of bytes
	pathFileList   = "/file/list"
	pathFilePut    = "/file/put"
	pathFileStat   = "/file/stat"
	pathFileRemove = "/file/remove"
	pathFileMkdir  = "/file/mkdir"
	pathFileWatch  = "/file/watch" // GET, answers JSON lines
	pathProcesses  = "/processes"
)

type none struct{}

type execRequest struct {
	ID     id.Exec
	Signal int
	Offset int64
	Data   []byte
	EOF    bool
	Size   sandbox.TerminalSize
}

type runRequest struct {
	Spec  sandbox.ExecSpec
	Limit int // of each stream in the result, in bytes
}

type fileRequest struct {
	Path      string
	Recursive bool
	Mode      uint32
}

type checkpointStart struct {
	Dir         string
	LeavePaused bool
	Alive       bool `json:",omitempty"` // the caller gives signs of life while it cuts
}

// checkpointLine is one line of the dialogue, in either direction.
type checkpointLine struct {
	Paused bool       `json:",omitempty"` // shim: everything stands still, cut now
	Alive  bool       `json:",omitempty"` // shim, with Paused: it listens for signs of life. client: one, while it cuts
	CutOK  bool       `json:",omitempty"` // client
	CutBad string     `json:",omitempty"` // client: why its cut failed
	Done   bool       `json:",omitempty"` // shim
	Pause  int64      `json:",omitempty"` // shim: nanoseconds
	Bytes  int64      `json:",omitempty"` // shim: size of the image
	Error  *wireError `json:",omitempty"` // shim
}

// wireError carries an error across the socket.
type wireError struct {
	Kind    errdefs.Kind
	Code    string
	Message string
	Hint    string
}

func toWire(err error) *wireError {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return &wireError{Kind: errdefs.Timeout, Code: "timeout", Message: err.Error()}
	case errors.Is(err, context.Canceled):
		return &wireError{Kind: errdefs.Unavailable, Code: "cancelled", Message: err.Error()}
	}
	return &wireError{Kind: errdefs.KindOf(err), Code: errdefs.CodeOf(err), Message: err.Error(), Hint: errdefs.HintOf(err)}
}

func (w *wireError) err() error {
	return &errdefs.Error{Kind: w.Kind, Code: w.Code, Message: w.Message, Hint: w.Hint}
}

func writeError(w http.ResponseWriter, err error) {
	e := toWire(err)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.Kind.Status())
	_ = json.NewEncoder(w).Encode(e) // the client may be gone
}

// handle serves one call: Req in, Resp or an error out.
func handle[Req, Resp any](mux *http.ServeMux, path string, do func(ctx context.Context, req Req) (Resp, error)) {
	mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
		var req Req
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			writeError(w, errdefs.Wrap(err, errdefs.Invalid, "bad_request", "read the request"))
			return
		}
		resp, err := do(r.Context(), req)
		if err != nil {
			writeError(w, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(resp) // the client may be gone
	})
}

// stillnessLimit bounds how long a caller may keep a sandbox paused in a checkpoint, and silenceLimit how long while nothing is heard of
// it: a caller that is stopped, or hangs, must not keep a sandbox from its work.
const (
	stillnessLimit = 30 * time.Minute
	silenceLimit   = 20 * time.Second
	aliveEvery     = 2 * time.Second // how often a caller at work gives a sign
)
