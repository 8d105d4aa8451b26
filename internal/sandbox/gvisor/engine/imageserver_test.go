package engine

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/state/checkpointfiles"
	"gvisor.dev/gvisor/pkg/sentry/state/stateio"
	"gvisor.dev/gvisor/pkg/sentry/state/stateipc"
	"gvisor.dev/gvisor/pkg/unet"
	"gvisor.dev/gvisor/pkg/urpc"
)

const page = 4096

// served is the sandbox's end of an image server for a directory whose pages file holds content.
func served(t *testing.T, content []byte) *stateipc.AsyncFileClient {
	t.Helper()
	dir := t.TempDir()
	for name, b := range map[string][]byte{checkpointfiles.PagesFileName: content, "host-files.json": []byte("{}")} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	end, err := serveImage(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer end.Close()
	fd, err := unix.Dup(int(end.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	socket, err := unet.NewSocket(fd)
	if err != nil {
		t.Fatal(err)
	}
	client, err := stateipc.NewAsyncFileClient(urpc.NewClient(socket))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.DecRef)
	return client
}

// memory makes a memory file of pages.
func memory(t *testing.T, pages int) (int32, []byte) {
	t.Helper()
	fd, m, err := stateio.CreateMappedMemoryFD("test", pages*page)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(unix.Close(int(fd)), unix.Munmap(m)); err != nil {
			t.Error(err)
		}
	})
	return fd, m
}

func random(size int) []byte {
	b := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b) // never fails
	return b
}

func frame(first, count int) memmap.FileRange {
	return memmap.FileRange{Start: uint64(first * page), End: uint64((first + count) * page)}
}

// TestPagesComeToTheirPlaces reads more than may be under way at once, in parts that lie scattered, through the whole protocol.
func TestPagesComeToTheirPlaces(t *testing.T) {
	const reads, each = 20, 5 // pages
	content := random(reads * each * page)
	r, err := served(t, content).OpenRead(checkpointfiles.PagesFileName)
	if err != nil {
		t.Fatal(err)
	}
	fd, m := memory(t, 2*reads*each)
	to, err := r.RegisterDestinationFD(fd, uint64(len(m)), nil)
	if err != nil {
		t.Fatal(err)
	}
	free := make([]int, r.MaxParallel())
	for i := range free {
		free[i] = i
	}
	var cs []stateio.Completion
	for i, left := 0, reads; left > 0; {
		for ; len(free) > 0 && i < reads; i++ { // two pages, one left out, three pages
			r.AddReadv(free[0], int64(i*each*page), each*page, to, []memmap.FileRange{frame(2*i*each, 2), frame(2*i*each+3, 3)}, make([]unix.Iovec, 2))
			free = free[1:]
		}
		if cs, err = r.Wait(cs[:0], 1); err != nil {
			t.Fatal(err)
		}
		for _, c := range cs {
			if c.Err != nil || c.N != each*page {
				t.Fatalf("a read of %d bytes: %+v", each*page, c)
			}
			free = append(free, c.ID)
			left--
		}
	}
	for i := range reads {
		got := m[2*i*each*page : 2*(i+1)*each*page]
		want := append(append(append(bytes.Clone(content[i*each*page:][:2*page]), make([]byte, page)...), content[(i*each+2)*page:][:3*page]...), make([]byte, 4*page)...)
		if !bytes.Equal(got, want) {
			t.Fatalf("read %d is not where it belongs", i)
		}
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestShortImageIsNoImage reads beyond the end of a file, and into memory that is not there any more.
func TestShortImageIsNoImage(t *testing.T) {
	content := random(3 * page)
	r, err := served(t, content).OpenRead(checkpointfiles.PagesFileName)
	if err != nil {
		t.Fatal(err)
	}
	fd, m := memory(t, 8)
	to, err := r.RegisterDestinationFD(fd, uint64(len(m)), nil)
	if err != nil {
		t.Fatal(err)
	}
	read := func(offset int64) stateio.Completion {
		r.AddRead(0, offset, to, frame(0, 2), m[:2*page])
		cs, err := r.Wait(nil, 1)
		if err != nil || len(cs) != 1 {
			t.Fatal(cs, err)
		}
		return cs[0]
	}
	if c := read(2 * page); c.N != page || c.Err != io.EOF {
		t.Errorf("a read of two pages where there is one: %+v", c)
	}
	if c := read(8 * page); c.N != 0 || c.Err != io.EOF {
		t.Errorf("a read behind the end: %+v", c)
	}
	// The server maps the memory, and must not touch it.
	if err := unix.Ftruncate(int(fd), 0); err != nil {
		t.Fatal(err)
	}
	if c := read(0); c.N != 2*page || c.Err != nil {
		t.Errorf("a read into shortened memory: %+v", c)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestSandboxReadsNothingElse asks for what a sandbox is not to have.
func TestSandboxReadsNothingElse(t *testing.T) {
	client := served(t, random(page))
	for _, name := range []string{"host-files.json", "../" + checkpointfiles.PagesFileName, "/etc/passwd", "", checkpointfiles.StateFileName /* is not there */} {
		if r, err := client.OpenRead(name); err == nil {
			t.Errorf("%q can be read: %v", name, r.Close())
		}
	}
	if w, err := client.OpenWrite(checkpointfiles.PagesFileName); err == nil {
		t.Errorf("the image can be written: %v", w.Close())
	}
	r, err := client.OpenRead(checkpointfiles.PagesFileName)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := client.OpenRead(checkpointfiles.PagesFileName); err == nil {
		t.Errorf("a file can be opened twice: %v", again.Close())
	}
	fd, m := memory(t, 1)
	for n := 0; ; n++ {
		if _, err := r.RegisterDestinationFD(fd, uint64(len(m)), nil); err != nil {
			if n != maxDestinations {
				t.Errorf("%d destinations could be registered: %v", n, err)
			}
			break
		}
		if n > maxDestinations {
			t.Fatal("there is no end to destinations")
		}
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}
