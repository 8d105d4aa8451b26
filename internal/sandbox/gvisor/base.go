package gvisor

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
)

// baseDirs are the directories of the image "host", with their modes.
var baseDirs = map[string]fs.FileMode{
	"boot": 0o755, "dev": 0o755, "etc": 0o755, "home": 0o755, "media": 0o755, "mnt": 0o755, "opt": 0o755, "proc": 0o555,
	"root": 0o700, "run": 0o755, "run/lock": 0o777 | fs.ModeSticky, "run/perdure": 0o755, "run/perdure/link": 0o755, "srv": 0o755,
	"sys": 0o555, "tmp": 0o777 | fs.ModeSticky, "usr": 0o755, "var": 0o755, "var/cache": 0o755, "var/lib": 0o755, "var/local": 0o755,
	"var/log": 0o755, "var/mail": 0o775, "var/opt": 0o755, "var/spool": 0o755, "var/tmp": 0o777 | fs.ModeSticky,
}

// mountDirs are the directories below a directory image: the places of the engine's mounts.
var mountDirs = map[string]fs.FileMode{
	"dev": 0o755, "etc": 0o755, "proc": 0o555, "run": 0o755, "run/perdure": 0o755, "run/perdure/link": 0o755, "sys": 0o555,
	"tmp": 0o777 | fs.ModeSticky,
}

// guestPlace is the file on which the guest binary is mounted.
const guestPlace = "run/perdure/guest"

// hostLinks are looked up on the host: on a merged-/usr system they are links into /usr, and copied as such.
var hostLinks = []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"}

// hostEtc are the files and directories of the host's /etc that programs in /usr need. Nothing else of /etc is shown, and of these
// only what everybody may read.
var hostEtc = []string{
	"alternatives", "bash.bashrc", "ca-certificates.conf", "debian_version", "fonts", "gai.conf", "host.conf", "inputrc", "java*",
	"ld.so.cache", "ld.so.conf", "ld.so.conf.d", "locale.alias", "locale.conf", "localtime", "login.defs", "lsb-release", "magic",
	"magic.mime", "mailcap", "mime.types", "networks", "nodejs", "os-release", "perl", "pki/ca-trust/extracted", "pki/tls/certs",
	"pki/tls/cert.pem", "profile", "profile.d", "protocols", "python3*", "R", "redhat-release", "rpc", "services", "shells",
	"ssl/certs", "ssl/openssl.cnf", "terminfo", "timezone", "vim", "xattr.conf",
}

const (
	resolvConf = "nameserver 10.0.2.2\noptions timeout:2 attempts:1\n"
	nsswitch   = "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\nprotocols: files\nservices: files\n" +
		"ethers: files\nrpc: files\n"
	passwd = "root:x:0:0:root:/root:/bin/bash\ndaemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\nbin:x:2:2:bin:/bin:/usr/sbin/nologin\n" +
		"sys:x:3:3:sys:/dev:/usr/sbin/nologin\nmail:x:8:8:mail:/var/mail:/usr/sbin/nologin\n" +
		"www-data:x:33:33:www-data:/var/www:/usr/sbin/nologin\n_apt:x:100:65534::/nonexistent:/usr/sbin/nologin\n" +
		"nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
	group = "root:x:0:\ndaemon:x:1:\nbin:x:2:\nsys:x:3:\nadm:x:4:\ntty:x:5:\ndisk:x:6:\nmail:x:8:\nsudo:x:27:\nwww-data:x:33:\n" +
		"shadow:x:42:\nutmp:x:43:\nstaff:x:50:\nusers:x:100:\nnogroup:x:65534:\n"
)

// ensureBase makes the base of the image "host" below cache, unless it is there, and returns its path.
func ensureBase(cache string) (string, error) {
	return ensureTree(cache, "base-", func(dir string) error {
		if err := makeDirs(dir, baseDirs); err != nil {
			return err
		}
		for _, name := range hostLinks {
			if err := copyHostLink(dir, name); err != nil {
				return err
			}
		}
		for _, pattern := range hostEtc {
			paths, err := filepath.Glob(filepath.Join("/etc", pattern))
			if err != nil {
				return err
			}
			for _, path := range paths {
				if err := copyPublic(path, filepath.Join(dir, path)); err != nil {
					return fmt.Errorf("copy %s: %w", path, err)
				}
			}
		}
		for link, target := range map[string]string{"var/run": "/run", "var/lock": "/run/lock", "etc/mtab": "/proc/self/mounts"} {
			if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
				return err
			}
		}
		return writeFiles(dir, map[string]string{
			guestPlace: "", "etc/resolv.conf": resolvConf, "etc/nsswitch.conf": nsswitch, "etc/passwd": passwd, "etc/group": group,
			"etc/hosts": "127.0.0.1\tlocalhost\n", "etc/hostname": "perdure\n", "etc/machine-id": "\n", "etc/fstab": "",
		})
	})
}

