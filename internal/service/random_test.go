package service_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/sandbox/gvisor"
)

// The programs wait until /root/go is there, and then write what they draw, a line each: what it is, and its value.
const (
	drawPython = `
import os, random, secrets, ssl, time, uuid
random.random(); ssl.RAND_bytes(1)
open("/root/ready-python", "w").write(str(os.getpid()))
while not os.path.exists("/root/go"): time.sleep(0.02)
out = {"random": random.random(), "secrets": secrets.token_hex(16), "urandom": os.urandom(16).hex(), "uuid4": uuid.uuid4(), "OpenSSL": ssl.RAND_bytes(16).hex()}
open("/root/draw.tmp", "w").write("".join(f"{k}: {v}\n" for k, v in out.items())); os.rename("/root/draw.tmp", "/root/drawn-python")
`
	drawNode = `
const crypto = require("crypto"), fs = require("fs");
Math.random(); crypto.randomBytes(1); crypto.randomUUID();
fs.writeFileSync("/root/ready-node", String(process.pid));
const t = setInterval(() => {
  if (!fs.existsSync("/root/go")) return;
  clearInterval(t);
  fs.writeFileSync("/root/node.tmp", "Math.random: " + Math.random() + "\nrandomBytes: " + crypto.randomBytes(16).toString("hex") + "\nrandomUUID: " + crypto.randomUUID() + "\n");
  fs.renameSync("/root/node.tmp", "/root/drawn-node");
}, 20);
`
	drawGo = `package main

import (
	crand "crypto/rand"
	"fmt"
	"math/rand/v2"
	"os"
	"time"
)

func main() {
	rand.Uint64()
	var b [16]byte
	crand.Read(b[:])
	os.WriteFile("/root/ready-go", fmt.Append(nil, os.Getpid()), 0o600)
	for {
		if _, err := os.Stat("/root/go"); err == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	crand.Read(b[:])
	os.WriteFile("/root/go.tmp", fmt.Appendf(nil, "math/rand: %d\ncrypto/rand: %x\n", rand.Uint64(), b), 0o600)
	os.Rename("/root/go.tmp", "/root/drawn-go")
}
`
	// What a process draws that begins after the fork.
	drawNew = `
echo "getrandom: $(python3 -c 'import os; print(os.getrandom(16).hex())')"
echo "/dev/urandom: $(head -c 16 /dev/urandom | od -An -tx1 | tr -d ' ')"
if [ -e /proc/sys/kernel/random/uuid ]; then echo "kernel uuid: $(cat /proc/sys/kernel/random/uuid)"; fi
echo "python: $(python3 -c 'import random, secrets; print(random.random(), secrets.token_hex(8))')"
if type openssl > /dev/null; then echo "openssl: $(openssl rand -hex 16)"; fi
if type node > /dev/null; then echo "node: $(node -e 'console.log(Math.random(), require("crypto").randomUUID())')"; fi
if [ -e /proc/sys/kernel/random/boot_id ]; then echo "boot id: $(cat /proc/sys/kernel/random/boot_id)"; fi
echo "mktemp: $(mktemp -u)"
echo "machine id: $(cat /etc/machine-id)"
echo "hostname: $(hostname)"`
)

// TestForksDrawDifferentNumbers forks a session twice from one checkpoint, in which programs of several languages run that have drawn numbers already. What
// begins after the fork draws others in each. A program that draws the same in both, since its generator is in the memory that was copied, has to be
// named in the report of each fork.
func TestForksDrawDifferentNumbers(t *testing.T) {
	w := newWorld(t)
	w.create("a", gvisor.Name)
	programs := map[string][]string{"python": {"python3", "-c", drawPython}, "go": {"/root/program"}}
	if _, err := os.Stat("/usr/bin/node"); err == nil {
		programs["node"] = []string{"/usr/bin/node", "-e", drawNode}
	} else {
		t.Log("this machine has no Node: its generators are not looked at")
	}
	program, err := os.Open(buildGo(t, drawGo))
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	if err := w.svc.WriteFile(w.ctx(), "a", "/root/program", 0o755, program); err != nil {
		t.Fatal(err)
	}
	w.python("a", "import random, ssl; random.seed(1); ssl.RAND_bytes(1)")
	pids := map[string]string{}
	for name, argv := range programs {
		w.start("a", api.StartExec{ID: name, Background: true, Argv: argv})
		pids[name] = strings.TrimSpace(w.sh("a", "until [ -s /root/ready-"+name+" ]; do sleep 0.05; done; cat /root/ready-"+name))
	}
	forks, err := w.svc.ForkSession(w.ctx(), "a", api.ForkSession{Count: 2, Name: "f"})
	if err != nil {
		t.Fatal(err)
	}
	var drawn [2]map[string]string
	for i, f := range forks.Data {
		drawn[i] = map[string]string{}
		add := func(of, text string) {
			for line := range strings.Lines(text) {
				if name, value, ok := strings.Cut(strings.TrimSpace(line), ": "); ok {
					drawn[i][of+" "+name] = value
				}
			}
		}
		w.sh(f.ID, "touch /root/go")
		for name := range programs {
			add(name, w.sh(f.ID, "until [ -e /root/drawn-"+name+" ]; do sleep 0.05; done; cat /root/drawn-"+name))
		}
		add("new", w.sh(f.ID, drawNew))
		add("ours", "random: "+w.python(f.ID, "random.random()"))
		add("ours", "OpenSSL: "+w.python(f.ID, "ssl.RAND_bytes(16).hex()"))
	}
	for i, f := range forks.Data {
		if told := strings.Join(w.get(f.ID).ResumeReport.Reset, "\n"); !strings.Contains(told, "renewed: the host name is "+drawn[i]["new hostname"]+",") {
			t.Errorf("the report of %s does not name its host, %q: %s", f.Name, drawn[i]["new hostname"], told)
		}
	}
	for name, pid := range pids { // also where it does not show: a generator may be in a thread that has not drawn
		if r := w.get(forks.Data[0].ID).ResumeReport; !strings.Contains(strings.Join(r.Reset, "\n"), "of process "+pid+" ") {
			t.Errorf("the report does not name the program of %s: %q", name, r.Reset)
		}
	}
	if len(drawn[0]) < 15 || len(drawn[0]) != len(drawn[1]) {
		t.Fatalf("drawn: %q", drawn)
	}
	for what, value := range drawn[0] {
		same := value == drawn[1][what]
		t.Logf("%-22s %v", what, map[bool]string{true: "the same", false: "differs"}[same])
		if !same {
			continue
		}
		name, _, _ := strings.Cut(what, " ")
		told := "not renewed: the random state of process " + pids[name] + " "
		if what == "new boot id" {
			told = "not renewed: the boot id"
		} else if pids[name] == "" {
			t.Errorf("%s is %q in both forks", what, value)
			continue
		}
		for _, f := range forks.Data {
			if r := w.get(f.ID).ResumeReport; r == nil || !strings.Contains(strings.Join(r.Reset, "\n"), told) {
				t.Errorf("%s is the same in both forks, and the report of %s does not say %q: %+v", what, f.Name, told, r)
			}
		}
	}
}

// buildGo builds a program and returns its path.
func buildGo(t *testing.T, source string) string {
	t.Helper()
	dir := t.TempDir()
	file, out := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", out, file)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GO111MODULE=off")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatal(fmt.Errorf("%w: %s", err, text))
	}
	return out
}
