package agent

import (
	"context"
	"fmt"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/session"
	"perdure.dev/perdure/internal/tool"
)

// The reasons for which a turn ends; see event.TurnFinishedData.
const (
	reasonAnswered    = "answered"
	reasonFinished    = "finished"
	reasonCanceled    = "canceled"
	reasonInterrupted = "interrupted"
	reasonLimit       = "limit"
	reasonFailed      = "failed"
)

func (r *run) turnFinished(reason string) event.Draft {
	d := event.Draft{Type: event.TurnFinished, Data: event.TurnFinishedData{Reason: reason}}
	if t := r.hist.view.Turn; t != nil {
		d.CausationID = t.EventID
	}
	return d
}

// startTurn takes up what waits: everything but queued messages, of which only the first goes in, and only if there is
// nothing else. Messages that waited behind a cancel or a cut come along.
func (r *run) startTurn(ctx context.Context) error {
	seqs := []event.Seq{}
	var queued []event.Seq
	for _, p := range r.hist.view.Pending {
		if p.Delivery == event.Queue && !p.Inherited && p.Seq > r.hist.canceled {
			queued = append(queued, p.Seq)
		} else {
			seqs = append(seqs, p.Seq)
		}
	}
	goalWaits := r.hist.goal != "" && r.hist.turns == 0
	if len(queued) > 0 && (len(seqs) == 0 && !goalWaits || r.onlyOld(seqs)) {
		seqs = append(seqs, queued[0])
	}
	return r.append(ctx, event.Draft{Type: event.TurnStarted, Data: event.TurnStartedData{Messages: seqs}})
}

// onlyOld reports whether the messages would start no turn by themselves.
func (r *run) onlyOld(seqs []event.Seq) bool {
	old := map[event.Seq]bool{}
	for _, p := range r.hist.view.Pending {
		old[p.Seq] = p.Inherited || p.Seq <= r.hist.canceled
	}
	for _, s := range seqs {
		if !old[s] {
			return false
		}
	}
	return len(seqs) > 0
}

// closeAbandoned ends what was open at the cut that this life of the session began with.
func (r *run) closeAbandoned(ctx context.Context) error {
	var drafts []event.Draft
	for _, t := range r.hist.view.OpenTools {
		drafts = append(drafts, r.finished(t, abandonedResult(t), 0, false))
	}
	if r.hist.view.Turn != nil {
		drafts = append(drafts, r.turnFinished(reasonInterrupted))
	}
	return r.append(ctx, drafts...)
}

func abandonedResult(t session.OpenTool) tool.Result {
	text := "Not run: the session was continued from a checkpoint taken before this call."
	switch {
	case t.Started && t.Name == "checkpoint":
		text = "The session was continued from a checkpoint taken during this call."
	case t.Started:
		text = "Interrupted: the session was continued from a checkpoint taken while this call was in progress. " +
			"Its result is not known here; a copy of its process may be running. Look at the actual state before you repeat it."
	}
	return tool.Result{Outcome: event.OutcomeInterrupted, Output: text}
}

// stopTurn ends the turn in progress because the user asked for it: what runs is signalled, what is open is closed.
func (r *run) stopTurn(ctx context.Context, reason string) error {
	return r.closeTurn(ctx, "the user asked to stop", nil, reason)
}

// limitTurn ends the turn in progress because a limit is reached.
func (r *run) limitTurn(ctx context.Context, l event.LimitData) error {
	text := fmt.Sprintf("the limit %s is reached (%d of %d)", l.Limit, l.Used, l.Max)
	return r.closeTurn(ctx, text, []event.Draft{{Type: event.LimitReached, Data: l}}, reasonLimit)
}

// failTurn ends the turn in progress because it cannot go on. A new message starts the next one.
func (r *run) failTurn(ctx context.Context, cause error) error {
	r.log.Warn("turn failed", "err", cause, "code", errdefs.CodeOf(cause))
	drafts, err := r.closeOpen(ctx, "the turn failed: "+cause.Error())
	if err != nil {
		return err
	}
	drafts = append(drafts, r.turnFinished(reasonFailed), event.Draft{Type: event.SessionFailed, Data: event.SessionFailedData{
		Code: errdefs.CodeOf(cause), Message: cause.Error(), Hint: errdefs.HintOf(cause),
	}})
	return r.append(ctx, drafts...)
}

// closeTurn closes the open calls, then appends first, then the end of the turn, all at once.
func (r *run) closeTurn(ctx context.Context, why string, first []event.Draft, reason string) error {
	drafts, err := r.closeOpen(ctx, why)
	if err != nil {
		return err
	}
	drafts = append(drafts, first...)
	return r.append(ctx, append(drafts, r.turnFinished(reason))...)
}

// closeOpen returns the results of all open calls, after it has stopped the one that runs.
func (r *run) closeOpen(ctx context.Context, why string) ([]event.Draft, error) {
	var drafts []event.Draft
	for _, t := range r.hist.view.OpenTools {
		res := tool.Result{Outcome: event.OutcomeCanceled, Output: "Not run: " + why + "."}
		if t.Started {
			var err error
			if res, err = r.cancelCall(ctx, t, why); err != nil {
				return nil, err
			}
		}
		drafts = append(drafts, r.finished(t, res, 0, false))
	}
	if m := r.hist.view.OpenModel; m != nil {
		drafts = append(drafts, event.Draft{Type: event.ModelFailed, CausationID: m.EventID, Data: event.ModelFailedData{
			Code: "model_canceled", Message: why,
		}})
	}
	return drafts, nil
}
