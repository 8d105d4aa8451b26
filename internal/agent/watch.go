package agent

import (
	"context"
	"errors"

	"perdure.dev/perdure/internal/event"
)

// Why a step was stopped before its end.
var (
	errStopAsked = errors.New("the user asked to stop")
	errTurnTime  = errors.New("the turn's time is up")
)

// watched runs step under a context that ends when a cancel or an interrupt arrives, or when the turn's time is up.
// It returns after step has returned and the watchers have ended.
func (r *run) watched(ctx context.Context, step func(ctx context.Context) error) error {
	stepCtx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	done := make(chan struct{}, 2)
	n := 1
	after := r.hist.cursor // read here: the step itself moves it, and a cancel that it passes over must still be seen
	go func() { r.watchLog(stepCtx, stop, after); done <- struct{}{} }()
	if left := r.limits.TurnTime - r.turnAge(); r.limits.TurnTime > 0 && r.hist.view.Turn != nil {
		n++
		go func() {
			if r.opt.Clock.Sleep(stepCtx, max(left, 0)) == nil {
				stop(errTurnTime)
			}
			done <- struct{}{}
		}()
	}
	err := step(stepCtx)
	stop(nil)
	for range n {
		<-done
	}
	return err
}

// watchLog ends the step when somebody appends a cancel or an interrupt behind after. Reading errors are left to the main
// goroutine, which reads the same events later.
func (r *run) watchLog(ctx context.Context, stop context.CancelCauseFunc, after event.Seq) {
	for {
		for e, err := range r.host.Events(ctx, after) {
			if err != nil {
				break
			}
			after = e.Seq
			if stops(e) {
				stop(errStopAsked)
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-r.host.Changed():
		}
	}
}

func stops(e event.Event) bool {
	switch e.Type {
	case event.SessionCanceled:
		return true
	case event.MessageUser:
		d, err := event.DecodeData[event.MessageUserData](e)
		return err == nil && d.Delivery == event.Interrupt
	}
	return false
}
