package service_test

import (
	"archive/tar"
	"bytes"
	"fmt"
	"strings"
	"testing"

	"perdure.dev/perdure/api"
)

// An archive arrives whole, small and large files alike, and leaves nothing in the log: links are files, not commands.
func TestUnpack(t *testing.T) {
	for _, driver := range []string{"process", "gvisor"} {
		t.Run(driver, func(t *testing.T) {
			w := newWorld(t)
			w.create("s", driver)
			before := w.head("s")
			var buf bytes.Buffer
			tw := tar.NewWriter(&buf)
			put := func(h tar.Header, body string) {
				h.Size = int64(len(body))
				if err := tw.WriteHeader(&h); err != nil {
					t.Fatal(err)
				}
				if _, err := tw.Write([]byte(body)); err != nil {
					t.Fatal(err)
				}
			}
			put(tar.Header{Name: "tree/", Typeflag: tar.TypeDir, Mode: 0o750}, "")
			put(tar.Header{Name: "tree/link", Typeflag: tar.TypeSymlink, Linkname: "f1"}, "")
			for i := range 600 {
				put(tar.Header{Name: fmt.Sprintf("tree/f%d", i), Typeflag: tar.TypeReg, Mode: 0o644}, strings.Repeat("x", i))
			}
			put(tar.Header{Name: "tree/large", Typeflag: tar.TypeReg, Mode: 0o755}, strings.Repeat("large", 200_000))
			put(tar.Header{Name: "tree/last", Typeflag: tar.TypeReg, Mode: 0o600}, "last")
			if err := tw.Close(); err != nil {
				t.Fatal(err)
			}
			if err := w.svc.Unpack(w.ctx(), "s", "~", &buf); err != nil {
				t.Fatal(err)
			}
			if after := w.head("s"); after != before {
				t.Errorf("the log went from %d to %d", before, after)
			}
			w.want(w.sh("s", "cd ~/tree; ls | wc -l; cat f* | wc -c; wc -c <large; cat last; stat -c ' %a' . large last; readlink link"),
				"603\n179700\n1000000\nlast 750\n 755\n 600\nf1")
		})
	}
}

func (w *world) head(ref string) uint64 {
	w.t.Helper()
	list, err := w.svc.ListEvents(w.ctx(), ref, 0, 1000)
	if err != nil {
		w.t.Fatal(err)
	}
	var last api.Event
	for _, last = range list.Data {
	}
	return last.Seq
}
