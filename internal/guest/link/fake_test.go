package link_test

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/guest/wire"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/sandbox"
)

// fakeGuest speaks the guest's side by hand, to be what a restored one is.
type fakeGuest struct {
	t   *testing.T
	nc  net.Conn
	buf []byte
}

func dialFake(r *rig, t *testing.T, hello wire.Hello) *fakeGuest {
	t.Helper()
	nc, err := net.Dial("unix", r.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	data, err := json.Marshal(hello)
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeGuest{t: t, nc: nc}
	f.send(wire.AppendFrame(nil, wire.TypeHello, data))
	return f
}

func (f *fakeGuest) send(frame []byte) {
	f.t.Helper()
	if _, err := f.nc.Write(frame); err != nil {
		f.t.Fatal(err)
	}
}

// expect reads until a frame of a type comes.
func (f *fakeGuest) expect(want wire.Type) []byte {
	f.t.Helper()
	f.nc.SetReadDeadline(time.Now().Add(10 * time.Second))
	for {
		got, p, err := wire.ReadFrame(f.nc, &f.buf)
		if err != nil {
			f.t.Fatalf("waiting for type %d: %v", want, err)
		}
		if got == want {
			return append([]byte(nil), p...)
		}
	}
}

func running(exec string, start, produced int64) wire.HelloExec {
	return wire.HelloExec{
		Spec: wire.ExecSpec{ID: exec, Kind: "process", Argv: []string{"x"}}, PID: 5, StartedAt: time.Now(),
		Stdout: wire.StreamState{Start: start, Produced: produced},
	}
}

func (f *fakeGuest) output(exec string, offset int64, data string) {
	f.send(wire.AppendOutput(nil, wire.Output{Mark: wire.Mark{Exec: exec, Stream: wire.Stdout, Offset: offset}, Data: []byte(data)}))
	f.expect(wire.TypeAck)
}

// A guest that comes back from an earlier time takes up its streams where it stands; what it does not know is lost.
func TestRestoredGuestIsRecognised(t *testing.T) {
	r := newRigWithoutGuest(t)
	f := dialFake(r, t, wire.Hello{Version: wire.Version, Execs: []wire.HelloExec{running("a", 0, 0), running("later", 0, 0)}})
	f.expect(wire.TypeWelcome)
	f.output("a", 0, "common|old old old")
	f.send(wire.AppendFrame(nil, wire.TypeExit, []byte(`{"Exec":"a","ExitCode":0}`)))
	f.expect(wire.TypeExitAck)
	if st := r.wait("a"); code(st) != 0 {
		t.Fatalf("%+v", st)
	}
	r.link.Drop()

	f = dialFake(r, t, wire.Hello{Version: wire.Version, Execs: []wire.HelloExec{running("a", 3, 7), running("unknown", 4, 4)}})
	f.expect(wire.TypeWelcome)
	f.output("a", 3, "mon|")
	f.output("a", 7, "new")
	st, err := r.link.Execs().Status(r.ctx(), "a")
	if err != nil || st.State != sandbox.ExecRunning || st.ExitCode != nil || r.output("a", sandbox.Stdout) != "common|new" {
		t.Errorf("%+v %v %q", st, err, r.output("a", sandbox.Stdout))
	}
	if old, err := os.ReadFile(filepath.Join(r.spool.Dir(), "a", "stdout.1")); err != nil || string(old) != "common|old old old" {
		t.Errorf("the older generation: %q %v", old, err)
	}
	if st := r.wait("later"); st.State != sandbox.ExecLost || !strings.Contains(st.Cause, "timeline") || st.ExitCode != nil {
		t.Errorf("%+v", st)
	}
	if rec, err := r.spool.Get("unknown"); err != nil || rec.Size(sandbox.Stdout) != 4 {
		t.Errorf("a gap: %v", err)
	}
}

// Whatever comes in the guest's name ends its connection at worst; the next one works.
func TestHostileGuest(t *testing.T) {
	r := newRigWithoutGuest(t)
	hello := wire.Hello{Version: wire.Version, Execs: []wire.HelloExec{running("e", 0, 0), running("../../etc", 0, 0)}}
	for name, frame := range map[string][]byte{
		"garbage":         []byte("GET / HTTP/1.1\r\n\r\n"),
		"a gap in output": wire.AppendOutput(nil, wire.Output{Mark: wire.Mark{Exec: "e", Stream: wire.Stdout, Offset: 99}, Data: []byte("x")}),
		"a request":       wire.AppendRequest(nil, wire.Request{ID: 1, Method: "x"}),
		"a bad exit":      wire.AppendFrame(nil, wire.TypeExit, []byte("{")),
		"a bad reply":     wire.AppendFrame(nil, wire.TypeReply, []byte("abc")),
	} {
		f := dialFake(r, t, hello)
		f.expect(wire.TypeWelcome)
		f.send(frame)
		f.nc.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, _, err := wire.ReadFrame(f.nc, &f.buf); err == nil {
			t.Errorf("%s: the connection goes on", name)
		}
	}
	f := dialFake(r, t, wire.Hello{Version: wire.Version + 1})
	var w wire.Welcome
	if err := json.Unmarshal(f.expect(wire.TypeWelcome), &w); err != nil || w.Refused == "" {
		t.Errorf("%+v %v", w, err)
	}
	r.startGuest(r.socket)
	r.expect(process("echo", "fine"), 0, "fine\n")
	if list := r.spool.List(); len(list) != 2 {
		t.Errorf("%+v", list)
	}
}

// A reply that is lost with its connection is asked for again; errors keep their code.
func TestRequestIsRepeated(t *testing.T) {
	r := newRigWithoutGuest(t)
	hello := wire.Hello{Version: wire.Version}
	dialFake(r, t, hello).expect(wire.TypeWelcome)
	spec := process("x")
	spec.ID = "e"
	result := make(chan error, 1)
	go func() {
		_, err := r.link.Execs().Start(r.ctx(), spec)
		result <- err
	}()
	var last uint64
	for range 3 { // the record is not lost although no hello knows it: its start is under way
		f := dialFake(r, t, hello)
		f.expect(wire.TypeWelcome)
		q, err := wire.ParseRequest(f.expect(wire.TypeRequest))
		if err != nil || q.Method != wire.MethodExecStart || last != 0 && q.ID != last {
			t.Fatalf("%+v %v", q, err)
		}
		last = q.ID
	}
	f := dialFake(r, t, hello)
	f.expect(wire.TypeWelcome)
	f.expect(wire.TypeRequest)
	f.send(wire.AppendReply(nil, wire.Reply{ID: last, Head: []byte(`{"Error":{"Kind":"not_found","Code":"command_not_found","Message":"no x"}}`)}))
	f.expect(wire.TypeForget)
	if err := <-result; errdefs.CodeOf(err) != "command_not_found" || errdefs.KindOf(err) != errdefs.NotFound {
		t.Errorf("%v", err)
	}
	if st := r.wait(id.Exec("e")); code(st) != 127 {
		t.Errorf("%+v", st)
	}
}
