package inside

import (
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// fifos are the streams of one interpreted command: the interpreter opens them by name, so that each command has its own and
// what an earlier one left running cannot write into a later one's. They are made before their command is there.
type fifos struct {
	dir    string
	owner  *person // of the interpreter
	number int
	out    [2]*os.File // our reading ends
	hold   [2]int      // writing ends that keep ours from seeing an end before the interpreter has opened its own
	in     *os.File    // our writing end of the input; nil: none
	reader int         // keeps the input writable until the interpreter has opened it
}

// none is the descriptor of what is not open.
const none = -1

func makeFIFOs(dir string, owner *person, number int) (*fifos, error) {
	f := &fifos{dir: dir, owner: owner, number: number, hold: [2]int{none, none}, reader: none}
	for i, suffix := range []string{".out", ".err"} {
		fd, err := f.open(suffix, unix.O_RDONLY)
		if err != nil {
			f.abandon()
			return nil, err
		}
		f.out[i] = os.NewFile(uintptr(fd), f.path(suffix))
		if f.hold[i], err = openFIFO(f.path(suffix), unix.O_WRONLY); err != nil {
			f.abandon()
			return nil, err
		}
	}
	return f, nil
}

// input adds the standard input.
func (f *fifos) input() error {
	var err error
	if f.reader, err = f.open(".in", unix.O_RDONLY); err != nil {
		return err
	}
	fd, err := openFIFO(f.path(".in"), unix.O_WRONLY)
	if err == nil {
		f.in = os.NewFile(uintptr(fd), f.path(".in"))
	}
	return err
}

// open makes a FIFO and opens it.
func (f *fifos) open(suffix string, how int) (int, error) {
	if err := unix.Mkfifo(f.path(suffix), 0o600); err != nil {
		return none, err
	}
	if err := f.owner.own(f.path(suffix)); err != nil {
		return none, err
	}
	return openFIFO(f.path(suffix), how)
}

func openFIFO(path string, how int) (int, error) {
	for {
		fd, err := unix.Open(path, how|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err == nil {
			return fd, nil
		}
		if err != unix.EINTR {
			return none, err
		}
	}
}

func (f *fifos) path(suffix string) string {
	return filepath.Join(f.dir, strconv.Itoa(f.number)+suffix)
}

// release lets the streams end with their last writer, once the command has opened them. Those in use stay usable without a name.
func (f *fifos) release() {
	unix.Unlink(f.path(".out"))
	unix.Unlink(f.path(".err"))
	if f.in != nil || f.reader != none {
		unix.Unlink(f.path(".in"))
	}
	for _, fd := range []*int{&f.hold[0], &f.hold[1], &f.reader} {
		if *fd != none {
			unix.Close(*fd)
			*fd = none
		}
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
