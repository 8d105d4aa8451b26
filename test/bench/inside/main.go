// Command inside runs in a sandbox and measures what the sandbox itself costs, whoever asks: "spawn N" starts /bin/true N times by
// fork and exec and waits for it, "pipe N" sends a byte to another process and back. It prints the nanoseconds of each, one a line.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("usage: inside spawn|pipe N")
	}
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	if args[0] == "pipe" {
		return pipe(n)
	}
	return repeat(n, spawn)
}

func repeat(n int, do func() error) error {
	for range n {
		began := time.Now()
		if err := do(); err != nil {
			return err
		}
		fmt.Println(time.Since(began).Nanoseconds())
	}
	return nil
}

func spawn() error {
	pid, err := syscall.ForkExec("/bin/true", []string{"true"}, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}})
	if err != nil {
		return err
	}
	var status syscall.WaitStatus
	_, err = syscall.Wait4(pid, &status, 0, nil)
	return err
}

// pipe talks to cat, which is small, by plain system calls, so that no run-time of a language stands in between.
func pipe(n int) error {
	cat := exec.Command("/bin/cat")
	var to, from [2]int
	if err := syscall.Pipe2(to[:], syscall.O_CLOEXEC); err != nil {
		return err
	}
	if err := syscall.Pipe2(from[:], syscall.O_CLOEXEC); err != nil {
		return err
	}
	cat.Stdin, cat.Stdout = os.NewFile(uintptr(to[0]), "in"), os.NewFile(uintptr(from[1]), "out")
	if err := cat.Start(); err != nil {
		return err
	}
	b := []byte{1}
	err := repeat(n, func() error {
		if _, err := syscall.Write(to[1], b); err != nil {
			return err
		}
		_, err := syscall.Read(from[0], b)
		return err
	})
	syscall.Close(to[1])
	if werr := cat.Wait(); err == nil {
		err = werr
	}
	return err
}
