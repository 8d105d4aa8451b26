package spool

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"time"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/sandbox"
)

const metaVersion = 1

// meta is what a line of a record's metadata says.
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
	Capped     bool  `json:",omitempty"` // a limit was reached; the rest is not here
	CappedAt   int64 `json:",omitempty"` // how many bytes there were by then, which a note follows
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

// metaFile is the name of a record's metadata: one JSON object a line, of which the last whole one counts. Replacing a file at each change
// would make and delete an inode each time, which is most of what a short command costs.
const metaFile = "meta.json"

// maxMeta is how long a metadata file grows before it is written anew, in bytes.
const maxMeta = 256 << 10

// journal appends to a metadata file. What a crash or a full disk left of a line is overwritten by the next one.
type journal struct {
	file *os.File
	size int64
}

// write adds a line.
func (j *journal) write(dir string, m *meta) error {
	data, err := json.Marshal(m)
	if err != nil {
		return errdefs.Wrap(err, errdefs.Internal, "spool_write", "encoding a command's record")
	}
	data = append(data, '\n')
	if j.file == nil {
		if err := j.open(dir); err != nil {
			return writeError(err)
		}
	}
	if j.size > 0 && j.size+int64(len(data)) > maxMeta {
		return j.renew(dir, data)
	}
	if _, err := j.file.WriteAt(data, j.size); err != nil {
		return writeError(err)
	}
	j.size += int64(len(data))
	return nil
}

func (j *journal) open(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, metaFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	data, err := io.ReadAll(f)
	if err != nil {
		f.Close()
		return err
	}
	j.file, j.size = f, int64(len(data))
	_, whole := lastLine(data)
	switch {
	case !whole:
		j.size = int64(bytes.LastIndexByte(data, '\n') + 1)
	case !bytes.HasSuffix(data, []byte{'\n'}): // of an earlier version, which replaced the file each time
		_, err = f.WriteAt([]byte{'\n'}, j.size)
		j.size++
	}
	return err
}

// renew replaces the file by one with a single line.
func (j *journal) renew(dir string, line []byte) error {
	tmp := filepath.Join(dir, "meta.tmp") // there is one writer per record, so the temporary name is fixed
	if err := os.WriteFile(tmp, line, 0o600); err != nil {
		return writeError(err)
	}
	if err := os.Rename(tmp, filepath.Join(dir, metaFile)); err != nil {
		return writeError(err)
	}
	j.close()
	return nil
}

func (j *journal) close() {
	if j.file != nil {
		j.file.Close() // written by single calls: nothing to learn from the error
		j.file = nil
	}
}

// writeMeta makes a new record's metadata.
func writeMeta(dir string, m *meta) error {
	var j journal
	defer j.close()
	return j.write(dir, m)
}

// lastLine returns the last line that is a whole JSON object, and whether it is the last of all.
func lastLine(data []byte) (line []byte, last bool) {
	rest := bytes.TrimSuffix(data, []byte{'\n'})
	for last = true; len(rest) > 0; last = false {
		at := bytes.LastIndexByte(rest, '\n') + 1
		if json.Valid(rest[at:]) {
			return rest[at:], last
		}
		rest = rest[:max(0, at-1)]
	}
	return nil, false
}

func readMeta(dir string) (meta, error) {
	var m meta
	data, err := os.ReadFile(filepath.Join(dir, metaFile))
	if err != nil {
		return m, err
	}
	line, _ := lastLine(data)
	if err := json.Unmarshal(line, &m); err != nil {
		return m, err
	}
	if m.Version > metaVersion {
		return m, errdefs.New(errdefs.Invalid, "spool_newer", "the record in %s was written by a newer version", dir)
	}
	return m, nil
}
