package oci_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"perdure.dev/perdure/internal/clock"
	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/image"
	"perdure.dev/perdure/internal/image/oci"
	"perdure.dev/perdure/internal/workspace"
)

// bench is a store and a registry.
type bench struct {
	t     *testing.T
	opts  oci.Options
	store *oci.Store
	host  string

	mu     sync.Mutex // guards the handler
	around func(http.Handler) http.Handler
	blobs  atomic.Int64 // requests for blobs
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, opts: oci.Options{Dirs: workspace.Dirs{Root: t.TempDir()}, Clock: clock.System{}}}
	if err := b.opts.Dirs.Make(); err != nil {
		t.Fatal(err)
	}
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
			b.blobs.Add(1)
		}
		b.mu.Lock()
		h := http.Handler(inner)
		if b.around != nil {
			h = b.around(inner)
		}
		b.mu.Unlock()
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	b.host = strings.TrimPrefix(server.URL, "http://")
	b.open()
	return b
}

func (b *bench) open() {
	b.t.Helper()
	var err error
	if b.store, err = oci.Open(b.opts); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) wrap(around func(http.Handler) http.Handler) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.around = around
}

func (b *bench) check(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// tarOf makes an archive: a name that ends with a slash is a directory, one with -> a link.
func tarOf(t testing.TB, names ...string) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, n := range names {
		h := &tar.Header{Name: n, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(n))}
		body := n
		if from, to, ok := strings.Cut(n, "->"); ok {
			h, body = &tar.Header{Name: from, Linkname: to, Typeflag: tar.TypeSymlink, Mode: 0o777}, ""
		} else if strings.HasSuffix(n, "/") {
			h, body = &tar.Header{Name: n, Typeflag: tar.TypeDir, Mode: 0o1777}, ""
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, body); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// build makes an image of archives.
func build(t testing.TB, config v1.Config, archives ...[]byte) v1.Image {
	t.Helper()
	img := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	for _, a := range archives {
		l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(a)), nil })
		if err != nil {
			t.Fatal(err)
		}
		if img, err = mutate.AppendLayers(img, l); err != nil {
			t.Fatal(err)
		}
	}
	c, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c = c.DeepCopy()
	c.Config, c.OS, c.Architecture = config, "linux", runtime.GOARCH
	if img, err = mutate.ConfigFile(img, c); err != nil {
		t.Fatal(err)
	}
	return img
}

func (b *bench) push(img v1.Image, ref string) string {
	b.t.Helper()
	at, err := name.ParseReference(b.host + "/" + ref)
	b.check(err)
	b.check(remote.Write(at, img))
	return b.host + "/" + ref
}

func (b *bench) pull(ref string) (image.Image, error) {
	b.t.Helper()
	return b.store.Pull(b.t.Context(), image.PullRequest{Reference: ref}, nil)
}

func (b *bench) mustPull(ref string) image.Image {
	b.t.Helper()
	img, err := b.pull(ref)
	b.check(err)
	return img
}

// layers lists what is stored of layers.
func (b *bench) layers() []string {
	b.t.Helper()
	var names []string
	entries, err := os.ReadDir(filepath.Join(b.opts.Dirs.Images(), "layers"))
	b.check(err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// clean says that nothing half done is left.
func (b *bench) clean() {
	b.t.Helper()
	for _, dir := range []string{filepath.Join(b.opts.Dirs.Images(), "tmp"), filepath.Join(b.opts.Dirs.Root, "trash")} {
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) > 0 {
			b.t.Errorf("%s holds %v, %v", dir, entries, err)
		}
	}
}

func digest(t *testing.T, img v1.Image) string {
	t.Helper()
	d, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d.String()
}

func (b *bench) file(pin, name string) string {
	b.t.Helper()
	root, err := b.store.Root(b.t.Context(), pin)
	b.check(err)
	for _, dir := range root.Layers {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
			return string(text)
		}
	}
	return ""
}

