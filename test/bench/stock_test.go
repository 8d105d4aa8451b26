package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// engine is the stock command line, on a directory of its own.
type engine struct {
	b    *testing.B
	bin  string
	dir  string
	base string   // the lowest layer, the one that our daemon's sandboxes stand on
	args []string // the process of its containers; a restore insists on the same
	last int      // the number of the last container
}

// container is one container of the stock engine, on an overlay whose upper directory holds its files.
type container struct {
	e     *engine
	id    string
	dir   string
	upper string
}

// stock makes an engine whose containers run args, on the base which a daemon on data has made.
func (x *bench) stock(b *testing.B, data string, args ...string) *engine {
	b.Helper()
	bases, err := filepath.Glob(filepath.Join(data, "cache", "base-*"))
	must(b, err)
	if len(bases) != 1 {
		b.Fatalf("the daemon has made %d bases", len(bases))
	}
	e := &engine{b: b, bin: filepath.Join(x.bin, "runsc"), dir: data + "-stock", base: bases[0], args: args}
	must(b, os.MkdirAll(e.dir, 0o755))
	b.Cleanup(func() {
		// The engine keeps an empty network namespace for containers without a network.
		if err := unix.Unmount(filepath.Join(e.dir, "state", "null-netns"), unix.MNT_DETACH); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINVAL) {
			b.Error(err)
		}
	})
	return e
}

// command makes a call of the command line. Its settings are our engine's where they matter for speed; it has no network and no
// control group.
func (e *engine) command(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, e.bin, append([]string{
		"--root", filepath.Join(e.dir, "state"), "--overlay2=none", "--network=none", "--ignore-cgroups", "--file-access=exclusive",
	}, args...)...)
}

func (e *engine) call(args ...string) {
	e.b.Helper()
	if err := e.try(e.b.Context(), args...); err != nil {
		e.b.Fatal(err)
	}
}

// try runs a call with files for its output: a sandbox that stays would keep pipes open.
func (e *engine) try(ctx context.Context, args ...string) error {
	out, err := os.CreateTemp(e.dir, "out-")
	if err != nil {
		return err
	}
	defer os.Remove(out.Name())
	defer out.Close()
	cmd := e.command(ctx, args...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Run(); err != nil {
		text, rerr := os.ReadFile(out.Name())
		return fmt.Errorf("runsc %v: %w\n%s%v", args, err, bytes.TrimSpace(text), rerr)
	}
	return nil
}

// prepare mounts a root file system and writes a bundle. upper is "" for an empty one; otherwise it is used as it is.
func (e *engine) prepare(upper string) *container {
	e.b.Helper()
	e.last++
	c := &container{e: e, id: fmt.Sprint("c", e.last)}
	c.dir = filepath.Join(e.dir, c.id)
	root, work := filepath.Join(c.dir, "root"), filepath.Join(c.dir, "work")
	must(e.b, os.MkdirAll(root, 0o755))
	must(e.b, os.MkdirAll(work, 0o755))
	if c.upper = upper; upper == "" {
		c.upper = filepath.Join(c.dir, "upper")
		must(e.b, os.MkdirAll(c.upper, 0o755))
	}
	must(e.b, unix.Mount("overlay", root, "overlay", 0, "lowerdir="+e.base+",upperdir="+c.upper+",workdir="+work))
	must(e.b, unix.Mount("/usr", filepath.Join(root, "usr"), "", unix.MS_BIND, ""))
	spec := specs.Spec{
		Version: specs.Version, Hostname: "bench", Root: &specs.Root{Path: root},
		Process: &specs.Process{Args: e.args, Cwd: "/root", Env: []string{"PATH=/usr/bin:/bin", "HOME=/root"}},
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc"}, {Destination: "/dev", Type: "dev"}, {Destination: "/sys", Type: "sysfs", Options: []string{"ro"}},
			{Destination: "/tmp", Type: "bind", Source: filepath.Join(root, "tmp")},
		},
		Linux: &specs.Linux{Namespaces: []specs.LinuxNamespace{{Type: specs.PIDNamespace}, {Type: specs.MountNamespace}, {Type: specs.UTSNamespace}, {Type: specs.IPCNamespace}}},
	}
	text, err := json.Marshal(spec)
	must(e.b, err)
	must(e.b, os.WriteFile(filepath.Join(c.dir, "config.json"), text, 0o644))
	e.b.Cleanup(func() { c.cleanup() })
	return c
}

func (c *container) boot() { c.e.b.Helper(); c.e.call("run", "-detach", "-bundle", c.dir, c.id) }

// restore boots from a memory image. In the background means that pages follow while the program runs, as Perdure has it.
func (c *container) restore(image string, background bool) {
	c.e.b.Helper()
	args := []string{"restore", "-detach", "-bundle", c.dir, "-image-path", image}
	if background {
		args = append(args, "-background")
	}
	c.e.call(append(args, c.id)...)
}

func (c *container) answer() { c.e.b.Helper(); c.e.call("exec", c.id, "/bin/true") }

// checkpoint saves memory into a new directory and returns it.
func (c *container) checkpoint(leaveRunning bool) string {
	c.e.b.Helper()
	dir, err := os.MkdirTemp(c.e.dir, "image-")
	must(c.e.b, err)
	args := []string{"checkpoint", "-image-path", dir}
	if leaveRunning {
		args = append(args, "-leave-running")
	}
	c.e.call(append(args, c.id)...)
	return dir
}

// copyFiles copies the writable layer, as whoever has no layers must, and returns the copy.
func (c *container) copyFiles() string {
	c.e.b.Helper()
	c.e.last++
	to := filepath.Join(c.e.dir, fmt.Sprint("copy", c.e.last))
	out, err := exec.CommandContext(c.e.b.Context(), "cp", "-a", c.upper, to).CombinedOutput()
	if err != nil {
		c.e.b.Fatalf("cp: %v\n%s", err, out)
	}
	return to
}

func (c *container) delete() { c.e.b.Helper(); c.e.call("delete", "-force", c.id) }

// cleanup removes what is left of a container, if anything is.
func (c *container) cleanup() {
	ctx, b := testCleanup(c.e.b)
	if _, err := os.Stat(c.dir); err != nil {
		return
	}
	if err := c.e.try(ctx, "delete", "-force", c.id); err != nil {
		b.Error(err)
	}
	for _, m := range []string{"root/usr", "root"} {
		if err := unix.Unmount(filepath.Join(c.dir, m), unix.MNT_DETACH); err != nil {
			b.Errorf("unmount %s of %s: %v", m, c.id, err)
		}
	}
	if err := os.RemoveAll(c.dir); err != nil {
		b.Error(err)
	}
}

// testCleanup is a context for cleaning up: the benchmark's own is over by then.
func testCleanup(b *testing.B) (context.Context, *testing.B) {
	return context.WithoutCancel(b.Context()), b
}
