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

	"perdure.dev/perdure/internal/sandbox/gvisor/pages"
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
	end, _, err := serveFiles(&imageServer{dir: dir, opened: map[string]bool{}})
	return end, err
}

// serveFiles serves files by gVisor's protocol to whoever has the returned end of a connection. The channel is closed when all copies of that are
// closed, and the files too.
func serveFiles(impl stateipc.AsyncFileServerImpl) (*os.File, <-chan struct{}, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	theirs, ended := os.NewFile(uintptr(pair[1]), "image"), make(chan struct{})
	serve, err := fileServer(impl, pair[0])
	if err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	// The goroutine ends with the connection, and that with the sandbox at the latest.
	go func() {
		defer close(ended)
		serve()
	}()
	return theirs, ended, nil
}

// fileServer returns what serves files to the other end of a socket, until that is closed. It owns the socket.
func fileServer(impl stateipc.AsyncFileServerImpl, socket int) (serve func(), err error) {
	files, err := stateipc.NewAsyncFileServer(impl)
	if err != nil {
		return nil, errors.Join(err, unix.Close(socket))
	}
	ours, err := unet.NewSocket(socket)
	if err != nil {
		files.Stop()
		return nil, errors.Join(err, unix.Close(socket))
	}
	server := urpc.NewServer()
	server.Register(files)
	return func() {
		_ = server.Handle(ours) // how a connection ends says nothing
		server.Stop(0)
	}, nil
}

// Destroy implements stateipc.AsyncFileServerImpl.
func (s *imageServer) Destroy() {}

// OpenWrite implements stateipc.AsyncFileServerImpl.
func (s *imageServer) OpenWrite(name string) (stateio.AsyncWriter, error) {
	return nil, fmt.Errorf("write %s: %w", name, fs.ErrPermission)
}

// OpenRead implements stateipc.AsyncFileServerImpl.
func (s *imageServer) OpenRead(name string) (stateio.AsyncReader, error) {
	switch name {
	case checkpointfiles.StateFileName, checkpointfiles.PagesMetadataFileName, checkpointfiles.PagesFileName:
	default:
		return nil, fmt.Errorf("read %s: %w", name, fs.ErrPermission)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opened[name] {
		return nil, fmt.Errorf("read %s again: %w", name, fs.ErrPermission)
	}
	r, err := openImageReader(s.dir, name)
	if err != nil {
		return nil, err
	}
	s.opened[name] = true
	return r, nil
}

func openImageReader(dir, name string) (*imageReader, error) {
	if name == checkpointfiles.PagesFileName {
		image, err := pages.Open(dir)
		if err != nil {
			return nil, err
		}
		return newImageReader(image, image.Parts, pageBytes, pageParallel, max(1, runtime.NumCPU()/2)), nil // the others load the kernel, and run it
	}
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return newImageReader(f, wholeFile(f, info.Size()), stateBytes, stateParallel, 1), nil
}

// findParts calls its function for the parts of a stream of bytes, see pages.Image.Parts.
type findParts func(offset, length int64, f func(pages.Part) error) (int64, error)

// wholeFile is a stream that is the first bytes of a file.
func wholeFile(f *os.File, size int64) findParts {
	return func(offset, length int64, call func(pages.Part) error) (int64, error) {
		length = min(length, size-offset)
		if offset < 0 || length <= 0 {
			return 0, nil
		}
		return length, call(pages.Part{Length: length, File: f, At: offset})
	}
}

// imageReader reads a stream into memory files, which hold zeros before. It writes them, where others touch their pages by way of a mapping: that takes two thirds of
// the time, and a memory file that the sandbox has shortened fails a write, where it would kill who touches it.
type imageReader struct {
	source   io.Closer
	parts    findParts
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

// newImageReader returns a reader that owns source.
func newImageReader(source io.Closer, parts findParts, bytes, parallel, workers int) *imageReader {
	r := &imageReader{
		source: source, parts: parts, bytes: bytes, parallel: parallel,
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
	err := r.source.Close()
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
	return completions(r.done, cs, atLeast)
}

func (r *imageReader) work() {
	buf := make([]byte, r.bytes)
	for read := range r.queue {
		n, err := r.read(read, buf)
		r.done <- stateio.Completion{ID: read.id, N: uint64(n), Err: err}
	}
}

// read does one read, by way of buf, and returns how much of it is done. Where the stream ends before, the error is io.EOF.
func (r *imageReader) read(read imageRead, buf []byte) (int, error) {
	done, offset := 0, read.offset
	for _, fr := range read.ranges {
		at := int64(fr.Start)
		n, err := r.parts(offset, int64(fr.Length()), func(p pages.Part) error {
			if err := copyPart(read.to, at, p, buf); err != nil {
				return err
			}
			at += p.Length
			return nil
		})
		done, offset = done+int(n), offset+n
		if err != nil {
			return done, err
		}
		if n < int64(fr.Length()) {
			return done, io.EOF
		}
	}
	return done, nil
}

// copyPart writes a part of a stream to a file. Zeros are there already.
func copyPart(to *os.File, at int64, p pages.Part, buf []byte) error {
	if p.File == nil {
		return nil
	}
	if p.Length > int64(len(buf)) {
		return fs.ErrInvalid
	}
	if _, err := p.File.ReadAt(buf[:p.Length], p.At); err != nil {
		return err
	}
	_, err := to.WriteAt(buf[:p.Length], at)
	return err
}
