package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/state/checkpointfiles"
	"gvisor.dev/gvisor/pkg/sentry/state/stateio"
	"gvisor.dev/gvisor/pkg/state/statefile"
	"gvisor.dev/gvisor/runsc/boot"

	"perdure.dev/perdure/internal/sandbox/gvisor/pages"
)

// The image of a sandbox comes to the shim by the protocol of the image server, the other way round: the sandbox hands over its memory file,
// and says which of its pages make the image. The shim reads them, compares them with the image before, and writes what differs.

// How much of the memory a sandbox hands over at once.
const (
	saveBytes    = 1 << 20
	saveRanges   = 256
	saveParallel = 16
)

// copyAgain is how many bytes have to be written ahead of a pause for it to be worth looking once more at what has changed meanwhile.
const copyAgain = 64 << 20

// Prepare implements shim.Engine: it writes most of the image while the sandbox runs.
func (e *Engine) Prepare(ctx context.Context, dir string) error {
	s, err := e.beginImage(dir)
	if err != nil {
		return err
	}
	e.saver = s
	written, err := e.precopy(ctx, s)
	if err == nil && written >= copyAgain {
		_, err = e.precopy(ctx, s)
	}
	return err
}

// precopy copies the sandbox's main memory file, which is the first that is saved.
func (e *Engine) precopy(ctx context.Context, s *pages.Saver) (int64, error) {
	memory, err := mainMemory(e.container.Sandbox.Getpid())
	if err != nil {
		return 0, err
	}
	defer memory.Close()
	return s.Precopy(ctx, 0, memory)
}

// mainMemory opens the memory file of a sandbox process. The name is gVisor's, see Loader.createMemoryFile.
func mainMemory(pid int) (*os.File, error) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		if to, err := os.Readlink(name); err == nil && strings.HasPrefix(to, "/memfd:runsc-memory") {
			return os.Open(name)
		}
	}
	return nil, fmt.Errorf("process %d has no memory file", pid)
}

// beginImage begins an image in dir, and gives up one that may have been begun.
func (e *Engine) beginImage(dir string) (*pages.Saver, error) {
	e.dropSaver()
	return pages.Begin(dir, e.image)
}

func (e *Engine) dropSaver() {
	if e.saver != nil {
		e.saver.Discard()
		e.saver = nil
	}
}

// Save implements shim.Engine.
func (e *Engine) Save(_ context.Context, dir string) error {
	if err := e.mappedFiles(); err != nil { // before saving, which takes the mappings away
		return err
	}
	if e.saver == nil || e.saver.Dir() != dir {
		var err error
		if e.saver, err = e.beginImage(dir); err != nil {
			return err
		}
	}
	defer e.dropSaver()
	server := &imageSaver{dir: dir, pages: e.saver, opened: map[string]bool{}}
	if err := e.saveTo(server); err != nil {
		return errors.Join(err, server.failure())
	}
	image, err := e.saver.Finish(server.runs())
	if err != nil {
		return err
	}
	e.keepImage(image)
	return e.writeHostFiles(dir)
}

// saveTo has the sandbox write its image to a server, and returns when that has it all. The sandbox goes on standing still, if it does.
func (e *Engine) saveTo(server *imageSaver) error {
	end, ended, err := serveFiles(server)
	if err != nil {
		return err
	}
	opt := control.SaveOpts{
		Metadata:           statefile.CompressionLevelNone.ToMetadata(),
		Resume:             true,
		UseCheckpointGofer: true,
		HavePagesFile:      true,
	}
	opt.Files = []*os.File{end}
	conn, err := connectSandbox(e.container.Sandbox)
	if err == nil {
		err = conn.Call(boot.ContMgrCheckpoint, &opt, nil)
		conn.Close()
	}
	err = errors.Join(err, end.Close())
	<-ended
	return err
}

// keepImage makes an image what the next is compared with.
func (e *Engine) keepImage(image *pages.Image) {
	e.forgetImage()
	e.image = image
}

func (e *Engine) forgetImage() {
	if e.image != nil {
		_ = e.image.Close() // it was only read
		e.image = nil
	}
}

// imageSaver takes the files of one image.
type imageSaver struct {
	dir   string
	pages *pages.Saver

	mu     sync.Mutex // guards what follows
	opened map[string]bool
	writer *pagesWriter // nil until the pages are opened
	files  []*fileWriter
}