func TestPull(t *testing.T) {
	b := newBench(t)
	shared := tarOf(t, "shared")
	config := v1.Config{
		Env: []string{"A=1", "bad"}, User: "app", WorkingDir: "/work", Entrypoint: []string{"/run"}, Cmd: []string{"-v"},
		ExposedPorts: map[string]struct{}{"80/tcp": {}}, Labels: map[string]string{"k": "v"},
	}
	one := build(t, config, shared, tarOf(t, "one"))
	ref := b.push(one, "a/one:1")
	var last image.Progress
	img, err := b.store.Pull(t.Context(), image.PullRequest{Reference: ref}, func(p image.Progress) { last = p })
	b.check(err)
	if img.Digest != digest(t, one) || !slices.Equal(img.Names, []string{ref}) || len(img.Layers) != 2 || img.Source != "registry" || img.OS != "linux" {
		t.Errorf("pulled %+v", img)
	}
	if last.Layers != 2 || last.LayersDone != 2 || last.Bytes == 0 || last.Bytes != last.BytesDone {
		t.Errorf("progress %+v", last)
	}
	if c := img.Config; c.User != "app" || c.WorkingDir != "/work" || !slices.Equal(c.Env, []string{"A=1"}) || c.Entrypoint[0] != "/run" || c.Cmd[0] != "-v" || c.Ports[0] != "80/tcp" || c.Labels["k"] != "v" {
		t.Errorf("config %+v", c)
	}
	pin := image.Pin(ref, img.Digest)
	if b.file(pin, "one") != "one" || b.file(pin, "shared") != "shared" {
		t.Error("the files are not there")
	}

	// by digest, by part of it, by the configuration's
	for _, r := range []string{ref, "oci:" + ref, pin, img.Digest, img.Digest[:len("sha256:")+12], img.ConfigDigest, "elsewhere@" + img.Digest} {
		if got, err := b.store.Find(t.Context(), r); err != nil || got.Digest != img.Digest {
			t.Errorf("%s is %s, %v", r, got.Digest, err)
		}
	}
	for r, code := range map[string]string{"debian:12": "image_not_found", "sha256:" + strings.Repeat("0", 64): "image_not_found", "A": "image_reference_invalid"} {
		_, err := b.store.Find(t.Context(), r)
		if errdefs.CodeOf(err) != code || errdefs.HintOf(err) == "" {
			t.Errorf("%s: %v, hint %q", r, err, errdefs.HintOf(err))
		}
	}
	if _, err := b.store.Find(t.Context(), "debian:12"); errdefs.HintOf(err) != "perdure image pull debian:12" {
		t.Errorf("the hint is %q", errdefs.HintOf(err))
	}

	// a second image has only what is new sent
	before := b.blobs.Load()
	two := b.push(build(t, v1.Config{}, shared, tarOf(t, "two")), "a/two:1")
	got := b.mustPull(two)
	if n := b.blobs.Load() - before; n != 2 { // its configuration and its own layer
		t.Errorf("%d blobs were sent", n)
	}
	if len(b.layers()) != 3 {
		t.Errorf("layers %v", b.layers())
	}
	byDigest := b.mustPull(b.host + "/a/two@" + got.Digest)
	if byDigest.Digest != got.Digest {
		t.Errorf("by digest it is %s", byDigest.Digest)
	}
	b.clean()

	// all is there after a restart
	b.open()
	list, err := b.store.List(t.Context())
	if err != nil || len(list) != 2 || list[0].Digest != img.Digest || list[0].Config.User != "app" || b.file(pin, "one") != "one" {
		t.Errorf("after a restart: %+v, %v", list, err)
	}
}

func TestPullTakesThePlatformOfTheIndex(t *testing.T) {
	b := newBench(t)
	mine, other := build(t, v1.Config{}, tarOf(t, "mine")), build(t, v1.Config{}, tarOf(t, "other"))
	index := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: other, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "s390x"}}},
		mutate.IndexAddendum{Add: mine, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: runtime.GOARCH}}})
	at, err := name.ParseReference(b.host + "/multi:1")
	b.check(err)
	b.check(remote.WriteIndex(at, index))
	img := b.mustPull(b.host + "/multi:1")
	if img.Digest != digest(t, mine) {
		t.Errorf("pulled %s", img.Digest)
	}
	d, err := index.Digest()
	b.check(err)
	if got, err := b.store.Find(t.Context(), b.host+"/multi@"+d.String()); err != nil || got.Digest != img.Digest {
		t.Errorf("by the index's digest: %v, %v", got.Digest, err)
	}
	if _, err := b.store.Pull(t.Context(), image.PullRequest{Reference: b.host + "/multi:1", Platform: "linux/riscv64"}, nil); errdefs.CodeOf(err) != "image_platform_missing" {
		t.Errorf("another platform: %v", err)
	}
}

