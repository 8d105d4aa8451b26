package session

import (
	"time"

	"perdure.dev/perdure/internal/event"
)

// LimitExpire is the name of the limit on how long a session is awake in all, in LimitWarned and LimitReached.
const LimitExpire = "expire_after_ns"

// Life is how long a workspace has run, and since when it is what it is. Time that it is paused or asleep is not time that it is awake.
type Life struct {
	Awake time.Duration `json:"awake_ns,omitempty"` // of all times that are over
	Since time.Time     `json:"since,omitzero"`     // awake since then; zero: it is not
	Moved time.Time     `json:"moved,omitzero"`     // its state has been the same since then
	Asked bool          `json:"asked,omitempty"`    // somebody asked for that state; the runtime did not choose it
}

// AwakeAt returns how long the workspace had been awake in all at a time.
func (l Life) AwakeAt(now time.Time) time.Duration {
	if l.Since.IsZero() || now.Before(l.Since) {
		return l.Awake
	}
	return l.Awake + now.Sub(l.Since)
}

func (l *Life) fold(e event.Event, p any) {
	reason := ""
	switch d := p.(type) {
	case *event.WorkspaceStartedData, *event.WorkspaceResumedData, *event.WorkspaceLostData:
	case *event.WorkspacePausedData:
		reason = d.Reason
	case *event.WorkspaceSuspendedData:
		reason = d.Reason
	case *event.SessionImportedData:
		// What runs on elsewhere is another's life: this one's stood still from the export on.
		l.Awake, l.Since = l.AwakeAt(d.ExportedAt), time.Time{}
	default:
		return
	}
	l.Awake, l.Since = l.AwakeAt(e.CreatedAt), time.Time{}
	switch e.Type {
	case event.WorkspaceStarted, event.WorkspaceResumed, event.WorkspaceUnpaused:
		l.Since = e.CreatedAt
	}
	l.Moved, l.Asked = e.CreatedAt, reason == ""
}
