package service_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"strconv"
	"strings"
	"testing"
	"time"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
)

// youngCertificate is valid from this second on, so that who lives in the past refuses it.
func youngCertificate(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "inside"}, DNSNames: []string{"localhost"},
		NotBefore: now.Truncate(time.Second), NotAfter: now.Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})) +
		string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}))
}

const handshake = `
import socket, ssl, threading
server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
server.load_cert_chain("/root/pem")
client = ssl.create_default_context(cafile="/root/pem")
l = socket.create_server(("127.0.0.1", 0))
def serve():
    with server.wrap_socket(l.accept()[0], server_side=True) as c:
        c.sendall(c.recv(5))
threading.Thread(target=serve, daemon=True).start()
with client.wrap_socket(socket.create_connection(l.getsockname()), server_hostname="localhost") as c:
    c.sendall(b"hello")
    print(c.recv(5).decode())
`

// TestC1_C3_TheFirstMomentAfterASleep lets a session sleep for some seconds. It wakes in the present: a certificate that is younger than its
// sleep is good, and a periodic timer neither makes up for what it missed nor stays away.
func TestC1_C3_TheFirstMomentAfterASleep(t *testing.T) {
	w := newWorld(t)
	w.create("a", "")
	w.sh("a", "python3 -c 'import ssl'")
	w.python("a", `
import signal
ticks = 0
def tick(*_):
    global ticks
    ticks += 1
    open("/root/ticks", "w").write(str(ticks))
signal.signal(signal.SIGALRM, tick)
signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)`)
	ticks := func() int {
		t.Helper()
		n, err := strconv.Atoi(w.sh("a", `until n=$(cat /root/ticks) && [ -n "$n" ]; do :; done; echo $n`)) // it may be being written
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	w.sh("a", "until [ -s /root/ticks ]; do sleep 0.05; done")
	looked := time.Now()
	at := ticks()
	if _, err := w.svc.SuspendSession(w.ctx(), "a"); err != nil {
		t.Fatal(err)
	}
	awake := time.Since(looked)
	time.Sleep(4 * time.Second) // the world goes on: what a clock that stands still would be behind by
	cert := youngCertificate(t)
	woke := time.Now()
	if _, err := w.svc.ResumeSession(w.ctx(), "a"); err != nil {
		t.Fatal(err)
	}
	w.want(w.sh("a", "cat > /root/pem <<'E'\n"+cert+"E\npython3 - <<'E'\n"+handshake+"E"), "hello")
	n := ticks()
	awake += time.Since(woke)
	if most := int(awake/(50*time.Millisecond)) + 10; n-at > most { // what it slept through would be 80 more
		t.Errorf("C3: %d ticks in %s awake", n-at, awake)
	}
	w.sh("a", `until n=$(cat /root/ticks) && [ "${n:-0}" -gt `+strconv.Itoa(n+5)+" ]; do sleep 0.05; done") // it goes on
}

// TestS8_S9_WhatExecStartedComesBack takes one command of each kind through a suspend and a rollback: a terminal, a command with input, a
// shell's background job that listens on a port. The session is the same one afterwards.
func TestS8_S9_WhatExecStartedComesBack(t *testing.T) {
	w := newWorld(t)
	before := w.create("a", "")
	w.start("a", api.StartExec{ID: "terminal", Argv: []string{"bash", "--norc"}, TTY: &api.TerminalSize{Rows: 24, Cols: 80}, Stdin: true})
	w.start("a", api.StartExec{ID: "input", Argv: []string{"cat"}, Stdin: true})
	w.start("a", api.StartExec{ID: "job", Kind: "shell", Code: "mkdir -p /root/www; echo page > /root/www/p; cd /root/www; python3 -m http.server 8000 --bind 127.0.0.1 > /dev/null 2>&1 &"})
	w.finish("a", "job")
	page := "python3 -c 'import urllib.request; print(urllib.request.urlopen(\"http://127.0.0.1:8000/p\").read().decode())'"
	w.sh("a", "until "+page+"; do sleep 0.05; done 2> /dev/null")
	sent := map[string]int64{}
	say := func(exec, text, want string) {
		t.Helper()
		if err := w.svc.WriteStdin(w.ctx(), "a", id.Exec(exec), sent[exec], []byte(text), false); err != nil {
			t.Fatalf("%s: %v", exec, err)
		}
		sent[exec] += int64(len(text))
		ctx, cancel := w.timed()
		defer cancel()
		for !strings.Contains(w.output("a", exec), want) {
			select {
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done():
				t.Fatalf("%s: %q is not in %q", exec, want, w.output("a", exec))
			}
		}
	}
	say("terminal", "x=4; echo $((x+1))five\n", "5five")
	say("input", "one\n", "one")
	c, err := w.svc.CreateCheckpoint(w.ctx(), "a", api.CreateCheckpoint{})
	if err != nil {
		t.Fatal(err)
	}
	taken := map[string]int64{"terminal": sent["terminal"], "input": sent["input"]}
	again := func(n string) {
		t.Helper()
		say("terminal", "echo $((x+2))six"+n+"\n", "6six"+n)
		say("input", "two"+n+"\n", "two"+n)
		w.want(w.sh("a", page), "page")
		if s := w.state("a", "running"); s.ID != before.ID || s.Name != before.Name {
			t.Errorf("it is %s (%s), was %s (%s)", s.ID, s.Name, before.ID, before.Name)
		}
	}
	if _, err := w.svc.SuspendSession(w.ctx(), "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.svc.ResumeSession(w.ctx(), "a"); err != nil {
		t.Fatal(err)
	}
	again("A")
	if _, err := w.svc.RollbackSession(w.ctx(), "a", api.RollbackSession{Checkpoint: c.ID}); err != nil {
		t.Fatal(err)
	}
	sent = taken
	again("B")
}

// TestI3_ReadingWakesNothing looks at a session that sleeps in every way there is.
func TestI3_ReadingWakesNothing(t *testing.T) {
	w := newWorld(t)
	w.create("a", "")
	w.sh("a", "echo said")
	x := w.start("a", api.StartExec{ID: "said", Argv: []string{"echo", "said"}})
	w.finish("a", x.ID)
	if _, err := w.svc.SuspendSession(w.ctx(), "a"); err != nil {
		t.Fatal(err)
	}
	ctx := w.ctx()
	for name, look := range map[string]func() error{
		"show":     func() error { _, err := w.svc.GetSession(ctx, "a"); return err },
		"events":   func() error { _, err := w.svc.ListEvents(ctx, "a", 0, 500); return err },
		"commands": func() error { _, err := w.svc.ListExecs(ctx, "a", api.Page{}); return err },
		"command":  func() error { _, err := w.svc.GetExec(ctx, "a", "said"); return err },
		"repeat": func() error {
			_, err := w.svc.StartExec(ctx, "a", api.StartExec{ID: "said", Argv: []string{"echo", "said"}})
			return err
		},
		"output":      func() error { w.want(w.output("a", "said"), "said\n"); return nil },
		"checkpoints": func() error { _, err := w.svc.ListCheckpoints(ctx, "a", api.Page{}); return err },
		"diff":        func() error { _, err := w.svc.Diff(ctx, "a", "a"); return err },
	} {
		if err := look(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		w.state("a", "suspended")
	}
	list, err := w.svc.ListEvents(ctx, "a", 0, 500)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list.Data {
		if e.Type == string(event.WorkspaceResumed) {
			t.Errorf("event %d: it woke", e.Seq)
		}
	}
}