func TestPullRefusals(t *testing.T) {
	b := newBench(t)
	ref := b.push(build(t, v1.Config{}, tarOf(t, "f")), "secret:1")
	if _, err := b.pull(b.host + "/nothing:1"); errdefs.CodeOf(err) != "image_not_in_registry" {
		t.Errorf("a name that is not there: %v", err)
	}
	guard := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if user, pass, _ := r.BasicAuth(); user != "me" || pass != "pass" {
				w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
	b.wrap(guard)
	if _, err := b.pull(ref); errdefs.CodeOf(err) != "registry_denied" || errdefs.KindOf(err) != errdefs.Denied || !strings.Contains(errdefs.HintOf(err), "docker login") {
		t.Errorf("without a login: %v", err)
	}
	// the login is Docker's own
	home := t.TempDir()
	b.check(os.WriteFile(home+"/config.json", fmt.Appendf(nil, `{"auths":{%q:{"auth":"bWU6cGFzcw=="}}}`, b.host), 0o600))
	t.Setenv("DOCKER_CONFIG", home)
	b.opts.Keychain = authn.DefaultKeychain
	b.open()
	b.mustPull(ref)
	b.wrap(nil)

	if _, err := b.pull("sha256:" + strings.Repeat("0", 64)); errdefs.CodeOf(err) != "image_reference_invalid" {
		t.Errorf("a digest alone: %v", err)
	}
	if _, err := b.pull("127.0.0.1:1/x:1"); errdefs.CodeOf(err) != "registry_unreachable" {
		t.Errorf("nobody there: %v", err)
	}
	artifact := mutate.ConfigMediaType(build(t, v1.Config{}, tarOf(t, "f")), "application/vnd.example")
	if _, err := b.pull(b.push(artifact, "artifact:1")); errdefs.CodeOf(err) != "image_invalid" {
		t.Errorf("an artifact: %v", err)
	}
	hostile := build(t, v1.Config{}, tarOf(t, "ok"), tarOf(t, "out->/", "../../x"))
	if _, err := b.pull(b.push(hostile, "hostile:1")); errdefs.CodeOf(err) != "image_invalid" {
		t.Errorf("a hostile layer: %v", err)
	}
	b.clean()
}

// A registry without TLS is asked only where that is wanted, or where it is this machine's own.
func TestInsecureRegistry(t *testing.T) {
	b := newBench(t)
	b.push(build(t, v1.Config{}, tarOf(t, "f")), "a:1")
	plain := http.DefaultTransport.(*http.Transport).Clone()
	plain.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, b.host) // whatever the name
	}
	b.opts.Transport = plain
	b.open()
	const ref = "registry.example/a:1"
	if _, err := b.pull(ref); errdefs.CodeOf(err) != "registry_unreachable" || !strings.Contains(errdefs.HintOf(err), "--insecure") {
		t.Errorf("without TLS: %v, hint %q", err, errdefs.HintOf(err))
	}
	img, err := b.store.Pull(t.Context(), image.PullRequest{Reference: ref, Insecure: true}, nil)
	if err != nil || !slices.Equal(img.Names, []string{ref}) {
		t.Errorf("insecure: %+v, %v", img, err)
	}
}

// lie replaces what the registry says of some blob.
func lie(digest string, body func([]byte) []byte) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, digest) {
				next.ServeHTTP(w, r)
				return
			}
			rec := httptest.NewRecorder()
			next.ServeHTTP(rec, r)
			b := rec.Body.Bytes()
			w.Header().Set("Content-Length", fmt.Sprint(len(b)))
			w.Header().Set("Docker-Content-Digest", digest)
			w.WriteHeader(rec.Code)
			w.Write(body(bytes.Clone(b)))
		})
	}
}

