package spool

import (
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/sandbox"
)

const metaVersion = 1

// meta is the content of meta.json.
type meta struct {
	Version   int
	Spec      sandbox.ExecSpec
	State     sandbox.ExecState
	PID       int
	ExitCode  *int   `json:",omitempty"`
	Signal    string `json:",omitempty"`
	Cause     string `json:",omitempty"`
	TimedOut  bool   `json:",omitempty"`
	StartedAt time.Time
	EndedAt   time.Time
	Stdout    streamMeta
	Stderr    streamMeta
}

// streamMeta is what a stream's file does not say by itself.
type streamMeta struct {
	Generation int   `json:",omitempty"` // how many older generations lie beside it
	Gaps       []Gap `json:",omitempty"`
	Capped     bool  `json:",omitempty"` // the byte limit was reached; the rest is not here
}

// Gap is a range of a stream that never arrived, in bytes. The file holds a note there.
type Gap struct{ From, To int64 }

func (m *meta) status() sandbox.ExecStatus {
	return sandbox.ExecStatus{
		ID: m.Spec.ID, Spec: m.Spec, State: m.State, PID: m.PID, ExitCode: m.ExitCode, Signal: m.Signal, Cause: m.Cause,
		TimedOut: m.TimedOut, StartedAt: m.StartedAt, EndedAt: m.EndedAt,
	}
}

// metaOf is the record of a command in a given state, with fresh streams.
func metaOf(st sandbox.ExecStatus) meta {
	m := meta{
		Version: metaVersion, Spec: st.Spec, State: st.State, PID: st.PID, ExitCode: st.ExitCode, Signal: st.Signal,
		Cause: st.Cause, TimedOut: st.TimedOut, StartedAt: st.StartedAt, EndedAt: st.EndedAt,
	}
	m.Spec.ID = st.ID
	return m
}

// writeMeta replaces dir's meta.json. There is one writer per record, so the temporary name is fixed.
func writeMeta(dir string, m *meta) error {
	data, err := json.Marshal(m)
	if err != nil {
		return errdefs.Wrap(err, errdefs.Internal, "spool_write", "encoding a command's record")
	}
	tmp := filepath.Join(dir, "meta.tmp")
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return writeError(err)
	}
	return writeError(os.Rename(tmp, filepath.Join(dir, "meta.json")))
}

func readMeta(dir string) (meta, error) {
	var m meta
	data, err := os.ReadFile(filepath.Join(dir, "meta.json"))
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return m, err
	}
	if m.Version > metaVersion {
		return m, errdefs.New(errdefs.Invalid, "spool_newer", "the record in %s was written by a newer version", dir)
	}
	return m, nil
}
