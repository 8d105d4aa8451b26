package inside

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/internal/guest/wire"
)

// stdio is both ends of a process's three streams.
type stdio struct {
	child  []uintptr // file descriptors 0, 1, 2 of the child; blocking
	owned  []int     // those of them to close
	stdin  *os.File  // our end; nil: none
	out    [2]*os.File
	resize func(wire.Size) error // of a terminal
}

func newStdio(spec wire.ExecSpec) (*stdio, error) {
	s := &stdio{}
	var err error
	if spec.TTY != nil {
		err = s.terminal(*spec.TTY)
	} else {
		err = s.pipes(spec.Stdin)
	}
	if err != nil {
		s.closeChild()
		s.closeParent()
		return nil, fail("exhausted", "exec_streams", "making the streams of a command: %v", err)
	}
	return s, nil
}

func (s *stdio) pipes(input bool) error {
	in, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if input {
		if err == nil {
			unix.Close(in)
		}
		in, s.stdin, err = pipe(false)
	}
	if err != nil {
		return err
	}
	s.give(in)
	for i := range s.out {
		var fd int
		if fd, s.out[i], err = pipe(true); err != nil {
			return err
		}
		s.give(fd)
	}
	return nil
}

func (s *stdio) give(fd int) {
	s.child = append(s.child, uintptr(fd))
	s.owned = append(s.owned, fd)
}

// pipe returns the child's end, which blocks, and ours, which does not. read: we read.
func pipe(read bool) (int, *os.File, error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return -1, nil, err
	}
	ours, theirs := p[1], p[0]
	if read {
		ours, theirs = p[0], p[1]
	}
	if err := unix.SetNonblock(ours, true); err != nil {
		return -1, nil, errors.Join(err, unix.Close(ours), unix.Close(theirs))
	}
	return theirs, os.NewFile(uintptr(ours), "pipe"), nil
}

// terminal opens a pseudo-terminal (pty(7)); the child gets its far end three times.
func (s *stdio) terminal(size wire.Size) error {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("opening /dev/ptmx: %w", err)
	}
	master := os.NewFile(uintptr(fd), "terminal")
	s.out[0], s.stdin = master, master
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		return err
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return err
	}
	far, err := unix.Open(fmt.Sprintf("/dev/pts/%d", n), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	s.child, s.owned = []uintptr{uintptr(far), uintptr(far), uintptr(far)}, []int{far}
	raw, err := master.SyscallConn()
	if err != nil {
		return err
	}
	s.resize = func(size wire.Size) error {
		var ioErr error
		err := raw.Control(func(fd uintptr) {
			ioErr = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: size.Rows, Col: size.Cols})
		})
		if err != nil {
			return fail("conflict", "terminal_closed", "the command's terminal is closed")
		}
		return ioErr
	}
	return s.resize(size)
}

// belong gives the child's streams to whom it runs as, who may open them again by /dev/stdout.
func (s *stdio) belong(p person) {
	if p.same {
		return
	}
	for _, fd := range s.child {
		var st unix.Stat_t
		if err := unix.Fstat(int(fd), &st); err != nil || st.Mode&unix.S_IFMT == unix.S_IFCHR && unix.Major(uint64(st.Rdev)) == 1 { // /dev/null is everybody's
			continue
		}
		_ = unix.Fchown(int(fd), int(p.uid), int(p.gid)) // the stream itself works in any case
	}
}

func (s *stdio) closeChild() {
	for _, fd := range s.owned {
		unix.Close(fd)
	}
	s.owned = nil
}

func (s *stdio) closeParent() {
	for _, f := range append(s.out[:], s.stdin) {
		if f != nil {
			f.Close()
		}
	}
}
