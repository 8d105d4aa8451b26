// Command inside runs in a sandbox and measures what starting a process costs there, whoever asks for it: it starts /bin/true again
// and again by fork and exec, waits for it, and prints the nanoseconds of each, one a line.
package main

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
)

func main() {
	n := 100
	if len(os.Args) > 1 {
		if v, err := strconv.Atoi(os.Args[1]); err == nil {
			n = v
		}
	}
	for range n {
		began := time.Now()
		pid, err := syscall.ForkExec("/bin/true", []string{"true"}, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}})
		if err == nil {
			var status syscall.WaitStatus
			_, err = syscall.Wait4(pid, &status, 0, nil)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(time.Since(began).Nanoseconds())
	}
}
