package engine

import (
	"encoding/json"
	"os"
	"path/filepath"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"perdure.dev/perdure/internal/sandbox/shim"
)

// Paths inside the sandbox.
const (
	runDir    = "/run/perdure"
	guestPath = "/run/perdure/guest"
	linkDir   = "/run/perdure/link"
)

// spec makes the OCI description of the sandbox. It must differ between a checkpoint and its restore only where gVisor allows it:
// host name, root path, sources of bind mounts, namespaces' paths, limits.
func (e *Engine) spec() *specs.Spec {
	s := &specs.Spec{
		Version:  specs.Version,
		Hostname: e.cfg.Spec.Hostname,
		Root:     &specs.Root{Path: e.root.path},
		Process: &specs.Process{
			Args:         []string{guestPath, "--socket", linkDir + "/" + shim.GuestSocket, "--run-dir", runDir + "/guest.d", "--home", "/root"},
			Cwd:          "/",
			Env:          guestEnv(e.cfg),
			Capabilities: allCapabilities(),
		},
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc"},
			{Destination: "/sys", Type: "sysfs", Options: []string{"ro"}},
			{Destination: "/dev", Type: "dev"},
			{Destination: "/dev/pts", Type: "devpts"},
			{Destination: "/dev/shm", Type: "tmpfs", Options: []string{"mode=1777"}},
			{Destination: runDir, Type: "tmpfs", Options: []string{"mode=0755"}},
			{Destination: guestPath, Type: "bind", Source: e.cfg.Guest, Options: []string{"ro"}},
			{Destination: linkDir, Type: "bind", Source: filepath.Join(e.dir, shim.LinkDir)},
		},
		Linux: &specs.Linux{
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.PIDNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace}, {Type: specs.MountNamespace},
			},
		},
	}
	// Explicit, since gVisor puts a file system in memory on an empty /tmp. A link there would lead to the host's files.
	tmp := filepath.Join(e.root.path, "tmp")
	if info, err := os.Lstat(tmp); e.prepared || err == nil && info.IsDir() {
		s.Mounts = append(s.Mounts, specs.Mount{Destination: "/tmp", Type: "bind", Source: tmp})
	}
	if e.namespace != nil {
		s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.NetworkNamespace, Path: e.namespace.Path()})
	}
	if limited(e.cfg) {
		s.Linux.CgroupsPath = shim.CgroupName(e.cfg.Spec.ID)
		s.Linux.Resources = resources(e.cfg)
	}
	return s
}

// bundleDir holds the description, below the state directory.
const bundleDir = "bundle"

func writeBundle(dir string, spec *specs.Spec) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	b, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "config.json"), b, 0o600)
}

// allCapabilities are root's on a machine of its own: the kernel they apply to is gVisor's, not the host's.
func allCapabilities() *specs.LinuxCapabilities {
	all := []string{
		"CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH", "CAP_FOWNER", "CAP_FSETID", "CAP_IPC_LOCK",
		"CAP_KILL", "CAP_MKNOD", "CAP_NET_ADMIN", "CAP_NET_BIND_SERVICE", "CAP_NET_RAW", "CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP",
		"CAP_SETUID", "CAP_SYS_ADMIN", "CAP_SYS_CHROOT", "CAP_SYS_NICE", "CAP_SYS_PTRACE", "CAP_SYS_RESOURCE", "CAP_SYS_TIME",
		"CAP_SYS_TTY_CONFIG",
	}
	return &specs.LinuxCapabilities{Bounding: all, Effective: all, Permitted: all}
}

// guestEnv is the guest's own environment. Commands get theirs from the link.
func guestEnv(cfg shim.Config) []string {
	return append([]string{"PATH=" + defaultPath, "HOME=/root", "LANG=C.UTF-8", "TERM=xterm-256color"}, cfg.Spec.Env...)
}

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
