package script

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/rogpeppe/go-internal/testscript"
)

// hub is a registry of images. It can be made to stop in the middle of a layer.
type hub struct {
	inner http.Handler

	mu      sync.Mutex    // guards all below
	stalled int           // how many transfers stand still
	flow    chan struct{} // closed: nothing stands still; nil: nothing is to
}

// largeBlob is where layers begin that stand still, in bytes.
const largeBlob = 1 << 20

func (h *hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	flow := h.flow
	h.mu.Unlock()
	if flow == nil || r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/blobs/") {
		h.inner.ServeHTTP(w, r)
		return
	}
	rec := httptest.NewRecorder()
	h.inner.ServeHTTP(rec, r)
	body := rec.Body.Bytes()
	w.Header().Set("Content-Length", fmt.Sprint(len(body)))
	w.WriteHeader(rec.Code)
	if len(body) >= largeBlob {
		w.Write(body[:len(body)/2])
		http.NewResponseController(w).Flush()
		body = body[len(body)/2:]
		h.mu.Lock()
		h.stalled++
		h.mu.Unlock()
		select {
		case <-flow:
		case <-r.Context().Done():
		}
	}
	w.Write(body)
}

// registryCommand begins a registry at $R; "stall" makes large layers stop half way, "stalled" waits until one does, "flow" lets all go on.
func registryCommand(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) == 0 {
		h := &hub{inner: registry.New(registry.Logger(log.New(io.Discard, "", 0)))}
		server := httptest.NewServer(h)
		ts.Defer(server.Close)
		ts.Setenv("R", strings.TrimPrefix(server.URL, "http://"))
		hubs.Store(ts.Getenv("R"), h)
		return
	}
	v, ok := hubs.Load(ts.Getenv("R"))
	if !ok {
		ts.Fatalf("there is no registry yet")
	}
	h := v.(*hub)
	switch args[0] {
	case "stall":
		h.mu.Lock()
		h.flow = make(chan struct{})
		h.mu.Unlock()
	case "stalled":
		ts.Check(eventually(30*time.Second, func() error {
			h.mu.Lock()
			defer h.mu.Unlock()
			if h.stalled == 0 {
				return fmt.Errorf("no transfer stands still")
			}
			h.stalled = 0
			return nil
		}))
	case "flow":
		h.mu.Lock()
		close(h.flow)
		h.flow = nil
		h.mu.Unlock()
	}
}

var hubs sync.Map // address: *hub; each script has its own

// push REF CONFIG DIR... puts an image into a registry: one layer for each directory, and a configuration in JSON.
func push(ts *testscript.TestScript, _ bool, args []string) {
	ref, err := name.ParseReference(arg(ts, args, 0))
	ts.Check(err)
	c := &v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH, RootFS: v1.RootFS{Type: "layers"}}
	ts.Check(json.Unmarshal([]byte(arg(ts, args, 1)), &c.Config))
	img, err := mutate.ConfigFile(empty.Image, c)
	ts.Check(err)
	for i, dir := range args[2:] {
		file := ts.MkAbs(fmt.Sprintf("%s.%d.tar", filepath.Base(dir), i))
		ts.Check(exec.Command("tar", "-C", ts.MkAbs(dir), "--numeric-owner", "-cf", file, ".").Run())
		l, err := tarball.LayerFromFile(file)
		ts.Check(err)
		img, err = mutate.AppendLayers(img, l)
		ts.Check(err)
	}
	ts.Check(remote.Write(ref, img))
}