// Destroy implements stateipc.AsyncFileServerImpl.
func (s *imageSaver) Destroy() {}

// OpenRead implements stateipc.AsyncFileServerImpl.
func (s *imageSaver) OpenRead(name string) (stateio.AsyncReader, error) {
	return nil, fmt.Errorf("read %s: %w", name, fs.ErrPermission)
}

// OpenWrite implements stateipc.AsyncFileServerImpl.
func (s *imageSaver) OpenWrite(name string) (stateio.AsyncWriter, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opened[name] {
		return nil, fmt.Errorf("write %s again: %w", name, fs.ErrPermission)
	}
	s.opened[name] = true
	switch name {
	case checkpointfiles.StateFileName, checkpointfiles.PagesMetadataFileName:
		f, err := os.OpenFile(filepath.Join(s.dir, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, err
		}
		w := &fileWriter{file: f, results: results{done: make(chan stateio.Completion, saveParallel)}}
		s.files = append(s.files, w)
		return w, nil
	case checkpointfiles.PagesFileName:
		s.writer = newPagesWriter(s.pages)
		return s.writer, nil
	}
	return nil, fmt.Errorf("write %s: %w", name, fs.ErrPermission)
}

// failure says what went wrong here, when the sandbox says that something did: across the protocol goes a number.
func (s *imageSaver) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, f := range s.files {
		errs = append(errs, f.failure())
	}
	if s.writer != nil {
		errs = append(errs, s.writer.failure())
	}
	return errors.Join(errs...)
}

// runs returns the pages that were written, in their order.
func (s *imageSaver) runs() []pages.Run {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writer == nil {
		return nil
	}
	return s.writer.inOrder()
}

// sources are the memory files that a sandbox has written from.
type sources struct {
	mu    sync.Mutex // guards files
	files []*os.File
}

// NeedRegisterSourceFD implements stateio.AsyncWriter.
func (s *sources) NeedRegisterSourceFD() bool { return true }

// RegisterSourceFD implements stateio.AsyncWriter. What it returns is a source.
func (s *sources) RegisterSourceFD(fd int32, _ uint64, _ []stateio.ClientFileRangeSetting) (stateio.SourceFile, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.files) == maxDestinations {
		return nil, fmt.Errorf("more than %d memory files: %w", maxDestinations, fs.ErrPermission)
	}
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(own), "memory of the sandbox")
	s.files = append(s.files, f)
	return source{f, len(s.files) - 1}, nil
}

