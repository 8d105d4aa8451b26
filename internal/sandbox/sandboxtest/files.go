package sandboxtest

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"perdure.dev/perdure/internal/errdefs"
)

func fileAccess(t *testing.T, b *bench) {
	s := b.start()
	home := b.ok(s, "echo $HOME")
	path := home + "/made/here.txt"
	big := strings.Repeat("0123456789", 300_000)
	if err := s.Files().Write(b.ctx(), path, 0o640, strings.NewReader(big)); err != nil {
		t.Fatal(err)
	}
	r, size, err := s.Files().Read(b.ctx(), path, 10, 20)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got, err := io.ReadAll(r); err != nil || string(got) != big[10:30] || size != int64(len(big)) {
		t.Errorf("read %q of %d bytes, %v", got, size, err)
	}
	info, err := s.Files().Stat(b.ctx(), path)
	if err != nil || info.Size != int64(len(big)) || info.Mode.Perm() != 0o640 {
		t.Errorf("stat: %+v, %v", info, err)
	}
	list, err := s.Files().List(b.ctx(), home+"/made")
	if err != nil || len(list) != 1 || list[0].Name != "here.txt" {
		t.Errorf("list: %+v, %v", list, err)
	}
	if err := s.Files().Remove(b.ctx(), home+"/made", true); err != nil {
		t.Error(err)
	}
	if _, err := s.Files().Stat(b.ctx(), path); errdefs.CodeOf(err) != "file_not_found" {
		t.Errorf("stat of a removed file: %v", err)
	}
}

// secrets looks for what of the host must not be seen.
func secrets(t *testing.T, b *bench) {
	b.need(b.caps.Isolation != "none", "Isolation")
	token := filepath.Join(b.dir, "secret")
	if err := os.WriteFile(token, []byte("hidden"), 0o644); err != nil {
		t.Fatal(err)
	}
	s := b.start()
	for _, path := range []string{token, b.dir, "/etc/shadow", "/etc/gshadow", "/etc/ssh", "/etc/sudoers", "/root/.ssh", "/root/.bashrc", "/etc/environment"} {
		if r := b.run(s, "test -e "+path); code(r.ExecStatus) != 1 {
			t.Errorf("%s shows inside", path)
		}
	}
	for dir, want := range map[string]string{"/home": "", "/root": "", "/mnt": "", "/srv": "", "/var/lib": "", "/tmp": ""} {
		if got := b.ok(s, "ls -A "+dir); got != want {
			t.Errorf("%s holds %q", dir, got)
		}
	}
	if r := b.run(s, "touch /usr/bin/x"); code(r.ExecStatus) == 0 {
		t.Error("the host's /usr can be written")
	}
	if got := b.ok(s, "stat -c %a /tmp"); got != "1777" {
		t.Errorf("/tmp has mode %s", got)
	}
	if got := b.ok(s, "ls /proc | grep -c '^[0-9]'"); len(got) > 1 {
		t.Errorf("%s processes show inside", got)
	}
	b.ok(s, "touch /tmp/kept; python3 -c 'import ssl, json, sqlite3'; git --version; perl -e 1; date; id; getent passwd root; getent hosts localhost")
	if _, err := os.Stat(filepath.Join(b.spec.Root.Upper, "tmp/kept")); err != nil {
		t.Errorf("/tmp is not on the upper directory: %v", err)
	}
}

func identity(t *testing.T, b *bench) {
	s := b.start()
	b.need(b.caps.Isolation != "none", "Isolation")
	if got := b.ok(s, "hostname; cat /etc/hostname"); got != "workshop\nworkshop" {
		t.Errorf("host name %q", got)
	}
	if got := b.ok(s, "cat /etc/machine-id"); len(got) != 32 {
		t.Errorf("machine id %q", got)
	}
	if got := b.ok(s, "printenv LANG"); got != "C.UTF-8" {
		t.Errorf("environment: LANG=%q", got)
	}
}

func directoryImage(t *testing.T, b *bench) {
	image := b.mkdir("image")
	if err := os.WriteFile(filepath.Join(image, "hello"), []byte("from the image"), 0o644); err != nil {
		t.Fatal(err)
	}
	if b.caps.Isolation != "none" {
		smallSystem(t, image)
	}
	b.spec.Root.Image = "dir:" + image
	s := b.start()
	path := "/hello"
	if b.caps.Isolation == "none" {
		path = filepath.Join(b.spec.Root.Upper, "hello")
	}
	r, _, err := s.Files().Read(b.ctx(), path, 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got, _ := io.ReadAll(r); string(got) != "from the image" {
		t.Errorf("got %q", got)
	}
	if b.caps.Isolation != "none" {
		exec := b.begin(s, execOf("/bin/cat", "/hello"))
		if res := b.wait(s, exec); res.out != "from the image" {
			t.Errorf("a command sees %q %q", res.out, res.err)
		}
	}
	if err := s.Files().Write(b.ctx(), path, 0, strings.NewReader("changed")); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(filepath.Join(image, "hello")); string(got) != "from the image" {
		t.Errorf("the image was changed to %q", got)
	}
}

func unknownImage(t *testing.T, b *bench) {
	for _, image := range []string{"nonsense", "dir:/no/such/directory", ""} {
		spec := b.next()
		spec.Root.Image = image
		if _, err := b.driver.Start(b.ctx(), spec); err == nil || errdefs.HintOf(err) == "" && errdefs.KindOf(err) != errdefs.Invalid {
			t.Errorf("image %q: %v", image, err)
		}
		noTrace(t, spec)
	}
}

// smallSystem puts enough into a directory to run cat: the program and its libraries, in a merged /usr.
func smallSystem(t testing.TB, image string) {
	t.Helper()
	libraries, err := command(t, "ldd", "/usr/bin/cat")
	if err != nil {
		t.Fatal(err)
	}
	needed := []string{"/usr/bin/cat"}
	for _, word := range strings.Fields(string(libraries)) {
		if strings.HasPrefix(word, "/lib") {
			needed = append(needed, "/usr"+word)
		}
	}
	for _, path := range needed {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(image, filepath.Dir(path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(image, path), data, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"bin", "lib", "lib64"} {
		if err := os.Symlink("usr/"+name, filepath.Join(image, name)); err != nil {
			t.Fatal(err)
		}
	}
}

// daemonEnv looks for the environment of the daemon, which holds its keys, in that of a command and in what commands can see.
func daemonEnv(t *testing.T, b *bench) {
	t.Setenv("SECRET_KEY", "hidden-in-the-daemon")
	s := b.start()
	if got := b.ok(s, "env"); strings.Contains(got, "SECRET_KEY") || !strings.Contains(got, "PATH=") {
		t.Errorf("the environment of a command:\n%s", got)
	}
	for _, pid := range b.state(s).PIDs {
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(env), "SECRET_KEY") {
			t.Errorf("process %d of the sandbox holds the key", pid)
		}
	}
}
