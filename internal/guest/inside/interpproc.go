package inside

import (
	"bufio"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

//go:embed shell.sh
var shellDriver string

//go:embed python.py
var pythonDriver string

// controlFD and answerFD are the interpreter's ends of the control pipes; high, so that programs do not meet them.
const (
	controlFD = 250
	answerFD  = 251
)

// interpProc is one life of an interpreter.
type interpProc struct {
	pid      int
	control  *os.File
	answers  chan answer
	exited   chan struct{} // closed after status is set
	status   unix.WaitStatus
	reseeded chan string // capacity 1
}

// answer is what an interpreter says about a command: a status, or "opened" when it has opened the command's input.
type answer struct{ number, status, cwd, exports string }

// command returns the argument vector of the interpreter.
func (i *interp) command(env []string) ([]string, error) {
	name, file, text := "bash", "driver.sh", shellDriver
	if i.kind == "python" {
		name, file, text = "python3", "driver.py", pythonDriver
	}
	path, err := lookPath(name, i.g.cfg.Home, env)
	if err != nil {
		return nil, fail("unavailable", "interpreter_failed", "there is no %s in the sandbox", name)
	}
	driver := filepath.Join(i.dir, file)
	if err := os.WriteFile(driver, []byte(text), 0o600); err != nil {
		return nil, err
	}
	if i.kind == "python" {
		return []string{path, "-u", driver, i.dir}, nil
	}
	restore := ""
	if i.exports != "" {
		restore = filepath.Join(i.dir, "exports")
		if err := os.WriteFile(restore, []byte(i.exports), 0o600); err != nil {
			return nil, err
		}
	}
	return []string{path, "--noprofile", "--norc", driver, i.dir, i.cwd, restore}, nil
}

func (g *Guest) startInterpProc(i *interp, argv, env []string, cwd string) (*interpProc, error) {
	controlFar, control, err := pipe(false)
	if err != nil {
		return nil, err
	}
	answerFar, answers, err := pipe(true)
	if err != nil {
		unix.Close(controlFar)
		control.Close()
		return nil, err
	}
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		unix.Close(controlFar)
		unix.Close(answerFar)
		control.Close()
		answers.Close()
		return nil, err
	}
	files := make([]uintptr, answerFD+1)
	for fd := range files {
		files[fd] = ^uintptr(0) // closed in the child
	}
	files[0], files[1], files[2] = uintptr(null), uintptr(null), uintptr(null)
	files[controlFD], files[answerFD] = uintptr(controlFar), uintptr(answerFar)
	if info, err := os.Stat(cwd); err != nil || !info.IsDir() {
		cwd = "/"
	}
	attr := &syscall.ProcAttr{Dir: cwd, Env: env, Files: files, Sys: &syscall.SysProcAttr{Setsid: true}}
	pid, ends, err := g.fork(argv[0], argv, attr)
	unix.Close(controlFar)
	unix.Close(answerFar)
	unix.Close(null)
	if err != nil {
		control.Close()
		answers.Close()
		return nil, err
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

// listen reads answers until the interpreter has ended.
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
		var fields [4]string
		for i := range fields {
			var err error
			if fields[i], err = field(); err != nil {
				return
			}
		}
		a := answer{fields[0], fields[1], fields[2], fields[3]}
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
