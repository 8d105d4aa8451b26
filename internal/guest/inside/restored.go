package inside

import (
	"bufio"
	"crypto/rand"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/internal/guest/wire"
)

// reseedTime is how long the restored request waits for interpreters to renew their random state. One that is deep in
// native code does it when it comes back to its own.
const reseedTime = time.Second

// restored renews what must differ between copies of one image, and reports what survived.
func (g *Guest) restored(a wire.RestoredArgs) (any, error) {
	var res wire.RestoredResult
	problem := func(err error, what string) {
		if err != nil {
			res.Problems = append(res.Problems, fmt.Sprintf("%s: %v", what, err))
		}
	}
	if len(a.Entropy) < 32 {
		return nil, fail("invalid", "entropy_short", "%d bytes of entropy are fewer than 32", len(a.Entropy))
	}
	err := mix(a.Entropy)
	problem(err, "mixing entropy into the kernel")
	if err == nil {
		res.Reseeded = append(res.Reseeded, "kernel")
	}
	if a.Hostname != "" {
		problem(unix.Sethostname([]byte(a.Hostname)), "setting the host name")
	}
	if a.MachineID != "" {
		problem(writeMachineID(a.MachineID), "writing /etc/machine-id")
	}
	if !a.Now.IsZero() {
		res.Clock = time.Since(a.Now)
	}
	res.Hostname, err = os.Hostname()
	problem(err, "reading the host name")
	listed := make(chan struct{})
	go func() { // while interpreters wake up
		defer close(listed)
		res.Processes, res.Connections = g.processes(), outsideConnections()
	}()
	ours := g.reseedInterpreters(&res)
	<-listed
	for _, p := range res.Processes {
		if !slices.Contains(ours, p.PID) && keepsOwnRandomness(p) {
			res.Unreseeded = append(res.Unreseeded, p)
		}
	}
	return res, nil
}

// mix gives entropy to the kernel's generator.
func mix(entropy []byte) error {
	f, err := os.OpenFile("/dev/urandom", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	if _, err := f.Write(entropy); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

func writeMachineID(id string) error {
	if raw, err := hex.DecodeString(id); err != nil || len(raw) != 16 {
		return fmt.Errorf("%q is not 32 hex digits", id)
	}
	return os.WriteFile("/etc/machine-id", []byte(id+"\n"), 0o444)
}

// reseedInterpreters has every Python of ours renew its generators. Bash keeps the state of $RANDOM in its memory too, and gets a new
// seed with its next command; one that runs at the cut goes on with the old state. It returns the pids of our interpreters.
func (g *Guest) reseedInterpreters(res *wire.RestoredResult) []int {
	g.mu.Lock()
	interps := make([]*interp, 0, len(g.interps))
	for _, i := range g.interps {
		interps = append(interps, i)
	}
	g.mu.Unlock()
	slices.SortFunc(interps, func(a, b *interp) int { return strings.Compare(a.dir, b.dir) })
	var pids []int
	deadline := time.After(reseedTime)
	for _, i := range interps {
		info := i.interpreters()
		res.Interpreters = append(res.Interpreters, info)
		p := i.reseed()
		if p == nil {
			continue
		}
		pids = append(pids, p.pid)
		if i.kind != "python" {
			res.Reseeded = append(res.Reseeded, fmt.Sprintf("bash %q: $RANDOM, with its next command", i.name))
			continue
		}
		select { // an answer to an earlier request
		case <-p.reseeded:
		default:
		}
		unix.Kill(p.pid, unix.SIGUSR2)
		select {
		case what := <-p.reseeded:
			res.Reseeded = append(res.Reseeded, fmt.Sprintf("python %q: %s", i.name, what))
		case <-p.exited:
		case <-deadline:
			res.Problems = append(res.Problems, fmt.Sprintf("python %q is busy and renews its random state as soon as it can", i.name))
			deadline = time.After(0)
		}
	}
	return pids
}

// reseed returns the interpreter's process, or nil, and has bash seed $RANDOM before its next command.
func (i *interp) reseed() *interpProc {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.proc != nil && i.kind == "shell" {
		var seed [4]byte
		rand.Read(seed[:]) // never fails, by its documentation
		i.seed = strconv.FormatUint(uint64(binary.BigEndian.Uint32(seed[:])), 10)
	}
	return i.proc
}

// keepsOwnRandomness reports whether a program is known to draw from a generator in its own memory, which a copy shares.
func keepsOwnRandomness(p wire.Process) bool {
	name := p.Args[0]
	name = name[strings.LastIndexByte(name, '/')+1:]
	for _, known := range []string{"node", "nodejs", "deno", "bun", "python", "pypy", "ruby", "perl", "php", "openssl", "nginx", "postgres", "mysqld", "beam.smp"} {
		if strings.HasPrefix(name, known) {
			return true
		}
	}
	return usesOpenSSL(p.PID) || isGo(p.PID)
}

// isGo reports whether a process runs a program of Go's, whose math/rand draws from generators in the memory of its threads. The linker leaves a section of
// that name, see package debug/buildinfo.
func isGo(pid int) bool {
	f, err := elf.Open(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return false
	}
	defer f.Close()
	return f.Section(".go.buildinfo") != nil
}

// usesOpenSSL reports whether a process has OpenSSL's library, with its own generator, in its memory.
func usesOpenSSL(pid int) bool {
	f, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return false
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "/libcrypto.so") {
			return true
		}
	}
	return false
}

// outsideConnections lists established TCP connections that do not stay on the loopback (proc_net(5)).
func outsideConnections() []wire.Connection {
	var list []wire.Connection
	for _, path := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		data, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(data)) {
			f := strings.Fields(line)
			if len(f) < 4 || f[3] != "01" { // TCP_ESTABLISHED
				continue
			}
			local, ok1 := procAddr(f[1])
			remote, ok2 := procAddr(f[2])
			if ok1 && ok2 && !remote.Addr().IsLoopback() && !local.Addr().IsLoopback() {
				list = append(list, wire.Connection{Local: local.String(), Remote: remote.String()})
			}
		}
	}
	return list
}

// procAddr decodes ADDRESS:PORT of /proc/net/tcp, where the address is in words of the machine's (little-endian) order.
func procAddr(s string) (netip.AddrPort, bool) {
	host, port, ok := strings.Cut(s, ":")
	raw, err := hex.DecodeString(host)
	if !ok || err != nil || len(raw)%4 != 0 {
		return netip.AddrPort{}, false
	}
	for i := 0; i < len(raw); i += 4 {
		slices.Reverse(raw[i : i+4])
	}
	addr, ok := netip.AddrFromSlice(raw)
	var n uint16
	if _, err := fmt.Sscanf(port, "%X", &n); err != nil || !ok {
		return netip.AddrPort{}, false
	}
	return netip.AddrPortFrom(addr.Unmap(), n), true
}
