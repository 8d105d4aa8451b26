package link_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/guest/link"
	"perdure.dev/perdure/internal/sandbox"
)

func TestFiles(t *testing.T) {
	r := newRig(t)
	f, ctx := r.link.Files(), r.ctx()
	big := pattern(3<<20 + 17)
	path := filepath.Join(r.dir, "deep", "er", "file")
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(f.Write(ctx, path, 0o600, bytes.NewReader(big)))
	check(f.Write(ctx, path, 0, bytes.NewReader(big))) // keeps the mode
	info, err := f.Stat(ctx, path)
	if err != nil || info.Size != int64(len(big)) || info.Mode != 0o600 || info.Name != "file" {
		t.Errorf("%+v %v", info, err)
	}
	rd, size, err := f.Read(ctx, path, 1<<20, 1<<20+5)
	check(err)
	data, err := io.ReadAll(rd)
	if err != nil || size != int64(len(big)) || !bytes.Equal(data, big[1<<20:2<<20+5]) {
		t.Errorf("%d of %d bytes, %v", len(data), size, err)
	}
	check(f.Write(ctx, path+"0", 0, strings.NewReader("")))
	check(os.Symlink(path, path+"-link"))
	list, err := f.List(ctx, filepath.Dir(path))
	if err != nil || len(list) != 3 || list[0].Name != "file" || list[1].Target != path || list[2].Size != 0 {
		t.Errorf("%+v %v", list, err)
	}
	check(f.Mkdir(ctx, filepath.Join(r.dir, "a/b"), 0))
	check(os.Symlink("circle", filepath.Join(r.dir, "circle")))
	for _, c := range []struct {
		name, want string
		err        error
	}{
		{"read missing", "file_not_found", second(f.Read(ctx, "/no/such", 0, -1))},
		{"read a directory", "is_a_directory", second(f.Read(ctx, r.dir, 0, -1))},
		{"write a directory", "is_a_directory", f.Write(ctx, r.dir, 0, strings.NewReader("x"))},
		{"below a file", "not_a_directory", f.Write(ctx, path+"/x", 0, strings.NewReader("x"))},
		{"relative", "path_invalid", f.Mkdir(ctx, "x", 0)},
		{"a long name", "path_invalid", f.Write(ctx, filepath.Join(r.dir, strings.Repeat("n", 256)), 0, strings.NewReader("x"))},
		{"a circle", "path_invalid", second(f.Read(ctx, filepath.Join(r.dir, "circle"), 0, -1))},
		{"no memory there", "file_unusable", second(f.Read(ctx, "/proc/self/mem", 0, -1))},
		{"remove full", "directory_not_empty", f.Remove(ctx, filepath.Dir(path), false)},
		{"root", "file_denied", f.Remove(ctx, "/", true)},
		{"stat missing", "file_not_found", func() error { _, err := f.Stat(ctx, "/no"); return err }()},
	} {
		if errdefs.CodeOf(c.err) != c.want {
			t.Errorf("%s: %v, want %s", c.name, c.err, c.want)
		}
	}
	check(f.Remove(ctx, filepath.Dir(path), true))
	check(f.Remove(ctx, filepath.Dir(path), false)) // a missing file is no error
	left, err := filepath.Glob(filepath.Join(r.dir, "deep", "*", ".*perdure*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func second(_ io.ReadCloser, _ int64, err error) error { return err }

func TestWatch(t *testing.T) {
	r := newRig(t)
	dir := filepath.Join(r.dir, "watched")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(r.ctx())
	defer cancel()
	changes, err := r.link.Files().Watch(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	expect := func(path, op string) {
		t.Helper()
		for c := range changes {
			if c.Path == path && c.Op == op {
				return
			}
		}
		t.Fatalf("never: %s %s", op, path)
	}
	write := func(path string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(dir, "a"))
	expect(filepath.Join(dir, "a"), "create")
	write(filepath.Join(dir, "new", "dir", "b"))
	expect(filepath.Join(dir, "new", "dir", "b"), "create")
	r.link.Drop()
	expect(dir, sandbox.OpOverflow)
	r.run(process("true")) // the watch was asked for again before this
	if err := os.Remove(filepath.Join(dir, "a")); err != nil {
		t.Fatal(err)
	}
	expect(filepath.Join(dir, "a"), "remove")
	cancel()
	for range changes { // ends
	}
}

// C2, as far as it can be seen without a restore: the interpreter's generators are renewed.
func TestC2_RestoredReseeds(t *testing.T) {
	r := newRig(t)
	r.expect(python("import random, ssl; random.seed(1)"), 0, "")
	node := r.start(process("python3", "-c", "import sys; print('up', flush=True); sys.stdin.close(); import time; time.sleep(1000)"))
	r.eventually("a Python of somebody else", func() bool { return r.output(node, sandbox.Stdout) != "" })
	rep, err := r.link.Restored(r.ctx(), link.RestoreInfo{Entropy: bytes.Repeat([]byte{7}, 32)})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(rep.Reseeded, ";"); !strings.Contains(got, "kernel") || !strings.Contains(got, `python "main": random ssl`) {
		t.Errorf("%v", rep.Reseeded)
	}
	if len(rep.Interpreters) != 1 || !rep.Interpreters[0].Alive || rep.Interpreters[0].Kind != sandbox.ExecPython {
		t.Errorf("%+v", rep.Interpreters)
	}
	if len(rep.Unreseeded) != 1 || rep.Unreseeded[0].Exec != node || len(rep.Processes) != 2 || rep.ClockStep.Abs().Seconds() > 5 {
		t.Errorf("%+v", rep)
	}
	_, a, _ := r.run(python("random.random()"))
	if a == "0.13436424411240122\n" { // what follows seed(1)
		t.Error("the generator was not renewed")
	}
	if _, err := r.link.Restored(r.ctx(), link.RestoreInfo{Entropy: []byte{1}}); errdefs.CodeOf(err) != "entropy_short" {
		t.Errorf("%v", err)
	}
}

func TestPut(t *testing.T) {
	r := newRig(t)
	f, ctx := r.link.Files(), r.ctx()
	at := func(name string) string { return filepath.Join(r.dir, "tree", name) }
	var list []sandbox.NewFile
	want := map[string]string{}
	for i := range 1500 { // more than fit into one request, in number and in bytes
		name := fmt.Sprintf("d%d/f%d", i%7, i)
		want[name] = strings.Repeat(name, i%100)
		list = append(list, sandbox.NewFile{Path: at(name), Mode: 0o640, Data: []byte(want[name])})
	}
	want["large"] = string(pattern(1<<20 + 3))
	list = append(list,
		sandbox.NewFile{Path: at("large"), Mode: 0o755, Data: []byte(want["large"])},
		sandbox.NewFile{Path: at("empty dir"), Mode: fs.ModeDir | 0o700},
		sandbox.NewFile{Path: at("deep/link"), Mode: fs.ModeSymlink | 0o777, Target: "../d1/f1"},
	)
	for range 2 { // the second time everything is there
		if err := f.Put(ctx, list); err != nil {
			t.Fatal(err)
		}
		for name, text := range want {
			if data, err := os.ReadFile(at(name)); err != nil || string(data) != text {
				t.Fatalf("%s: %d bytes of %d, %v", name, len(data), len(text), err)
			}
		}
	}
	if info, err := os.Stat(at("d1/f1")); err != nil || info.Mode() != 0o640 {
		t.Errorf("%+v, %v", info, err)
	}
	if info, err := os.Stat(at("empty dir")); err != nil || info.Mode() != fs.ModeDir|0o700 {
		t.Errorf("%+v, %v", info, err)
	}
	if target, err := os.Readlink(at("deep/link")); err != nil || target != "../d1/f1" {
		t.Errorf("%q, %v", target, err)
	}
	if err := f.Put(ctx, []sandbox.NewFile{{Path: at("large"), Mode: fs.ModeSymlink, Target: "x"}}); err != nil {
		t.Errorf("a link in the place of a file: %v", err)
	}
	for _, c := range []struct {
		file sandbox.NewFile
		want string
	}{
		{sandbox.NewFile{Path: at("d1")}, "is_a_directory"},
		{sandbox.NewFile{Path: at("d1"), Mode: fs.ModeSymlink, Target: "x"}, "is_a_directory"},
		{sandbox.NewFile{Path: at("d1/f1/x")}, "not_a_directory"},
		{sandbox.NewFile{Path: "relative"}, "path_invalid"},
		{sandbox.NewFile{Path: at("pipe"), Mode: fs.ModeNamedPipe}, "file_special"},
	} {
		if err := f.Put(ctx, []sandbox.NewFile{c.file}); errdefs.CodeOf(err) != c.want {
			t.Errorf("%+v: %v, want %s", c.file, err, c.want)
		}
	}
	names, err := os.ReadDir(r.dir + "/tree")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if strings.HasPrefix(n.Name(), ".") {
			t.Errorf("%s is left", n.Name())
		}
	}
}
