package link

import (
	"context"

	"perdure.dev/perdure/internal/guest/wire"
)

// Confine bounds how many processes and threads the commands may have at a time, and by the sandbox's memory how much may lie in /dev/shm;
// 0: as much as they like. Errors: limit_unsupported, or guest_method from a guest that is older than this.
func (l *Link) Confine(ctx context.Context, processes int, memory int64) error {
	_, err := l.call(ctx, wire.MethodConfine, wire.ConfineArgs{Processes: processes, Memory: memory}, nil, nil)
	return err
}

// Killed is a process that was killed because memory was short.
type Killed struct {
	PID  int
	Name string
	RSS  int64 // bytes
}

// Relieve kills the process that holds the most memory, because the sandbox holds more than limit bytes. It returns when the process is
// gone, or nil when there was none to kill.
func (l *Link) Relieve(ctx context.Context, limit int64) (*Killed, error) {
	var res wire.RelieveResult
	if _, err := l.call(ctx, wire.MethodRelieve, wire.RelieveArgs{Limit: limit}, nil, &res); err != nil || res.PID == 0 {
		return nil, err
	}
	return &Killed{PID: res.PID, Name: clip(res.Name), RSS: res.RSS}, nil
}
