package inside

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/internal/guest/wire"
)

const (
	deathTime = 5 * time.Second      // how long relieve waits for a killed process to go
	deathLook = 2 * time.Millisecond // how often it looks meanwhile
)

// innocent is the part of the limit below which the processes are not to blame: then it is files in memory that fill it, or what an ended
// process held is on its way out.
const innocent = 4

// relieve kills the process that holds the most memory, since the sandbox's limit is reached, and returns when it is gone. The kernel on
// the host could only kill the sandbox as a whole.
func (g *Guest) relieve(a wire.RelieveArgs) (any, error) {
	all := readProcs()
	var victim proc
	var held int64
	for _, p := range all {
		if p.state == "Z" || p.state == "X" {
			continue
		}
		held += p.rss
		if p.rss > victim.rss {
			victim = p
		}
	}
	if victim.pid == 0 || held < a.Limit/innocent {
		return wire.RelieveResult{}, nil
	}
	res := wire.RelieveResult{PID: victim.pid, Name: victim.comm, RSS: victim.rss}
	g.tell(g.owners().owner(all, victim), fmt.Sprintf("%s (process %d) held %d MiB of memory and was killed: the workspace has reached its limit of %d MiB",
		victim.comm, victim.pid, victim.rss>>20, a.Limit>>20))
	if err := unix.Kill(victim.pid, unix.SIGKILL); err != nil {
		return res, nil // it has just ended by itself
	}
	for end := time.Now().Add(deathTime); time.Now().Before(end); time.Sleep(deathLook) {
		if p, there := readProc(victim.pid); !there || p.start != victim.start || p.state == "Z" || p.state == "X" {
			break
		}
	}
	return res, nil
}

// tell notes what befell a process with the command that it belongs to.
func (g *Guest) tell(exec, note string) {
	g.mu.Lock()
	c := g.execs[exec]
	g.mu.Unlock()
	if c == nil {
		g.log.Info(note)
		return
	}
	g.out.mu.Lock()
	defer g.out.mu.Unlock()
	c.note = note
}
