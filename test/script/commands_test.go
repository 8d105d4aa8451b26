package script

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// commands are those of the scripts, besides testscript's own.
var commands = map[string]func(ts *testscript.TestScript, neg bool, args []string){
	"code":   code,
	"until":  until,
	"daemon": daemon,
	"flip":   flip,
	"json":   jsonCheck,
	"getvar": getvar,
	"small":  small,

	"registry": registryCommand,
	"push":     push,
}

// code N CMD... runs a command that must end with the exit code N.
func code(ts *testscript.TestScript, neg bool, args []string) {
	want, err := strconv.Atoi(arg(ts, args, 0))
	ts.Check(err)
	got := exitCode(ts.Exec(arg(ts, args, 1), args[2:]...))
	if (got == want) == neg {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

func exitCode(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	return -1
}

// until PATTERN CMD... runs a command again and again until it succeeds and its output matches.
func until(ts *testscript.TestScript, neg bool, args []string) {
	re, err := regexp.Compile("(?m)" + arg(ts, args, 0))
	ts.Check(err)
	ts.Check(eventually(30*time.Second, func() error {
		if err := ts.Exec(arg(ts, args, 1), args[2:]...); err != nil {
			return err
		}
		if re.MatchString(ts.ReadFile("stdout")) == neg {
			return fmt.Errorf("the output of %q does not come to match %s", args[1:], re)
		}
		return nil
	}))
}

// daemon kill|stop|down ends the daemon with SIGKILL or SIGTERM, or requires that none runs.
func daemon(ts *testscript.TestScript, neg bool, args []string) {
	w := ts.Value(worldKey{}).(*world)
	switch arg(ts, args, 0) {
	case "kill":
		ts.Check(w.stop(unix.SIGKILL))
	case "stop":
		ts.Check(w.stop(unix.SIGTERM))
	case "down":
		if (w.daemon() == 0) == neg {
			ts.Fatalf("daemon: pid %d", w.daemon())
		}
	default:
		ts.Fatalf("daemon kill|stop|down")
	}
}

// flip FILE inverts the byte in the middle of a file, whose modification time stays. Done twice, the file is as it was.
func flip(ts *testscript.TestScript, _ bool, args []string) {
	f, err := os.OpenFile(ts.MkAbs(arg(ts, args, 0)), os.O_RDWR, 0)
	ts.Check(err)
	defer f.Close()
	info, err := f.Stat()
	ts.Check(err)
	b, at := []byte{0}, info.Size()/2
	_, err = f.ReadAt(b, at)
	ts.Check(err)
	b[0] ^= 0xff
	_, err = f.WriteAt(b, at)
	ts.Check(err)
	ts.Check(os.Chtimes(f.Name(), info.ModTime(), info.ModTime()))
}

// small SIZE puts a file system of that size under the data directory. It goes with the script.
func small(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(unix.Mount("small", ts.Getenv("D"), "tmpfs", 0, "mode=0700,size="+arg(ts, args, 0)))
}

func arg(ts *testscript.TestScript, args []string, i int) string {
	if i >= len(args) {
		ts.Fatalf("too few arguments")
	}
	return args[i]
}
