package inside

import "golang.org/x/sys/unix"

// killRounds bounds the hunt for a command's processes. Each round kills what the one before missed because it was being forked.
const killRounds = 50

// killTree sends sig to every process of a command: its group, its descendants, and those that moved to a session of their
// own but carry its mark. SIGKILL is repeated until nothing is found, so that forking faster than we look does not help.
func killTree(c *command, sig unix.Signal) {
	if c.spec.Kind == "process" {
		c.g.mu.Lock()
		pid := c.pid
		c.g.mu.Unlock()
		if pid > 0 {
			unix.Kill(-pid, sig) // at once: the walk through /proc takes longer
		}
	}
	for range killRounds {
		targets := c.processes()
		if sig == unix.SIGKILL && len(targets) > 1 {
			for _, pid := range targets { // nobody forks any more while the others die
				unix.Kill(pid, unix.SIGSTOP)
			}
		}
		for _, pid := range targets {
			unix.Kill(pid, sig)
		}
		if len(targets) == 0 || sig != unix.SIGKILL {
			return
		}
	}
}

// processes returns the pids of the command's live processes, without the interpreter that runs it.
func (c *command) processes() []int {
	all := readProcs()
	o := c.g.owners()
	var pids []int
	for _, p := range all {
		if _, interpreter := o.shells[p.pid]; interpreter || p.state == "Z" || p.state == "X" {
			continue
		}
		if o.owner(all, p) == c.spec.ID {
			pids = append(pids, p.pid)
		}
	}
	return pids
}