func TestPullVerifies(t *testing.T) {
	b := newBench(t)
	img := build(t, v1.Config{}, tarOf(t, "first"), tarOf(t, "second"))
	ref := b.push(img, "a:1")
	layers, err := img.Layers()
	b.check(err)
	d, err := layers[1].Digest()
	b.check(err)
	b.wrap(lie(d.String(), func(blob []byte) []byte { blob[len(blob)-5] ^= 1; return blob }))
	if _, err := b.pull(ref); errdefs.CodeOf(err) != "image_corrupt" && errdefs.CodeOf(err) != "image_invalid" {
		t.Errorf("a flipped bit: %v", err)
	}
	// one whose archive is another than the configuration says
	b.wrap(nil)
	c, err := img.ConfigFile()
	b.check(err)
	c = c.DeepCopy()
	c.RootFS.DiffIDs[1] = v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("0", 64)}
	wrong, err := mutate.ConfigFile(img, c)
	b.check(err)
	if _, err := b.pull(b.push(wrong, "wrong:1")); errdefs.CodeOf(err) != "image_corrupt" {
		t.Errorf("another archive: %v", err)
	}
	if list, err := b.store.List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("images %v, %v", list, err)
	}
	b.clean()
	b.mustPull(ref)
}

// A pull that breaks leaves its whole layers for the next.
func TestInterruptedPull(t *testing.T) {
	b := newBench(t)
	img := build(t, v1.Config{}, tarOf(t, "first"), tarOf(t, "second"))
	ref := b.push(img, "a:1")
	layers, err := img.Layers()
	b.check(err)
	d, err := layers[1].Digest()
	b.check(err)
	var cuts atomic.Int64
	b.wrap(lie(d.String(), func(blob []byte) []byte { cuts.Add(1); return blob[:len(blob)/2] }))
	if _, err := b.pull(ref); errdefs.CodeOf(err) != "registry_unreachable" {
		t.Errorf("a broken transfer: %v", err)
	}
	if cuts.Load() != 3 {
		t.Errorf("%d attempts", cuts.Load())
	}
	b.clean()
	if len(b.layers()) != 1 {
		t.Fatalf("layers %v", b.layers())
	}
	b.finish(b.store.Sweep(t.Context(), free)) // not before a day has passed
	b.wrap(nil)
	before := b.blobs.Load()
	b.mustPull(ref)
	if n := b.blobs.Load() - before; n != 2 {
		t.Errorf("%d blobs were sent again", n)
	}
}

// The disk as it is at each point where a crash may tear something apart: what is half done goes, and what is there is whole.
func TestCrashes(t *testing.T) {
	b := newBench(t)
	ref := b.push(build(t, v1.Config{}, tarOf(t, "first"), tarOf(t, "second")), "a:1")
	disks := map[string]string{}
	var mu sync.Mutex // layers are made at the same time
	root := b.opts.Dirs.Root
	b.opts.Dirs.Step = func(point string) {
		mu.Lock()
		defer mu.Unlock()
		if disks[point] != "" {
			return
		}
		disks[point] = filepath.Join(t.TempDir(), "copy")
		if out, err := exec.CommandContext(t.Context(), "cp", "-a", root, disks[point]).CombinedOutput(); err != nil {
			t.Errorf("copy the disk: %v %s", err, out)
		}
	}
	b.open()
	b.mustPull(ref)
	b.finish(b.store.Remove(t.Context(), ref, func(image.Image) error { return nil }))
	b.opts.Dirs.Step = nil
	for _, point := range []string{"image.unpacked", "image.layer", "image.stored", "image.unnamed"} {
		t.Run(point, func(t *testing.T) {
			b.opts.Dirs.Root = disks[point]
			b.open()
			b.clean()
			list, err := b.store.List(t.Context())
			b.check(err)
			if there := point == "image.stored" || point == "image.unnamed"; there != (len(list) == 1) {
				t.Errorf("images %v", list)
			}
			for _, img := range list {
				b.finish(b.store.Remove(t.Context(), img.Digest, func(image.Image) error { return nil }))
			}
			img := b.mustPull(ref)
			if !slices.Equal(img.Names, []string{ref}) || b.file(ref, "second") != "second" {
				t.Errorf("pulled %+v", img)
			}
		})
	}
}

