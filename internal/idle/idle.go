// Package idle decides when a session that nobody uses is put to sleep.
//
// A hot session is looked at now and then by one Scheduler; one that sleeps is not in it. Each look collects the reasons for which the
// session is in use, and asks a Policy what is next. Reasons come from named sources, so that whatever is added later, such as an approval
// that is waited for, says in one place whether it keeps the session awake.
//
// # Guarantees
//
//   - A session is in use while it has a reason that does not say MaySleep, and for the policy's time after the last one.
//   - Looking at a session, and listing or following it, is no use.
//   - What is decided depends on times that the log keeps, so that a daemon that restarts decides the same.
package idle

import "time"

// Source names what a reason comes from.
type Source string

// The sources.
const (
	Turn      Source = "turn"      // the agent is at work
	Model     Source = "model"     // a model call is in flight
	Tool      Source = "tool"      // a tool call runs
	Command   Source = "command"   // a command runs that a client waits for
	Terminal  Source = "terminal"  // a client has a terminal open
	Files     Source = "files"     // files are read or written
	Access    Source = "access"    // a command is being started, or gets input
	Port      Source = "port"      // a connection to a forwarded port is open
	CPU       Source = "cpu"       // processes compute
	Operation Source = "operation" // the workspace is being checkpointed, moved or the like
)

// Reason is one that a session is in use for, or waits for.
type Reason struct {
	Source   Source
	Detail   string // for people
	Since    time.Time
	MaySleep bool // it waits for somebody or some time: no RAM is needed for that
}

// Policy is after how much idleness what is done. Zero means never.
type Policy struct {
	Pause   time.Duration
	Suspend time.Duration
}

// Facts are what a Policy decides about.
type Facts struct {
	Paused  bool
	Active  time.Time // when it was last in use
	Reasons []Reason
}

// Action is what to do with a session.
type Action string

// The actions.
const (
	Wait    Action = "wait" // look again at Step.At; never, if that is zero
	Pause   Action = "pause"
	Suspend Action = "suspend"
)

// Step is what comes next.
type Step struct {
	Do    Action
	At    time.Time     // when to look again, of Wait
	After time.Duration // the idleness that was waited for, of the others
}

// LookEvery is how often a session is looked at that runs: whether processes compute is seen by looking twice.
const LookEvery = time.Minute

// Busy reports whether a reason keeps a session awake.
func Busy(reasons []Reason) bool {
	for _, r := range reasons {
		if !r.MaySleep {
			return true
		}
	}
	return false
}

// Next returns what to do now.
func (p Policy) Next(now time.Time, f Facts) Step {
	if p.Pause <= 0 && p.Suspend <= 0 {
		return Step{Do: Wait}
	}
	if Busy(f.Reasons) {
		return Step{Do: Wait, At: now.Add(min(LookEvery, p.First()))}
	}
	idle := now.Sub(f.Active)
	if p.Suspend > 0 && idle >= p.Suspend {
		return Step{Do: Suspend, After: p.Suspend}
	}
	if p.Pause > 0 && !f.Paused && idle >= p.Pause {
		return Step{Do: Pause, After: p.Pause}
	}
	at := p.due(f)
	if soon := now.Add(LookEvery); !f.Paused && !at.IsZero() && soon.Before(at) {
		at = soon
	}
	return Step{Do: Wait, At: at}
}

// Due returns when the session is paused and suspended if nobody uses it until then; zero: never, or it is.
func (p Policy) Due(f Facts) (pause, suspend time.Time) {
	if Busy(f.Reasons) {
		return pause, suspend
	}
	if p.Pause > 0 && !f.Paused {
		pause = f.Active.Add(p.Pause)
	}
	if p.Suspend > 0 {
		suspend = f.Active.Add(p.Suspend)
	}
	return pause, suspend
}

func (p Policy) due(f Facts) time.Time {
	pause, suspend := p.Due(Facts{Paused: f.Paused, Active: f.Active})
	if pause.IsZero() || !suspend.IsZero() && suspend.Before(pause) {
		return suspend
	}
	return pause
}

// First is the shortest idleness after which something is done; 0: nothing ever is.
func (p Policy) First() time.Duration {
	if p.Pause <= 0 || p.Suspend > 0 && p.Suspend < p.Pause {
		return p.Suspend
	}
	return p.Pause
}
