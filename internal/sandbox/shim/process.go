package shim

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// startField is the index of the start time in /proc/PID/stat, counted after the command's closing parenthesis (see proc(5)).
const startField = 19

// ProcessOf returns the running process pid, with its start time.
func ProcessOf(name string, pid int) (Process, error) {
	start, err := startTime(pid)
	if err != nil {
		return Process{}, err
	}
	return Process{Name: name, PID: pid, Start: start}, nil
}

// Alive reports whether that very process still exists and is no zombie.
func (p Process) Alive() bool {
	start, err := startTime(p.PID)
	return err == nil && start == p.Start
}

// Kill sends SIGKILL if it is still that process.
func (p Process) Kill() {
	// The pidfd pins the process: between the check and the signal its id cannot pass to another.
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if p.Alive() {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) // it may have ended meanwhile, which is what we want
	}
}

// killMarked kills every process with the marker in its environment, until there is none.
func killMarked(marker string) {
	for {
		found := false
		dirs, err := filepath.Glob("/proc/[0-9]*")
		if err != nil {
			return // only for a malformed pattern
		}
		for _, dir := range dirs {
			pid, err := strconv.Atoi(filepath.Base(dir))
			if err != nil || pid == os.Getpid() {
				continue
			}
			p, err := ProcessOf("", pid)
			if err != nil {
				continue // ended meanwhile, or a zombie
			}
			if env, err := os.ReadFile(filepath.Join(dir, "environ")); err == nil && slices.Contains(strings.Split(string(env), "\x00"), marker) {
				found = true
				p.Kill()
			}
		}
		if !found {
			return
		}
	}
}

func startTime(pid int) (uint64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, ok := strings.Cut(string(b), ") ")
	fields := strings.Fields(rest)
	if !ok || len(fields) <= startField {
		return 0, fmt.Errorf("unreadable /proc/%d/stat", pid)
	}
	if fields[0] == "Z" || fields[0] == "X" {
		return 0, os.ErrProcessDone
	}
	return strconv.ParseUint(fields[startField], 10, 64)
}
