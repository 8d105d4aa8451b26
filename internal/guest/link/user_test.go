package link_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/sandbox"
)

// newUserRig is a rig whose commands run as a user that /etc/passwd need not know, in a directory that is not there yet.
func newUserRig(t *testing.T) *rig {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root may become another user")
	}
	r := newRigWithoutGuest(t)
	if err := os.Chmod(r.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	r.link.Close()
	r.spool.Close()
	r.user, r.work = "4321:8765", filepath.Join(r.dir, "work", "here")
	r.socket += "u"
	r.reopen()
	r.startGuest(r.socket)
	return r
}

// Processes and interpreters run as the workspace's user, and start where its commands start.
func TestCommandsRunAsTheUser(t *testing.T) {
	r := newUserRig(t)
	id := "4321 8765 8765\n"
	r.expect(process("sh", "-c", "echo $(id -u) $(id -g) $(id -G); pwd; echo $HOME; echo ok > made; echo >/dev/stdout"), 0, id+r.work+"\n/\n\n")
	r.expect(shell("echo $(id -u) $(id -g) $(id -G); pwd; export KEPT=1; echo >/dev/stdout"), 0, id+r.work+"\n\n")
	r.expect(shell("cat made; exit 3"), 3, "ok\n")
	r.expect(shell("echo $KEPT; pwd"), 0, "1\n"+r.work+"\n") // the exports of the one that ended
	in := shell("read x; echo got $x")
	in.Stdin = true
	exec := r.start(in)
	if err := r.link.Execs().Stdin(r.ctx(), exec, 0, []byte("it\n"), true); err != nil {
		t.Fatal(err)
	}
	if st := r.wait(exec); code(st) != 0 || r.output(exec, sandbox.Stdout) != "got it\n" {
		t.Errorf("%+v", st)
	}
	r.expect(sandbox.ExecSpec{Kind: sandbox.ExecPython, Code: "import os; print(os.getuid(), os.getgid(), os.getcwd())"}, 0, "4321 8765 "+r.work+"\n")

	// another user for one command, and none that is not there
	root := process("id", "-u")
	root.User = "0"
	r.expect(root, 0, "0\n")
	root.ID, root.User = "e1", "no-such-user"
	if _, err := r.link.Execs().Start(r.ctx(), root); errdefs.CodeOf(err) != "user_not_found" {
		t.Errorf("a user that is not there: %v", err)
	}
	tty := process("sh", "-c", "echo ok > $(tty) && id -u")
	tty.TTY = &sandbox.TerminalSize{Rows: 24, Cols: 80}
	r.expect(tty, 0, "ok\r\n4321\r\n")
}

// What the runtime makes for the workspace is its user's, and what is replaced keeps its owner.
func TestFilesAreTheUsers(t *testing.T) {
	r := newUserRig(t)
	files := r.link.Files()
	owner := func(path string, want uint32) {
		t.Helper()
		info, err := os.Lstat(path)
		if err != nil {
			t.Error(err)
			return
		}
		if st := info.Sys().(*syscall.Stat_t); st.Uid != want || want != 0 && st.Gid != 8765 {
			t.Errorf("%s is of %d:%d", path, st.Uid, st.Gid)
		}
	}
	if err := files.Write(r.ctx(), "./a/b/f", 0o640, strings.NewReader("one")); err != nil {
		t.Fatal(err)
	}
	if err := files.Mkdir(r.ctx(), "./c/d", 0); err != nil {
		t.Fatal(err)
	}
	err := files.Put(r.ctx(), []sandbox.NewFile{
		{Path: r.work + "/p/f", Data: []byte("two")}, {Path: r.work + "/p/l", Mode: os.ModeSymlink, Target: "f"}, {Path: r.work + "/p/d", Mode: os.ModeDir},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "a", "a/b", "a/b/f", "c", "c/d", "p", "p/f", "p/l", "p/d"} {
		owner(filepath.Join(r.work, name), 4321)
	}
	theirs := filepath.Join(r.work, "theirs")
	if err := os.WriteFile(theirs, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := files.Write(r.ctx(), theirs, 0o644, bytes.NewReader([]byte("new"))); err != nil {
		t.Fatal(err)
	}
	owner(theirs, 0)
	if got, err := os.ReadFile(filepath.Join(r.work, "a/b/f")); err != nil || string(got) != "one" {
		t.Errorf("%q, %v", got, err)
	}
}
