package client_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/client"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/server/servertest"
)

func start(t *testing.T, c *client.Client, req api.StartExec) api.Exec {
	t.Helper()
	x, err := c.StartExec(t.Context(), "s", req)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func TestAttach(t *testing.T) {
	d := servertest.NewDaemon(t)
	c := connect(t, d)
	session(t, c, "s")
	x := start(t, c, api.StartExec{Argv: []string{"sh", "-c", "cat; echo err >&2; exit 9"}, Stdin: true})
	var out, errs bytes.Buffer
	st, err := c.Attach(t.Context(), "s", x.ID, client.AttachOptions{Stdin: strings.NewReader("some input"), Stdout: &out, Stderr: &errs})
	if err != nil || st.ExitCode == nil || *st.ExitCode != 9 || out.String() != "some input" || errs.String() != "err\n" {
		t.Errorf("Attach = %+v, %v; stdout %q, stderr %q", st, err, out.String(), errs.String())
	}
	// Again, after the end, from an offset.
	out.Reset()
	if _, err := c.Attach(t.Context(), "s", x.ID, client.AttachOptions{Stdout: &out, StdoutOffset: 5}); err != nil || out.String() != "input" {
		t.Errorf("second Attach = %v; stdout %q", err, out.String())
	}
	if _, err := c.Attach(t.Context(), "s", "nope", client.AttachOptions{}); errdefs.CodeOf(err) != "exec_not_found" {
		t.Errorf("unknown command: %v", err)
	}
}

func TestX6_OutputAndInputAcrossBrokenConnections(t *testing.T) {
	d := servertest.NewDaemon(t)
	session(t, connect(t, d), "s")
	rnd := rand.New(rand.NewPCG(3, 4))
	var mu sync.Mutex
	cuts := 0
	path := proxy(t, d.Socket, func() int64 {
		mu.Lock()
		defer mu.Unlock()
		cuts++
		return 1000 + rnd.Int64N(900_000)
	})
	c, err := client.New(client.Options{Socket: path})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	in := make([]byte, 6<<20)
	for i := range in {
		in[i] = byte(rnd.Uint32())
	}
	x := start(t, c, api.StartExec{Argv: []string{"cat"}, Stdin: true})
	var out bytes.Buffer
	lost := 0
	st, err := c.Attach(t.Context(), "s", x.ID, client.AttachOptions{Stdin: bytes.NewReader(in), Stdout: &out, Lost: func(error) { lost++ }})
	if err != nil || st.ExitCode == nil || *st.ExitCode != 0 {
		t.Fatalf("Attach = %+v, %v", st, err)
	}
	if !bytes.Equal(out.Bytes(), in) {
		t.Errorf("%d bytes came back of %d, or other ones", out.Len(), len(in))
	}
	if lost < 3 {
		t.Errorf("only %d connections broke: the test shows nothing", lost)
	}
}

func TestX6_LargeOutputIsCompleteAndInOrder(t *testing.T) {
	d := servertest.NewDaemon(t)
	c := connect(t, d)
	session(t, c, "s")
	x := start(t, c, api.StartExec{Argv: []string{"sh", "-c", "seq 1 4000000 | head -c 20000000"}})
	h := sha256.New()
	if _, err := c.Attach(t.Context(), "s", x.ID, client.AttachOptions{Stdout: h}); err != nil {
		t.Fatal(err)
	}
	want := sha256.New()
	r := c.Output(t.Context(), "s", x.ID, "stdout", 0, false)
	defer r.Close()
	n, err := io.Copy(want, r)
	if err != nil || n != 20_000_000 || !bytes.Equal(h.Sum(nil), want.Sum(nil)) {
		t.Errorf("read %d bytes, %v; sums %x and %x", n, err, h.Sum(nil), want.Sum(nil))
	}
}

func TestX4_LeavingEndsNothing(t *testing.T) {
	d := servertest.NewDaemon(t)
	c := connect(t, d)
	session(t, c, "s")
	x := start(t, c, api.StartExec{ID: "stay", Argv: []string{"sh", "-c", "echo up; read x; echo $x"}, Stdin: true})
	ctx, cancel := context.WithCancel(t.Context())
	_, err := c.Attach(ctx, "s", x.ID, client.AttachOptions{Stdout: writerFunc(func(p []byte) (int, error) { cancel(); return len(p), nil })})
	if errdefs.CodeOf(err) != "canceled" {
		t.Errorf("Attach = %v", err)
	}
	if n := d.Backend.Running(); n != 1 {
		t.Fatalf("%d commands run after the client left", n)
	}
	// Starting it again starts nothing; input goes on where it was.
	if again := start(t, c, api.StartExec{ID: "stay", Argv: []string{"false"}, Stdin: true}); again.State != api.ExecRunning {
		t.Errorf("again = %+v", again)
	}
	var out bytes.Buffer
	st, err := c.Attach(t.Context(), "s", x.ID, client.AttachOptions{Stdin: strings.NewReader("later\n"), Stdout: &out})
	if err != nil || *st.ExitCode != 0 || out.String() != "up\nlater\n" {
		t.Errorf("second Attach = %+v, %v, %q", st, err, out.String())
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestAttachTerminal(t *testing.T) {
	d := servertest.NewDaemon(t)
	c := connect(t, d)
	session(t, c, "s")
	x := start(t, c, api.StartExec{Argv: []string{"sh", "-c", "stty -echo; read x; until stty size | grep 33; do sleep 0.02; done; sleep 60"}, TTY: &api.TerminalSize{Rows: 10, Cols: 20}, Stdin: true})
	sizes, signals := make(chan api.TerminalSize, 1), make(chan string, 1)
	sizes <- api.TerminalSize{Rows: 33, Cols: 44}
	in, keys := io.Pipe()
	defer in.Close()
	var out bytes.Buffer
	go func() {
		if _, err := keys.Write([]byte("\r")); err != nil {
			t.Error(err)
		}
	}()
	st, err := c.Attach(t.Context(), "s", x.ID, client.AttachOptions{
		Stdin: in, Resize: sizes, Signals: signals,
		Stdout: writerFunc(func(p []byte) (int, error) {
			out.Write(p)
			if strings.Contains(out.String(), "33 44") {
				signals <- "kill"
			}
			return len(p), nil
		}),
	})
	if err != nil || st.Signal != "SIGKILL" || st.ExitCode != nil {
		t.Errorf("Attach = %+v, %v; output %q", st, err, out.String())
	}
}

func TestAWriterThatFailsEndsAttach(t *testing.T) {
	d := servertest.NewDaemon(t)
	c := connect(t, d)
	session(t, c, "s")
	x := start(t, c, api.StartExec{Argv: []string{"echo", "x"}})
	broken := fmt.Errorf("full")
	_, err := c.Attach(t.Context(), "s", x.ID, client.AttachOptions{Stdout: writerFunc(func([]byte) (int, error) { return 0, broken })})
	if err != broken {
		t.Errorf("Attach = %v, want %v", err, broken)
	}
}

func TestFiles(t *testing.T) {
	d := servertest.NewDaemon(t)
	c := connect(t, d)
	session(t, c, "s")
	if err := c.WriteFile(t.Context(), "s", "/root/a b+c%", 0o600, strings.NewReader("hello")); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(d.Backend.Root, "root/a b+c%")); string(data) != "hello" {
		t.Errorf("the file holds %q, %v", data, err)
	}
	r, err := c.ReadFile(t.Context(), "s", "/root/a b+c%", 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if data, err := io.ReadAll(r); string(data) != "el" {
		t.Errorf("ReadFile = %q, %v", data, err)
	}
	if _, err := c.ReadFile(t.Context(), "s", "/none", 0, -1); errdefs.CodeOf(err) != "file_not_found" {
		t.Errorf("missing file: %v", err)
	}
}
