package engine

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// imageCommand is the engine's command that serves an image: "image DIR GROUP…", with the connection as file descriptor 3.
const imageCommand = "image"

// serveImageFrom serves the image in dir as serveImage does, from a process of its own in control groups, given by their directories. It ends with the
// connection, or with the shim.
func serveImageFrom(dir string, groups []string) (*os.File, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	theirs, ours := os.NewFile(uintptr(pair[1]), "image"), os.NewFile(uintptr(pair[0]), "image server")
	defer ours.Close()
	cmd := exec.Command("/proc/self/exe", append([]string{imageCommand, dir}, groups...)...)
	cmd.ExtraFiles = []*os.File{ours}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, theirs.Close())
	}
	go func() { _ = cmd.Wait() }() // ends with the process; whoever reads notices if that is too early
	return theirs, nil
}

// imageMain is the process that serveImageFrom starts.
func imageMain(args []string) int {
	if len(args) == 0 {
		fmt.Fprintln(os.Stderr, "usage: perdure-engine image DIR GROUP…")
		return 2
	}
	for _, group := range args[1:] {
		if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
			fmt.Fprintln(os.Stderr, "join the control group:", err)
			return 1
		}
	}
	serve, err := fileServer(&imageServer{dir: args[0], opened: map[string]bool{}}, 3)
	if err != nil {
		fmt.Fprintln(os.Stderr, "serve the image:", err)
		return 1
	}
	serve()
	return 0
}