func TestPullsAreShared(t *testing.T) {
	b := newBench(t)
	ref := b.push(build(t, v1.Config{}, tarOf(t, "first"), tarOf(t, "second")), "a:1")
	gate := make(chan struct{})
	b.wrap(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.URL.Path, "/blobs/") {
				<-gate
			}
			next.ServeHTTP(w, r)
		})
	})
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for i := range 5 {
		wg.Go(func() {
			at := t.Context()
			if i == 0 {
				at = ctx
			}
			_, err := b.store.Pull(at, image.PullRequest{Reference: ref}, nil)
			if i > 0 && err != nil || i == 0 && !errors.Is(err, context.Canceled) {
				t.Errorf("puller %d: %v", i, err)
			}
		})
	}
	for b.blobs.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	cancel() // one who goes does not end it for the others
	time.AfterFunc(50*time.Millisecond, func() { close(gate) })
	wg.Wait()
	if n := b.blobs.Load(); n != 3 {
		t.Errorf("%d blobs were sent, want a configuration and two layers", n)
	}

	// the last who goes ends it
	other := b.push(build(t, v1.Config{}, tarOf(t, "third")), "b:1")
	b.wrap(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.URL.Path, "/blobs/") {
				<-r.Context().Done()
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := b.store.Pull(ctx, image.PullRequest{Reference: other}, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("canceled: %v", err)
	}
	b.clean()
}

func free(image.Image) error { return nil }

var errUsed = errdefs.New(errdefs.Conflict, "image_in_use", "used")

func TestRemove(t *testing.T) {
	b := newBench(t)
	shared := tarOf(t, "shared")
	one := b.push(build(t, v1.Config{}, shared, tarOf(t, "one")), "one:1")
	two := b.push(build(t, v1.Config{}, shared, tarOf(t, "two")), "two:1")
	first := b.mustPull(one)
	b.mustPull(two)
	used := func(image.Image) error { return errUsed }

	if _, err := b.store.Remove(t.Context(), one, used); !errors.Is(err, errUsed) {
		t.Errorf("in use: %v", err)
	}
	if _, err := b.store.Remove(t.Context(), "nothing:1", free); errdefs.CodeOf(err) != "image_not_found" {
		t.Errorf("not there: %v", err)
	}
	b.check(errFrom(b.store.Import(t.Context(), bytes.NewReader(tarOf(t, "x")), "x:1")))
	b.check(errFrom(b.store.Import(t.Context(), bytes.NewReader(tarOf(t, "x")), "x:2")))
	b.finish(b.store.Remove(t.Context(), "x:1", used)) // another name is left
	b.finish(b.store.Remove(t.Context(), "x:2", free))
	b.finish(b.store.Remove(t.Context(), one, free))
	if len(b.layers()) != 2 {
		t.Errorf("layers %v", b.layers())
	}
	if b.file(two, "shared") != "shared" {
		t.Error("a shared layer is gone")
	}
	if _, err := b.store.Root(t.Context(), image.Pin(one, first.Digest)); errdefs.CodeOf(err) != "image_not_found" {
		t.Errorf("it is still there: %v", err)
	}
	b.open()
	b.finish(b.store.Remove(t.Context(), two, free))
	if len(b.layers()) != 0 {
		t.Errorf("layers %v", b.layers())
	}
	b.clean()
}

// finish deletes what has been removed.
func (b *bench) finish(rest func() error, err error) {
	b.t.Helper()
	b.check(err)
	b.check(rest())
}

func errFrom(_ image.Image, err error) error { return err }

// later is a clock that is ahead.
type later struct{ clock.System }

func (later) Now() time.Time { return clock.System{}.Now().Add(25 * time.Hour) }

func TestSweep(t *testing.T) {
	b := newBench(t)
	ref := b.push(build(t, v1.Config{}, tarOf(t, "first"), tarOf(t, "out->/", "../x")), "a:1")
	if _, err := b.pull(ref); err == nil {
		t.Fatal("it was pulled")
	}
	kept := b.mustPull(b.push(build(t, v1.Config{}, tarOf(t, "kept")), "b:1"))
	b.finish(b.store.Sweep(t.Context(), free))
	before := len(b.layers())
	b.opts.Clock = later{}
	b.open()
	b.finish(b.store.Sweep(t.Context(), free))
	if got := b.layers(); len(got) != 1 || "sha256:"+got[0] != kept.Layers[0].DiffID {
		t.Errorf("layers %v, of %d", got, before)
	}
	b.clean()

	// what cannot be read may need anything
	b.check(os.WriteFile(filepath.Join(b.opts.Dirs.Images(), "images", strings.TrimPrefix(kept.Digest, "sha256:")+".json"), []byte("{"), 0o600))
	b.open()
	b.finish(b.store.Sweep(t.Context(), free))
	if len(b.layers()) != 1 {
		t.Error("a layer is gone that an unreadable image may have")
	}
}

