package daemon

import (
	"context"

	"perdure.dev/perdure/internal/event"
)

// stepLog is a log whose every append is a named point on both sides.
type stepLog struct {
	event.Log
	step func(point string)
}

// stepped makes the appends of log known to step, if there is one.
func stepped(log event.Log, step func(point string)) event.Log {
	if step == nil {
		return log
	}
	return stepLog{log, step}
}

func (l stepLog) Append(ctx context.Context, a event.Append) ([]event.Event, error) {
	name := ""
	for _, d := range a.Events {
		name += " " + string(d.Type)
	}
	l.step("append" + name)
	stored, err := l.Log.Append(ctx, a)
	l.step("appended" + name)
	return stored, err
}
