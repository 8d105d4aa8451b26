package layer

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"syscall"
)

// A program inside may take its own files' modes away: root there reads them all the same. A daemon that is root does, too. One that is
// a plain user owns the files and yet is refused, so it then does the job again in a process that is root in a user namespace of its
// own, where its owner's files obey it whatever their modes say.

// job is one call of this package, in a form that can be handed to another process.
type job struct {
	Do       string // see jobs
	Image    string
	Dirs, To []string
	Dst      string // must be empty; "": none
	Since    Index
	UID, GID uint32 // of who asks, where that matters
}

// result is what a job returns. Each kind sets its part.
type result struct {
	Index       Index
	Stats       Stats
	Bytes       int64
	Files       int64
	Hash        string
	Differences []Difference
	Refused     string // why a helper failed; "": it did not
}

var jobs = map[string]func(context.Context, job) (result, error){
	"delta": func(ctx context.Context, j job) (r result, err error) {
		r.Index, r.Stats, err = delta(ctx, j.Dirs[0], j.Dst, j.Since)
		return r, err
	},
	"scan": func(ctx context.Context, j job) (r result, err error) {
		r.Index, err = scan(ctx, j.Dirs[0])
		return r, err
	},
	"usage": func(ctx context.Context, j job) (r result, err error) {
		u, err := diskUsage(ctx, j.Dirs[0])
		r.Bytes, r.Files = u.Bytes, u.Files
		return r, err
	},
	"hash": func(ctx context.Context, j job) (r result, err error) {
		r.Hash, r.Bytes, err = hashTree(ctx, j.Dirs[0], j.UID, j.GID)
		return r, err
	},
	"pack": func(ctx context.Context, j job) (result, error) {
		return result{}, packFile(ctx, j.Dirs[0], j.To[0], j.UID, j.GID)
	},
	"merge": func(ctx context.Context, j job) (r result, err error) {
		r.Stats, err = combine(ctx, j.Dst, j.Dirs, true)
		return r, err
	},
	"flatten": func(ctx context.Context, j job) (r result, err error) {
		r.Stats, err = combine(ctx, j.Dst, j.Dirs, false)
		return r, err
	},
	"diff": func(ctx context.Context, j job) (r result, err error) {
		r.Differences, err = diff(ctx, j.Image, j.Dirs, j.To)
		return r, err
	},
}

// perform does a job, and does it again as root of a user namespace if a mode is in the way.
func perform(ctx context.Context, j job) (result, error) {
	r, err := jobs[j.Do](ctx, j)
	if !errors.Is(err, fs.ErrPermission) || os.Geteuid() == 0 || !helpful.Load() {
		return r, err
	}
	if j.Dst != "" {
		if eerr := empty(j.Dst); eerr != nil {
			return r, errors.Join(err, eerr)
		}
	}
	again, herr := help(ctx, j)
	if herr != nil {
		return r, fmt.Errorf("%w (and not as root of a user namespace: %w)", err, herr)
	}
	return again, nil
}

// empty removes what a job has written before it was refused. It is the owner's, and no directory in it has its mode yet.
func empty(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return err
}

// helperVariable is set for a helper, which is this program again.
const helperVariable = "PERDURE_LAYER_HELPER"

// helpful says that this program knows how to be a helper.
var helpful atomic.Bool

// Helper is called first of all by the main function of a program that works on layers. It reports whether this process is a helper, which
// has done what it was started for. A program that does not call it does without: what a mode refuses it is an error.
func Helper(ctx context.Context) bool {
	if os.Getenv(helperVariable) == "" {
		helpful.Store(true)
		return false
	}
	var j job
	var r result
	err := gob.NewDecoder(os.Stdin).Decode(&j)
	do := jobs[j.Do]
	if err == nil && do == nil {
		err = fmt.Errorf("there is no job %q", j.Do)
	}
	if err == nil {
		j.disown()
		r, err = do(ctx, j)
	}
	if err != nil {
		r = result{Refused: err.Error()}
	}
	if err := gob.NewEncoder(os.Stdout).Encode(r); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return true
}

// help has a job done by a helper.
func help(ctx context.Context, j job) (result, error) {
	runtime.LockOSThread() // the helper is to end with the thread that made it
	defer runtime.UnlockOSThread()
	var in, out, complaint bytes.Buffer
	if err := gob.NewEncoder(&in).Encode(j); err != nil {
		return result{}, err
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Env = []string{helperVariable + "=1"}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = &in, &out, &complaint
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return result{}, fmt.Errorf("%w %s", err, bytes.TrimSpace(complaint.Bytes()))
	}
	var r result
	if err := gob.NewDecoder(&out).Decode(&r); err != nil {
		return result{}, fmt.Errorf("read the helper's answer: %w", err)
	}
	if r.Refused != "" {
		return result{}, errors.New(r.Refused)
	}
	r.own(os.Geteuid(), os.Getegid())
	return r, nil
}

// own names owners as this process knows them: to a helper, what is ours is root's.
func (r *result) own(uid, gid int) {
	own := func(s *Stamp) {
		if s.UID == 0 {
			s.UID = uint32(uid)
		}
		if s.GID == 0 {
			s.GID = uint32(gid)
		}
	}
	for path, s := range r.Index.Stamps {
		own(&s)
		r.Index.Stamps[path] = s
	}
	for i := range r.Differences {
		own(&r.Differences[i].From)
		own(&r.Differences[i].To)
	}
}

// disown is own for a helper, before it compares with what it finds.
func (j *job) disown() {
	for path, s := range j.Since.Stamps {
		s.UID, s.GID = 0, 0
		j.Since.Stamps[path] = s
	}
}