// ensureMounts makes the base of directory images.
func ensureMounts(cache string) (string, error) {
	return ensureTree(cache, "mounts-", func(dir string) error {
		if err := makeDirs(dir, mountDirs); err != nil {
			return err
		}
		return writeFiles(dir, map[string]string{guestPlace: "", "etc/resolv.conf": resolvConf})
	})
}

// ensureTree fills a new directory and gives it a name by its content. Two processes may do so at the same time. A tree that is there and
// has not the content of its name, since the machine went down before it was on the disk, is replaced: so nothing has to be synced.
func ensureTree(cache, prefix string, fill func(dir string) error) (string, error) {
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(cache, ".new-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	if err := os.Chmod(tmp, 0o755); err != nil {
		return "", err
	}
	if err := fill(tmp); err != nil {
		return "", err
	}
	sum, err := treeHash(tmp)
	if err != nil {
		return "", err
	}
	path := filepath.Join(cache, prefix+sum)
	if have, err := treeHash(path); err == nil && have == sum {
		return path, nil
	}
	damaged := tmp + ".damaged"
	defer os.RemoveAll(damaged)
	if err := os.Rename(path, damaged); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if err := os.Rename(tmp, path); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return path, nil
}

func makeDirs(root string, dirs map[string]fs.FileMode) error {
	names := make([]string, 0, len(dirs))
	for name := range dirs {
		names = append(names, name)
	}
	sort.Strings(names) // parents first
	for _, name := range names {
		path := filepath.Join(root, name)
		if err := os.Mkdir(path, 0o755); err != nil {
			return err
		}
		if err := os.Chmod(path, dirs[name]); err != nil { // Mkdir's mode is cut by the umask
			return err
		}
	}
	return nil
}

func writeFiles(root string, files map[string]string) error {
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// copyHostLink shows /NAME of the host as it is: a link into /usr. On a system without merged /usr the directory itself would be
// needed, which the image "host" does not give.
func copyHostLink(root, name string) error {
	target, err := os.Readlink("/" + name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("/%s is no link into /usr: the image \"host\" needs a system with merged /usr", name)
	}
	return os.Symlink(target, filepath.Join(root, name))
}

// copyPublic copies a file or tree, links as links, leaving out whatever not everybody may read.
func copyPublic(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return nil // gone meanwhile
		}
		target := to + strings.TrimPrefix(path, from)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		public := info.Mode().Perm()&0o004 != 0
		switch {
		case d.Type() == fs.ModeSymlink:
			link, err := os.Readlink(path)
			if err != nil {
				return nil
			}
			return os.Symlink(link, target)
		case d.IsDir() && !public:
			return fs.SkipDir
		case d.IsDir():
			return os.MkdirAll(target, 0o755)
		case d.Type().IsRegular() && public:
			return copyFile(path, target, info.Mode().Perm()&0o755)
		}
		return nil
	})
}

func copyFile(from, to string, mode fs.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	defer out.Close()
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	return out.Close()
}

// hashLength is how many hex digits of a SHA-256 name a file or tree in the cache.
const hashLength = 16

// treeHash hashes names, modes, link targets and contents.
func treeHash(root string) (string, error) {
	h := sha256.New()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(h, "%q %o ", strings.TrimPrefix(path, root), info.Mode())
		switch {
		case d.Type() == fs.ModeSymlink:
			link, err := os.Readlink(path)
			fmt.Fprintf(h, "%q", link)
			return err
		case d.Type().IsRegular():
			return hashFile(h, path)
		}
		return nil
	})
	return hex.EncodeToString(h.Sum(nil))[:hashLength], err
}

func hashFile(h io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(h, f)
	return err
}