func TestTagsMove(t *testing.T) {
	b := newBench(t)
	ref := b.push(build(t, v1.Config{}, tarOf(t, "old")), "a:1")
	old := b.mustPull(ref)
	b.push(build(t, v1.Config{}, tarOf(t, "new")), "a:1")
	next := b.mustPull(ref)
	if next.Digest == old.Digest {
		t.Fatal("the tag has not moved")
	}
	pin := image.Pin(ref, old.Digest)
	if b.file(pin, "old") != "old" || b.file(ref, "new") != "new" {
		t.Error("a pin follows its tag")
	}
	got, err := b.store.Find(t.Context(), pin)
	if err != nil || len(got.Names) != 0 {
		t.Errorf("the old one is %+v, %v", got, err)
	}

	// it stays while something needs it, and then goes, since nobody can name it
	b.finish(b.store.Sweep(t.Context(), func(image.Image) error { return errUsed }))
	if b.file(pin, "old") != "old" {
		t.Error("it went while it was needed")
	}
	nameless, err := b.store.Import(t.Context(), bytes.NewReader(tarOf(t, "nameless")), "")
	b.check(err)
	byDigest := b.push(build(t, v1.Config{}, tarOf(t, "by digest")), "a:2")
	b.check(errFrom(b.pull(byDigest)))
	last, err := b.store.Find(t.Context(), byDigest)
	b.check(err)
	b.finish(b.store.Remove(t.Context(), byDigest, free))
	b.check(errFrom(b.pull(b.host + "/a@" + last.Digest)))
	b.finish(b.store.Sweep(t.Context(), free))
	if _, err := b.store.Find(t.Context(), pin); errdefs.CodeOf(err) != "image_not_found" || !strings.Contains(errdefs.HintOf(err), "perdure image pull "+ref+"@"+old.Digest) {
		t.Errorf("the old one is there: %v, hint %q", err, errdefs.HintOf(err))
	}
	if b.file(nameless.Digest, "nameless") != "nameless" || b.file(last.Digest, "by digest") != "by digest" || b.file(ref, "new") != "new" {
		t.Error("more has gone than it should")
	}
	if got, err := b.store.Find(t.Context(), last.Digest); err != nil || !slices.Equal(got.Names, []string{b.host + "/a@" + last.Digest}) {
		t.Errorf("an image that was pulled by its digest is named %v, %v", got.Names, err)
	}
}

// A layer that says nothing of a directory leaves it as the layers below have it.
func TestUndescribedDirectories(t *testing.T) {
	b := newBench(t)
	img := build(t, v1.Config{}, tarOf(t, "tmp/", "tmp/keep", "etc/", "gone/", "sub/", "sub/dir/"), tarOf(t, "tmp/x", "new/y", ".wh.gone", "sub/dir/z"), tarOf(t, "gone/again", "etc/"))
	got := b.mustPull(b.push(img, "a:1"))
	root, err := b.store.Root(t.Context(), got.Digest)
	b.check(err)
	if len(root.Layers) != 4 || !strings.HasPrefix(filepath.Base(filepath.Dir(root.Layers[0])), "dirs-") {
		t.Fatalf("layers %v", root.Layers)
	}
	for dir, want := range map[string]os.FileMode{"tmp": os.ModeDir | os.ModeSticky | 0o777, "sub": os.ModeDir | os.ModeSticky | 0o777, "sub/dir": os.ModeDir | os.ModeSticky | 0o777} {
		if info, err := os.Stat(filepath.Join(root.Layers[0], dir)); err != nil || info.Mode() != want {
			t.Errorf("%s is %v, %v", dir, info, err)
		}
	}
	for _, dir := range []string{"new", "gone", "etc", "tmp/x"} {
		if _, err := os.Stat(filepath.Join(root.Layers[0], dir)); !os.IsNotExist(err) {
			t.Errorf("%s is there: %v", dir, err)
		}
	}
	b.finish(b.store.Remove(t.Context(), got.Digest, func(image.Image) error { return nil }))
	if len(b.layers()) != 0 {
		t.Errorf("layers %v", b.layers())
	}
}