func (s *sources) close() error {
	var errs []error
	for _, f := range s.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// source is a memory file, and which of them it is.
type source struct {
	file   *os.File
	number int
}

// results are those of writes.
type results struct {
	done chan stateio.Completion // never full: the server sees to it that no more than parallel are under way

	mu  sync.Mutex // guards err
	err error      // the first
}

// MaxWriteBytes implements stateio.AsyncWriter.
func (r *results) MaxWriteBytes() uint64 { return saveBytes }

// MaxRanges implements stateio.AsyncWriter.
func (r *results) MaxRanges() int { return saveRanges }

// MaxParallel implements stateio.AsyncWriter.
func (r *results) MaxParallel() int { return saveParallel }

// Reserve implements stateio.AsyncWriter.
func (r *results) Reserve(uint64) {}

// Wait implements stateio.AsyncWriter.
func (r *results) Wait(cs []stateio.Completion, atLeast int) ([]stateio.Completion, error) {
	return completions(r.done, cs, atLeast)
}

func (r *results) note(id int, n int64, err error) {
	if err != nil {
		r.mu.Lock()
		if r.err == nil {
			r.err = err
		}
		r.mu.Unlock()
	}
	r.done <- stateio.Completion{ID: id, N: uint64(n), Err: err}
}

func (r *results) failure() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// fileWriter writes a file as it comes.
type fileWriter struct {
	sources
	results
	file *os.File
	buf  []byte
}

var _ stateio.AsyncWriter = (*fileWriter)(nil)

// AddWrite implements stateio.AsyncWriter.
func (w *fileWriter) AddWrite(id int, from stateio.SourceFile, fr memmap.FileRange, _ []byte) {
	w.write(id, from.(source), []memmap.FileRange{fr})
}

// AddWritev implements stateio.AsyncWriter.
func (w *fileWriter) AddWritev(id int, _ uint64, from stateio.SourceFile, ranges []memmap.FileRange, _ []unix.Iovec) {
	w.write(id, from.(source), ranges)
}

func (w *fileWriter) write(id int, from source, ranges []memmap.FileRange) {
	if w.buf == nil {
		w.buf = make([]byte, saveBytes)
	}
	var written int64
	var err error
	for _, fr := range ranges {
		if fr.Length() > saveBytes {
			err = fs.ErrInvalid
			break
		}
		b := w.buf[:fr.Length()]
		if _, err = from.file.ReadAt(b, int64(fr.Start)); err != nil {
			break
		}
		var n int
		n, err = w.file.Write(b)
		if written += int64(n); err != nil {
			break
		}
	}
	w.note(id, written, err)
}

// Finalize implements stateio.AsyncWriter.
func (w *fileWriter) Finalize() error { return nil }

// Close implements stateio.AsyncWriter.
func (w *fileWriter) Close() error { return errors.Join(w.file.Close(), w.close()) }

// pagesWriter takes pages into an image, with several workers.
type pagesWriter struct {
	sources
	results
	saver   *pages.Saver
	queue   chan pagesWrite
	workers sync.WaitGroup
	count   int // of writes, in the order of the stream

	resultsMu sync.Mutex // guards written
	written   []writtenRuns
}

type pagesWrite struct {
	id, number int
	from       source
	ranges     []memmap.FileRange
}

// writtenRuns are the runs of one write.
type writtenRuns struct {
	number int
	runs   []pages.Run
}

var _ stateio.AsyncWriter = (*pagesWriter)(nil)

func newPagesWriter(s *pages.Saver) *pagesWriter {
	w := &pagesWriter{
		saver: s, queue: make(chan pagesWrite, saveParallel),
		results: results{done: make(chan stateio.Completion, saveParallel)},
	}
	for range min(max(runtime.NumCPU(), 2), 4) {
		w.workers.Go(w.work)
	}
	return w
}

// AddWrite implements stateio.AsyncWriter.
func (w *pagesWriter) AddWrite(id int, from stateio.SourceFile, fr memmap.FileRange, _ []byte) {
	w.AddWritev(id, 0, from, []memmap.FileRange{fr}, nil)
}

// AddWritev implements stateio.AsyncWriter.
func (w *pagesWriter) AddWritev(id int, _ uint64, from stateio.SourceFile, ranges []memmap.FileRange, _ []unix.Iovec) {
	w.queue <- pagesWrite{id, w.count, from.(source), ranges}
	w.count++
}

func (w *pagesWriter) work() {
	b := pages.NewBuffers()
	for write := range w.queue {
		out := writtenRuns{number: write.number}
		var done int64
		var err error
		for _, fr := range write.ranges {
			var runs []pages.Run
			if fr.Start%pages.Size != 0 || fr.Length()%pages.Size != 0 {
				err = fmt.Errorf("pages %v: %w", fr, fs.ErrInvalid)
				break
			}
			if runs, err = w.saver.Save(b, write.from.number, write.from.file, int64(fr.Start), int64(fr.Length())); err != nil {
				break
			}
			out.runs = append(out.runs, runs...)
			done += int64(fr.Length())
		}
		w.resultsMu.Lock()
		w.written = append(w.written, out)
		w.resultsMu.Unlock()
		w.note(write.id, done, err)
	}
}

func (w *pagesWriter) inOrder() []pages.Run {
	w.resultsMu.Lock()
	defer w.resultsMu.Unlock()
	sort.Slice(w.written, func(i, j int) bool { return w.written[i].number < w.written[j].number })
	var out []pages.Run
	for _, one := range w.written {
		out = append(out, one.runs...)
	}
	return out
}

// Finalize implements stateio.AsyncWriter.
func (w *pagesWriter) Finalize() error { return nil }

// Close implements stateio.AsyncWriter.
func (w *pagesWriter) Close() error {
	close(w.queue)
	w.workers.Wait()
	return w.close()
}

// completions implements the waiting of readers and writers.
func completions(done <-chan stateio.Completion, cs []stateio.Completion, atLeast int) ([]stateio.Completion, error) {
	for range atLeast {
		cs = append(cs, <-done)
	}
	for {
		select {
		case c := <-done:
			cs = append(cs, c)
		default:
			return cs, nil
		}
	}
}
