package link_test

import (
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/guest/wire"
)

// ended reports whether the host closes the connection.
func (f *fakeGuest) ended() bool {
	f.nc.SetReadDeadline(time.Now().Add(10 * time.Second))
	for {
		if _, _, err := wire.ReadFrame(f.nc, &f.buf); err != nil {
			return !os.IsTimeout(err)
		}
	}
}

func TestHostileHello(t *testing.T) {
	r := newRigWithoutGuest(t)
	many := make([]wire.HelloExec, 20_000)
	for name, execs := range map[string][]wire.HelloExec{
		"negative":  {running("a", -5, 3)},
		"backwards": {running("a", 9, 3)},
		"huge":      {running("a", 1<<62, 1<<62)},
		"many":      many,
	} {
		if !dialFake(r, t, wire.Hello{Version: wire.Version, Execs: execs}).ended() {
			t.Errorf("%s: the connection goes on", name)
		}
	}
	if list := r.spool.List(); len(list) != 0 {
		t.Errorf("%d commands were made up", len(list))
	}
}

func TestHostileTexts(t *testing.T) {
	r := newRigWithoutGuest(t)
	long := strings.Repeat("x", 1<<20)
	e := running("a", 0, 0)
	e.Spec.Label = long
	f := dialFake(r, t, wire.Hello{Version: wire.Version, Execs: []wire.HelloExec{e}})
	f.expect(wire.TypeWelcome)
	f.send(wire.AppendFrame(nil, wire.TypeExit, []byte(`{"Exec":"a","ExitCode":1,"Cause":"`+long+`"}`)))
	f.expect(wire.TypeExitAck)
	if st := r.wait("a"); len(st.Cause) > 5000 || len(st.Spec.Label) > 5000 || code(st) != 1 {
		t.Errorf("a cause of %d bytes, a label of %d", len(st.Cause), len(st.Spec.Label))
	}
}

// A guest that asks and never reads costs a bounded amount of memory.
func TestHostileGuestThatDoesNotRead(t *testing.T) {
	r := newRigWithoutGuest(t)
	f := dialFake(r, t, wire.Hello{Version: wire.Version})
	f.expect(wire.TypeWelcome)
	var pings []byte
	for range 10_000 {
		pings = wire.AppendFrame(pings, wire.TypePing)
	}
	f.nc.SetWriteDeadline(time.Now().Add(20 * time.Second))
	for {
		if _, err := f.nc.Write(pings); err != nil {
			if os.IsTimeout(err) {
				t.Error("it may go on for ever")
			}
			break
		}
	}
	dialFake(r, t, wire.Hello{Version: wire.Version}).expect(wire.TypeWelcome)
}

func TestHostileConnectionsThatSayNothing(t *testing.T) {
	r := newRigWithoutGuest(t)
	var silent []net.Conn
	for range 20 {
		nc, err := net.Dial("unix", r.socket)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		silent = append(silent, nc)
	}
	last := silent[len(silent)-1]
	last.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := last.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
		t.Errorf("the twentieth is kept: %v", err)
	}
	for _, nc := range silent {
		nc.Close()
	}
	r.startGuest(r.socket)
	r.expect(process("echo", "fine"), 0, "fine\n")
}

func TestHostileListingWithoutEnd(t *testing.T) {
	r := newRigWithoutGuest(t)
	f := dialFake(r, t, wire.Hello{Version: wire.Version})
	f.expect(wire.TypeWelcome)
	result := make(chan error, 1)
	go func() {
		_, err := r.link.Files().List(r.ctx(), "/d")
		result <- err
	}()
	for range 2 {
		q, err := wire.ParseRequest(f.expect(wire.TypeRequest))
		if err != nil {
			t.Fatal(err)
		}
		f.send(wire.AppendReply(nil, wire.Reply{ID: q.ID, Head: []byte(`{"Result":{"Entries":[{"Name":"same"}],"More":true}}`)}))
	}
	if err := <-result; errdefs.CodeOf(err) != "guest_reply" {
		t.Errorf("%v", err)
	}
}
