package service_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
)

// forward forwards a port of a session.
func (w *world) forward(ref string, guest uint16) api.Port {
	w.t.Helper()
	p, err := w.svc.ForwardPort(w.ctx(), ref, api.ForwardPort{Guest: guest})
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

// page is the answer of a server to one request on a connection of its own.
func (w *world) page(p api.Port) (string, error) {
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	r, err := c.Get("http://" + p.Address + "/page")
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	return strings.TrimSpace(string(b)), err
}

func (w *world) wantPage(p api.Port, want string) {
	w.t.Helper()
	got, err := w.page(p)
	if err != nil || got != want {
		w.t.Fatalf("it answers %q, %v; want %q", got, err, want)
	}
}

const serverInside = `mkdir -p /root/www; echo hello > /root/www/page; cd /root/www; exec python3 -m http.server 8000 --bind 127.0.0.1`

// TestN1_TheFirstRequestToASleepingPortIsAnswered asks a server inside in every state of its session: the first request is answered.
func TestN1_TheFirstRequestToASleepingPortIsAnswered(t *testing.T) {
	w := newWorld(t)
	w.create("a", "")
	p := w.forward("a", 8000)
	if again := w.forward("a", 8000); again != p {
		t.Errorf("forwarded twice: %+v, %+v", p, again)
	}
	if _, err := w.page(p); err == nil {
		t.Error("nobody listens, and it answers")
	}
	w.start("a", api.StartExec{ID: "server", Background: true, Argv: []string{"sh", "-c", serverInside}})
	w.sh("a", "until python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 8000))' 2> /dev/null; do sleep 0.05; done")
	w.wantPage(p, "hello")
	c, err := w.svc.CreateCheckpoint(w.ctx(), "a", api.CreateCheckpoint{})
	if err != nil {
		t.Fatal(err)
	}
	w.wantPage(p, "hello")
	for range 2 {
		if _, err := w.svc.PauseSession(w.ctx(), "a"); err != nil {
			t.Fatal(err)
		}
		w.wantPage(p, "hello")
		if _, err := w.svc.SuspendSession(w.ctx(), "a"); err != nil {
			t.Fatal(err)
		}
		w.wantPage(p, "hello")
		w.state("a", "running")
	}
	w.sh("a", "echo changed > /root/www/page")
	w.wantPage(p, "changed")
	// S9: a rollback keeps the address.
	if _, err := w.svc.RollbackSession(w.ctx(), "a", api.RollbackSession{Checkpoint: c.ID}); err != nil {
		t.Fatal(err)
	}
	w.wantPage(p, "hello")
	// So does a restart of the daemon, also while it sleeps.
	w.restart()
	w.wantPage(p, "hello")
	if _, err := w.svc.SuspendSession(w.ctx(), "a"); err != nil {
		t.Fatal(err)
	}
	w.restart()
	list, err := w.svc.ListPorts(w.ctx(), "a")
	if err != nil || len(list.Data) != 1 || list.Data[0].Local != p.Local {
		t.Fatalf("%+v, %v", list, err)
	}
	w.state("a", "suspended")
	w.wantPage(p, "hello")
	// A fork has none, and a session that is gone leaves the port free.
	f, err := w.svc.ForkSession(w.ctx(), "a", api.ForkSession{Count: 1, Name: "f"})
	if err != nil {
		t.Fatal(err)
	}
	if list, err := w.svc.ListPorts(w.ctx(), f.Data[0].ID); err != nil || len(list.Data) != 0 {
		t.Errorf("a fork has the ports %+v, %v", list, err)
	}
	cs, err := w.svc.ListCheckpoints(w.ctx(), "a", api.Page{}) // what is being stored while all goes is removed by the next start only
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cs.Data {
		w.durable("a", c.ID)
	}
	if err := w.svc.DeleteSession(w.ctx(), "a"); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", p.Address)
	if err != nil {
		t.Fatalf("the port is not free: %v", err)
	}
	l.Close()
}

// echoServer echoes what it gets, and says goodbye at its end.
const echoServer = `
import socket, threading
s = socket.create_server(("127.0.0.1", 7000), backlog=200)
def serve(c):
    with c:
        while True:
            d = c.recv(65536)
            if not d:
                break
            c.sendall(d)
        c.sendall(b"bye")
def loop():
    while True:
        threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
threading.Thread(target=loop, daemon=True).start()
print("up")`

// TestPortsCarryBytes looks at half-closed connections, many at once, one that nobody reads, and what becomes of those that are open when the
// session falls asleep.
func TestPortsCarryBytes(t *testing.T) {
	w := newWorld(t)
	w.create("a", "")
	w.want(w.python("a", echoServer), "up")
	p := w.forward("a", 7000)
	dial := func() *net.TCPConn {
		t.Helper()
		c, err := net.Dial("tcp", p.Address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		return c.(*net.TCPConn)
	}
	// One that is never read must hold up nothing.
	stuck := dial()
	go func() {
		block := bytes.Repeat([]byte("x"), 64<<10)
		for {
			if _, err := stuck.Write(block); err != nil {
				return
			}
		}
	}()
	var all sync.WaitGroup
	for i := range 20 {
		c := dial()
		all.Go(func() {
			data := bytes.Repeat(fmt.Appendf(nil, "%07d\n", i), 16<<10)
			go func() {
				c.Write(data)
				c.CloseWrite()
			}()
			got, err := io.ReadAll(c)
			if err != nil || !bytes.Equal(got, append(data, "bye"...)) {
				t.Errorf("connection %d: %d bytes, %v", i, len(got), err)
			}
		})
	}
	all.Wait()
	w.want(w.sh("a", "echo on"), "on")
	if busy := w.sources("a"); !strings.HasSuffix(busy, "port") {
		t.Errorf("it is kept awake by %q", busy)
	}
	// A suspend and a rollback end what is open, in time and on both sides.
	for _, end := range []func() error{
		func() error { _, err := w.svc.SuspendSession(w.ctx(), "a"); return err },
		func() error {
			c, err := w.svc.CreateCheckpoint(w.ctx(), "a", api.CreateCheckpoint{})
			if err == nil {
				_, err = w.svc.RollbackSession(w.ctx(), "a", api.RollbackSession{Checkpoint: c.ID})
			}
			return err
		},
	} {
		c := dial()
		in := bufio.NewReader(c)
		fmt.Fprintln(c, "before")
		if line, err := in.ReadString('\n'); line != "before\n" {
			t.Fatalf("%q, %v", line, err)
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
		if _, err := in.ReadByte(); err == nil || errors.Is(err, context.DeadlineExceeded) || isTimeout(err) {
			t.Errorf("an open connection goes on, or hangs: %v", err)
		}
		c = dial()
		fmt.Fprintln(c, "after")
		c.CloseWrite()
		if got, err := io.ReadAll(c); string(got) != "after\nbye" {
			t.Fatalf("after it: %q, %v", got, err)
		}
	}
	if err := w.svc.RemovePort(w.ctx(), "a", p.Local); err != nil {
		t.Fatal(err)
	}
	if c, err := net.Dial("tcp", p.Address); err == nil {
		c.Close()
		t.Error("a port that was removed is listened on")
	}
	if err := w.svc.RemovePort(w.ctx(), "a", p.Local); errdefs.CodeOf(err) != "port_not_found" {
		t.Errorf("removed twice: %v", err)
	}
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

// TestPortsOfOthers asks for a port that is taken, and for more connections than there may be.
func TestPortsOfOthers(t *testing.T) {
	w, clk := newIdleWorld(t)
	w.sleepy("a")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := uint16(l.Addr().(*net.TCPAddr).Port)
	if _, err := w.svc.ForwardPort(w.ctx(), "a", api.ForwardPort{Local: taken, Guest: 80}); errdefs.CodeOf(err) != "port_in_use" {
		t.Errorf("a port that is taken: %v", err)
	}
	inside, err := net.Listen("tcp", "127.0.0.1:0") // the process driver's loopback is the machine's
	if err != nil {
		t.Fatal(err)
	}
	defer inside.Close()
	var held []net.Conn
	go func() {
		for {
			c, err := inside.Accept()
			if err != nil {
				return
			}
			held = append(held, c)
		}
	}()
	p := w.forward("a", uint16(inside.Addr().(*net.TCPAddr).Port))
	// Access wakes: the process driver's workspace is paused, then asked by way of its port.
	w.fallAsleep(clk, "a", pauses, "paused")
	refused := 0
	for range 140 {
		c, err := net.Dial("tcp", p.Address)
		if err != nil {
			refused++
			continue
		}
		defer c.Close()
		if err := c.SetReadDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); !isTimeout(err) {
			refused++
		}
	}
	if refused < 12 || refused > 40 {
		t.Errorf("%d of 140 connections are refused", refused)
	}
	w.state("a", "running")
	w.want(w.sh("a", "echo on"), "on")
	// The restart of a daemon finds the address taken, says so, and takes it when it is free.
	w.close()
	squatter, err := net.Listen("tcp", p.Address)
	if err != nil {
		t.Fatal(err)
	}
	w.open()
	until := func(problem bool) {
		t.Helper()
		ctx, cancel := w.timed()
		defer cancel()
		for {
			list, err := w.svc.ListPorts(w.ctx(), "a")
			if err != nil {
				t.Fatal(err)
			}
			if (list.Data[0].Problem != "") == problem {
				return
			}
			select {
			case <-time.After(20 * time.Millisecond):
				clk.Forward(time.Second)
			case <-ctx.Done():
				t.Fatalf("%+v", list.Data[0])
			}
		}
	}
	until(true)
	squatter.Close()
	until(false)
	if n := w.count("a", event.SessionConfigured); n != 1 {
		t.Errorf("the log tells of %d changes of ports", n)
	}
}

// TestAnArchiveTakesNoPorts imports a session that has a forwarded port where it comes from.
func TestAnArchiveTakesNoPorts(t *testing.T) {
	w, _ := newIdleWorld(t)
	before := w.sleepy("a")
	p := w.forward("a", 8000)
	if _, err := w.svc.SuspendSession(w.ctx(), "a"); err != nil {
		t.Fatal(err)
	}
	w.imports(w.export("a", api.ExportSession{}), api.ImportSession{Name: "b"})
	w.restart()
	if list, err := w.svc.ListPorts(w.ctx(), "b"); err != nil || len(list.Data) != 0 {
		t.Errorf("it has the ports %+v, %v", list, err)
	}
	if list, err := w.svc.ListPorts(w.ctx(), "a"); err != nil || len(list.Data) != 1 || list.Data[0] != p {
		t.Errorf("the original has the ports %+v, %v", list, err)
	}
	if s := w.get("b"); s.Idle != before.Idle {
		t.Errorf("its policy is %+v, was %+v", s.Idle, before.Idle)
	}
}
