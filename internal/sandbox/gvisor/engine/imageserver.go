package engine

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/state/checkpointfiles"
	"gvisor.dev/gvisor/pkg/sentry/state/stateio"
	"gvisor.dev/gvisor/pkg/sentry/state/stateipc"
	"gvisor.dev/gvisor/pkg/unet"
	"gvisor.dev/gvisor/pkg/urpc"
)

// An image server gives the files of a memory image to the sandbox that is being restored from it. gVisor has the protocol for images that
// do not lie in files: its package stateipc. The sandbox hands over a memory file of its own with each request, and what it asked for is
// written there.
//
// The sandbox is not trusted: it can open each file once, and register a few destinations for it.

// How much a file's reader does at once.
const (
	stateBytes    = 512 << 10 // bytes in a read of the kernel's state: each may cost a wait for the shim, and the decoder waits with it
	stateParallel = 4         // so that a small state is read at once
	pageBytes     = 256 << 10 // bytes in a read of pages: whoever needs a page waits for those that have begun
	pageParallel  = 4
)

// maxDestinations is how many memory files a sandbox may have one file read into. It needs one, for pages one more for each file system in
// memory that has its own.
const maxDestinations = 64

type imageServer struct {
	dir string

	mu     sync.Mutex // guards opened
	opened map[string]bool
}

// serveImage serves the image in dir to whoever has the returned end of a connection, until all copies of that are closed.
func serveImage(dir string) (*os.File, error) {
	files, err := stateipc.NewAsyncFileServer(&imageServer{dir: dir, opened: map[string]bool{}})
	if err != nil {
		return nil, err
	}
	server := urpc.NewServer()
	server.Register(files)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		files.Stop()
		return nil, err
	}
	ours, err := unet.NewSocket(pair[0])
	if err != nil {
		files.Stop()
		return nil, errors.Join(err, unix.Close(pair[0]), unix.Close(pair[1]))
	}
	// The goroutine ends with the connection, and that with the sandbox at the latest.
	go func() {
		_ = server.Handle(ours) // how a connection ends says nothing
		server.Stop(0)
	}()
	return os.NewFile(uintptr(pair[1]), "image"), nil
}

// Destroy implements stateipc.AsyncFileServerImpl.
func (s *imageServer) Destroy() {}

// OpenWrite implements stateipc.AsyncFileServerImpl.
func (s *imageServer) OpenWrite(name string) (stateio.AsyncWriter, error) {
	return nil, fmt.Errorf("write %s: %w", name, fs.ErrPermission)
}

// OpenRead implements stateipc.AsyncFileServerImpl.
func (s *imageServer) OpenRead(name string) (stateio.AsyncReader, error) {
	bytes, parallel, workers := stateBytes, stateParallel, 1
	switch name {
	case checkpointfiles.StateFileName, checkpointfiles.PagesMetadataFileName:
	case checkpointfiles.PagesFileName:
		bytes, parallel, workers = pageBytes, pageParallel, max(1, runtime.NumCPU()/2) // the others load the kernel, and run it
	default:
		return nil, fmt.Errorf("read %s: %w", name, fs.ErrPermission)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opened[name] {
		return nil, fmt.Errorf("read %s again: %w", name, fs.ErrPermission)
	}
	f, err := os.Open(filepath.Join(s.dir, name))
	if err != nil {
		return nil, err
	}
	s.opened[name] = true
	return newImageReader(f, bytes, parallel, workers), nil
}

// imageReader reads a file into memory files. It writes them, where others touch their pages by way of a mapping: that takes two thirds of
// the time, and a memory file that the sandbox has shortened fails a write, where it would kill who touches it.
type imageReader struct {
	file     *os.File
	bytes    int
	parallel int
	queue    chan imageRead // never full: the server sees to it that no more than parallel are under way
	done     chan stateio.Completion
	workers  sync.WaitGroup

	mu           sync.Mutex // guards destinations
	destinations []*os.File
}

var _ stateio.AsyncReader = (*imageReader)(nil)

type imageRead struct {
	id     int
	offset int64
	to     *os.File
	ranges []memmap.FileRange
}

// newImageReader returns a reader that owns file.
func newImageReader(file *os.File, bytes, parallel, workers int) *imageReader {
	r := &imageReader{
		file: file, bytes: bytes, parallel: parallel,
		queue: make(chan imageRead, parallel), done: make(chan stateio.Completion, parallel),
	}
	for range workers {
		r.workers.Go(r.work)
	}
	return r
}

// Close implements stateio.AsyncReader.
func (r *imageReader) Close() error {
	close(r.queue)
	r.workers.Wait()
	err := r.file.Close()
	for _, f := range r.destinations {
		err = errors.Join(err, f.Close())
	}
	return err
}

// MaxReadBytes implements stateio.AsyncReader.
func (r *imageReader) MaxReadBytes() uint64 { return uint64(r.bytes) }

// MaxRanges implements stateio.AsyncReader.
func (r *imageReader) MaxRanges() int { return r.bytes / os.Getpagesize() }

// MaxParallel implements stateio.AsyncReader.
func (r *imageReader) MaxParallel() int { return r.parallel }

// NeedRegisterDestinationFD implements stateio.AsyncReader.
func (r *imageReader) NeedRegisterDestinationFD() bool { return true }

// RegisterDestinationFD implements stateio.AsyncReader. What it returns is an *os.File.
func (r *imageReader) RegisterDestinationFD(fd int32, _ uint64, _ []stateio.ClientFileRangeSetting) (stateio.DestinationFile, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.destinations) == maxDestinations {
		return nil, fmt.Errorf("more than %d destinations: %w", maxDestinations, fs.ErrPermission)
	}
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(own), "memory of the sandbox")
	r.destinations = append(r.destinations, f)
	return f, nil
}

// AddRead implements stateio.AsyncReader.
func (r *imageReader) AddRead(id int, offset int64, to stateio.DestinationFile, fr memmap.FileRange, _ []byte) {
	r.queue <- imageRead{id, offset, to.(*os.File), []memmap.FileRange{fr}}
}

// AddReadv implements stateio.AsyncReader.
func (r *imageReader) AddReadv(id int, offset int64, _ uint64, to stateio.DestinationFile, ranges []memmap.FileRange, _ []unix.Iovec) {
	r.queue <- imageRead{id, offset, to.(*os.File), ranges}
}

// Wait implements stateio.AsyncReader.
func (r *imageReader) Wait(cs []stateio.Completion, atLeast int) ([]stateio.Completion, error) {
	for range atLeast {
		cs = append(cs, <-r.done)
	}
	for {
		select {
		case c := <-r.done:
			cs = append(cs, c)
		default:
			return cs, nil
		}
	}
}

func (r *imageReader) work() {
	buf := make([]byte, r.bytes)
	for read := range r.queue {
		n, err := r.read(read, buf)
		r.done <- stateio.Completion{ID: read.id, N: uint64(n), Err: err}
	}
}

// read does one read, by way of buf, and returns how much it wrote. Where the file ends before, the error is io.EOF.
func (r *imageReader) read(read imageRead, buf []byte) (int, error) {
	size := 0
	for _, fr := range read.ranges {
		size += int(fr.Length())
	}
	got, err := r.file.ReadAt(buf[:size], read.offset)
	if err != nil && err != io.EOF {
		return 0, err
	}
	written := 0
	for _, fr := range read.ranges {
		part := buf[written:min(written+int(fr.Length()), got)]
		n, err := read.to.WriteAt(part, int64(fr.Start))
		written += n
		if err != nil {
			return written, err
		}
	}
	if written < size {
		return written, io.EOF
	}
	return written, nil
}
