package inside

import (
	"bufio"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/internal/guest/wire"
)

//go:embed shell.sh
var shellDriver string

//go:embed python.py
var pythonDriver string

// savedFD is where bash keeps the first descriptor that a redirection replaces, unless something is open there (SHELL_FD_BASE in its
// redir.c). Its driver relies on it.
const savedFD = 10

// headerLength is the length of what announces a command to an interpreter, in bytes. It holds the longest exec id.
const headerLength = wire.MaxExecID + 64

// header announces a command: its number, its exec id, whether it has input, and a seed or "-", padded with blanks. It is written at
// once and is shorter than PIPE_BUF, so that an interpreter gets it whole.
func header(number int, exec string, input bool, seed string) []byte {
	in := 0
	if input {
		in = 1
	}
	return fmt.Appendf(make([]byte, 0, headerLength), "%-*s", headerLength, fmt.Sprintf("%d %s %d %s ", number, exec, in, seed))
}

// interpProc is one life of an interpreter.
type interpProc struct {
	pid      int
	control  *os.File // blocks; one header fits in it at any time
	answers  chan answer
	exited   chan struct{} // closed after status is set
	status   unix.WaitStatus
	reseeded chan string // capacity 1
}

// answer is what an interpreter says about a command: a status, or "opened" when it has opened the command's input.
type answer struct{ number, status, cwd string }

// answerMark begins an answer, between two NULs.
const answerMark = "perdure"

// command returns the argument vector of the interpreter.
func (i *interp) command(env []string) ([]string, error) {
	name, file, text := "bash", "driver.sh", shellDriver
	if i.kind == "python" {
		name, file, text = "python3", "driver.py", pythonDriver
	}
	path, err := lookPath(name, i.cwd, env)
	if err != nil {
		return nil, fail("unavailable", "interpreter_failed", "there is no %s in the sandbox", name)
	}
	driver := filepath.Join(i.dir, file)
	if err := i.writeFile(driver, text); err != nil {
		return nil, err
	}
	length := strconv.Itoa(headerLength)
	if i.kind == "python" {
		return []string{path, "-u", driver, i.dir, length}, nil
	}
	restore := ""
	if exports := savedExports(i.dir); exports != "" {
		restore = filepath.Join(i.dir, "exports")
		if err := i.writeFile(restore, exports); err != nil {
			return nil, err
		}
	}
	return []string{path, "--noprofile", "--norc", driver, i.dir, i.cwd, restore, length}, nil
}

// writeFile writes a file for the interpreter to read.
func (i *interp) writeFile(name, text string) error {
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		return err
	}
	return i.owner.own(name)
}

// savedExports returns the exported variables that the last shell wrote down after its last command, as declare -px prints them. It
// takes the newer of two files that is whole.
func savedExports(dir string) string {
	last, exports := 0, ""
	for _, name := range []string{"exports.0", "exports.1"} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			continue
		}
		text, rest, _ := strings.Cut(string(data), "\x00")
		number, whole := strings.CutSuffix(rest, "\x00")
		if n, err := strconv.Atoi(number); whole && err == nil && n > last {
			last, exports = n, text
		}
	}
	return exports
}

func (g *Guest) startInterpProc(i *interp, argv, env []string, cwd string, who person) (*interpProc, error) {
	var far []int
	defer func() {
		for _, fd := range far {
			unix.Close(fd)
		}
	}()
	// Not for the poller, whom each byte read from the other end would wake.
	controlFar, control, err := rawPipe()
	if err != nil {
		return nil, err
	}
	far = append(far, controlFar)
	answersFar, answers, err := pipe(true)
	if err != nil {
		return nil, errors.Join(err, control.Close())
	}
	far = append(far, answersFar)
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, errors.Join(err, control.Close(), answers.Close())
	}
	far = append(far, null)
	if info, err := os.Stat(cwd); err != nil || !info.IsDir() {
		cwd = "/"
	}
	files := []uintptr{uintptr(controlFar), uintptr(answersFar), uintptr(null)}
	for len(files) <= savedFD { // a guest that is not process 1 may have inherited something there
		files = append(files, ^uintptr(0)) // closed in the child
	}
	attr := &syscall.ProcAttr{Dir: cwd, Env: env, Files: files, Sys: &syscall.SysProcAttr{Setsid: true}}
	who.become(attr.Sys)
	pid, ends, err := g.fork(argv[0], argv, attr)
	if err != nil {
		return nil, errors.Join(err, control.Close(), answers.Close())
	}
	p := &interpProc{
		pid: pid, control: control, answers: make(chan answer, 4), exited: make(chan struct{}), reseeded: make(chan string, 1),
	}
	go p.listen(answers)
	go func() {
		p.status = <-ends
		control.Close()
		answers.Close()
		i.died(p, describeEnd(p.status))
		close(p.exited)
	}()
	return p, nil
}

// rawPipe returns a pipe of which both ends block.
func rawPipe() (int, *os.File, error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return none, nil, err
	}
	return p[0], os.NewFile(uintptr(p[1]), "pipe"), nil
}

// listen reads answers until the interpreter has ended, and skips what is none.
func (p *interpProc) listen(f *os.File) {
	r := bufio.NewReaderSize(f, 16<<10)
	field := func() (string, error) {
		s, err := r.ReadString(0)
		if err != nil {
			return "", err
		}
		return s[:len(s)-1], nil
	}
	for {
		mark, err := field()
		if err != nil {
			return
		}
		if mark != answerMark {
			continue
		}
		var fields [3]string
		for i := range fields {
			if fields[i], err = field(); err != nil {
				return
			}
		}
		a := answer{fields[0], fields[1], fields[2]}
		if a.number == "reseeded" {
			select {
			case p.reseeded <- a.status:
			default:
			}
			continue
		}
		select {
		case p.answers <- a:
		case <-p.exited:
			return
		}
	}
}

func describeEnd(ws unix.WaitStatus) string {
	if ws.Signaled() {
		return "it was killed by " + signalName(ws.Signal())
	}
	return fmt.Sprintf("it ended with status %d", ws.ExitStatus())
}
