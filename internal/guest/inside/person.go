package inside

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// person is whom a command runs as.
type person struct {
	uid, gid          uint32
	groups            []uint32
	name, home, shell string
	same              bool // the guest's own
}

// mostAccounts bounds what is read of /etc/passwd and /etc/group, in bytes: the files are the workspace's.
const mostAccounts = 4 << 20

// accounts reads the lines of /etc/passwd or /etc/group, split into their fields.
func accounts(file string, fields int) [][]string {
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, mostAccounts))
	if err != nil {
		return nil
	}
	var out [][]string
	for line := range strings.Lines(string(text)) {
		if f := strings.Split(strings.TrimRight(line, "\r\n"), ":"); len(f) >= fields && f[0] != "" && f[0][0] != '#' {
			out = append(out, f)
		}
	}
	return out
}

func number(s string) (uint32, bool) {
	n, err := strconv.ParseUint(s, 10, 31)
	return uint32(n), err == nil
}

// person finds whom a command runs as: a name or a number, and perhaps a group after a colon, as images have it. "" means the workspace's
// user. Names are looked up each time: a workspace may make users.
func (g *Guest) person(spec string) (person, error) {
	if spec == "" {
		g.mu.Lock()
		spec = g.user
		g.mu.Unlock()
	}
	if spec == "" {
		return person{name: "root", home: g.cfg.Home, shell: "/bin/bash", same: true}, nil
	}
	return lookup(spec, accounts("/etc/passwd", 7), accounts("/etc/group", 4))
}

func lookup(spec string, users, groups [][]string) (person, error) {
	name, group, grouped := strings.Cut(spec, ":")
	p := person{home: "/", shell: "/bin/sh", name: name}
	uid, numeric := number(name)
	i := slices.IndexFunc(users, func(f []string) bool { return f[0] == name })
	if i < 0 && numeric {
		i = slices.IndexFunc(users, func(f []string) bool { n, ok := number(f[2]); return ok && n == uid })
	}
	switch {
	case i >= 0:
		f := users[i]
		var ok, okGroup bool
		p.uid, ok = number(f[2])
		p.gid, okGroup = number(f[3])
		if !ok || !okGroup {
			return p, fail("invalid", "user_invalid", "the line of %q in /etc/passwd has no numbers", name)
		}
		p.name = f[0]
		if strings.HasPrefix(f[5], "/") {
			p.home = f[5]
		}
		if f[6] != "" {
			p.shell = f[6]
		}
	case numeric:
		p.uid = uid
	default:
		e := fail("not_found", "user_not_found", "there is no user %q in the workspace", name)
		e.Hint = "look at /etc/passwd, or give a number"
		return p, e
	}
	if !grouped {
		for _, f := range groups {
			if n, ok := number(f[2]); ok && slices.Contains(strings.Split(f[3], ","), p.name) {
				p.groups = append(p.groups, n)
			}
		}
		return p, nil
	}
	gid, numeric := number(group)
	if j := slices.IndexFunc(groups, func(f []string) bool { return f[0] == group }); j >= 0 {
		if gid, numeric = number(groups[j][2]); !numeric {
			return p, fail("invalid", "user_invalid", "the line of %q in /etc/group has no number", group)
		}
	} else if !numeric {
		e := fail("not_found", "user_not_found", "there is no group %q in the workspace", group)
		e.Hint = "look at /etc/group, or give a number"
		return p, e
	}
	p.gid = gid
	return p, nil
}

// become has a process that is to be forked run as p.
func (p person) become(attr *syscall.SysProcAttr) {
	if !p.same {
		attr.Credential = &syscall.Credential{Uid: p.uid, Gid: p.gid, Groups: p.groups}
	}
}

// start is where p's commands start if nothing else is said.
func (g *Guest) start(p person) string {
	g.mu.Lock()
	dir := g.dir
	g.mu.Unlock()
	if dir == "" {
		dir = p.home
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return "/"
	}
	return dir
}

// owner is who owns the files that are made for the workspace: nobody but the guest unless it has a user of its own. A user that is not
// known owns nothing; commands say so.
func (g *Guest) owner() *person {
	p, err := g.person("")
	if err != nil || p.same {
		return nil
	}
	return &p
}

// own gives p a file that has been made for it.
func (p *person) own(path string) error {
	if p == nil {
		return nil
	}
	return os.Lchown(path, int(p.uid), int(p.gid))
}

// mkdirs makes a directory and its parents; p owns those that were not there.
func (p *person) mkdirs(dir string, mode fs.FileMode) error {
	if p == nil {
		return os.MkdirAll(dir, mode)
	}
	var missing []string
	for at := filepath.Clean(dir); ; at = filepath.Dir(at) {
		if _, err := os.Stat(at); !errors.Is(err, fs.ErrNotExist) || at == filepath.Dir(at) {
			break
		}
		missing = append(missing, at)
	}
	if err := os.MkdirAll(dir, mode); err != nil {
		return err
	}
	for _, made := range missing {
		if err := p.own(made); err != nil {
			return err
		}
	}
	return nil
}

// settleIn makes the directory where the workspace's commands start, as container runtimes do.
func (g *Guest) settleIn() {
	g.mu.Lock()
	dir := g.dir
	g.mu.Unlock()
	if dir == "" {
		return
	}
	if err := g.owner().mkdirs(dir, 0o755); err != nil {
		g.log.Warn("making the working directory", "dir", dir, "err", err)
	}
}
