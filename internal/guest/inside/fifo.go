package inside

import (
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// fifos are the streams of one interpreted command: the interpreter opens them by name, so that each command has its own and
// what an earlier one left running cannot write into a later one's.
type fifos struct {
	dir, name string
	out       [2]*os.File // our reading ends
	hold      [2]*os.File // writing ends that keep ours from seeing an end before the interpreter has opened its own
	in        *os.File    // our writing end of the input; nil: none
	reader    *os.File    // keeps the input writable until the interpreter has opened it
}

func makeFIFOs(dir string, n int, input bool) (*fifos, error) {
	f := &fifos{dir: dir, name: strconv.Itoa(n)}
	err := f.make(input)
	if err != nil {
		f.abandon()
		return nil, err
	}
	return f, nil
}

func (f *fifos) make(input bool) error {
	for i, suffix := range []string{".out", ".err"} {
		var err error
		path := f.path(suffix)
		if err := unix.Mkfifo(path, 0o600); err != nil {
			return err
		}
		if f.out[i], err = os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0); err != nil {
			return err
		}
		if f.hold[i], err = os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK, 0); err != nil {
			return err
		}
	}
	if !input {
		return nil
	}
	path := f.path(".in")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return err
	}
	var err error
	if f.reader, err = os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0); err != nil {
		return err
	}
	f.in, err = os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK, 0)
	return err
}

func (f *fifos) path(suffix string) string { return filepath.Join(f.dir, f.name+suffix) }

// release lets the streams end with their last writer, once the command has opened them.
func (f *fifos) release() {
	for _, h := range append(f.hold[:], f.reader) {
		if h != nil {
			h.Close()
		}
	}
	for _, suffix := range []string{"", ".out", ".err", ".in"} {
		os.Remove(f.path(suffix)) // those in use stay usable; others were never made
	}
}

// abandon closes everything.
func (f *fifos) abandon() {
	f.release()
	for _, o := range append(f.out[:], f.in) {
		if o != nil {
			o.Close()
		}
	}
}
