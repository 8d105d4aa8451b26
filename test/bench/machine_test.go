package bench

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Machine describes where a run was made, without naming it.
type Machine struct {
	CPU      string `json:"cpu"`
	Cores    int    `json:"cores"`
	MemoryMB int64  `json:"memory_mb"`
	Kernel   string `json:"kernel"`
	KVM      bool   `json:"kvm"`
	FS       string `json:"file_system"` // of the data directory
	Go       string `json:"go"`
	Engine   string `json:"engine"` // version of the engine's module
	Load     string `json:"load"`   // average of one minute as the run began: others' work makes figures worse
}

func (m Machine) String() string {
	kvm := "no KVM"
	if m.KVM {
		kvm = "KVM"
	}
	return fmt.Sprintf("%s, %d cores, %d MB of RAM, Linux %s, %s, %s, %s, engine %s, load %s at the start.",
		m.CPU, m.Cores, m.MemoryMB, m.Kernel, kvm, m.FS, m.Go, m.Engine, m.Load)
}

func describe(b *testing.B) Machine {
	b.Helper()
	m := Machine{Cores: runtime.NumCPU(), Go: runtime.Version()}
	info, err := os.ReadFile("/proc/cpuinfo")
	must(b, err)
	if s := regexp.MustCompile(`(?m)^model name\s*:\s*(.*)$`).FindSubmatch(info); s != nil {
		m.CPU = string(s[1])
	}
	var si unix.Sysinfo_t
	must(b, unix.Sysinfo(&si))
	m.MemoryMB = int64(si.Totalram) * int64(si.Unit) >> 20
	var u unix.Utsname
	must(b, unix.Uname(&u))
	// The version proper: what follows may name who built it.
	m.Kernel = regexp.MustCompile(`^[0-9.]+`).FindString(unix.ByteSliceToString(u.Release[:]))
	_, err = os.Stat("/dev/kvm")
	m.KVM = err == nil
	var fs unix.Statfs_t
	must(b, unix.Statfs(baseDir(), &fs))
	names := map[int64]string{0xef53: "ext4", 0x58465342: "xfs", 0x9123683e: "btrfs", 0x01021994: "tmpfs", 0x794c7630: "overlayfs"}
	if m.FS = names[int64(fs.Type)]; m.FS == "" {
		m.FS = fmt.Sprintf("file system %#x", fs.Type)
	}
	out, err := exec.CommandContext(b.Context(), "go", "list", "-m", "-f", "{{.Version}}", engineModule).Output()
	must(b, err)
	m.Engine = strings.TrimSpace(string(out))
	load, err := os.ReadFile("/proc/loadavg")
	must(b, err)
	m.Load, _, _ = strings.Cut(string(load), " ")
	return m
}

// baseDir is where the data goes. Sockets lie deep below it, and their paths may have 107 bytes.
func baseDir() string {
	if dir := os.Getenv("PERDURE_BENCH_DIR"); dir != "" {
		return dir
	}
	if dir := os.TempDir(); len(dir) <= 24 {
		return dir
	}
	return "/tmp"
}
