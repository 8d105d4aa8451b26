package agent

import (
	"context"
	"errors"
	"time"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/model"
)

// ask calls the model once (with retries) and appends its answer.
func (r *run) ask(ctx context.Context) error {
	if reached, err := r.checkLimits(ctx); err != nil {
		return err
	} else if reached != nil {
		return r.limitTurn(ctx, *reached)
	}
	if r.provider == nil {
		p, err := r.opt.Models.Open(ctx, r.spec.Model)
		if err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return r.failTurn(ctx, err)
		}
		r.provider = p
	}
	r.hist.meter.overhead = int64(len(r.systemPrompt())) + toolsSize(r.opt.Tools.Specs())
	if err := r.trim(ctx); err != nil {
		return err
	}
	var resp model.Response
	var q question
	var stepCtx context.Context
	err := r.watched(ctx, func(step context.Context) (err error) {
		stepCtx = step
		resp, err = r.retry(ctx, step, &q)
		return err
	})
	var fatal *hostError
	switch {
	case err == nil:
		return r.answer(ctx, q, resp)
	case errors.As(err, &fatal):
		return fatal.err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(context.Cause(stepCtx), errTurnTime):
		return r.limitTurn(ctx, r.timeLimit())
	case errors.Is(context.Cause(stepCtx), errStopAsked):
		return r.sync(ctx) // the next round sees who asked
	case r.shrink(err):
		return nil // the next round trims and asks again
	}
	return r.failTurn(ctx, err)
}

func (r *run) timeLimit() event.LimitData {
	return event.LimitData{Limit: limitTime, Used: int64(max(r.turnAge(), r.limits.TurnTime)), Max: int64(r.limits.TurnTime)}
}

// question is one model request in the log.
type question struct {
	id    id.Event
	start int64 // milliseconds, by the injected clock
}

// hostError is an error of the runtime, as opposed to one of the model.
type hostError struct{ err error }

func (e *hostError) Error() string { return e.err.Error() }
func (e *hostError) Unwrap() error { return e.err }

func (r *run) retry(ctx, step context.Context, q *question) (model.Response, error) {
	var messages []model.Message
	obs := model.Attempt{
		Before: func(attempt int) error {
			q.id = id.NewEvent()
			err := r.append(ctx, event.Draft{ID: q.id, Type: event.ModelRequested, Data: event.ModelRequestedData{
				Model: r.spec.Model, Messages: len(r.hist.messages()) + len(r.hist.steering()) + 1, Attempt: attempt,
			}})
			if err != nil {
				return &hostError{err}
			}
			// Only now: what has arrived up to this event is taken up by it.
			messages = append([]model.Message{{Role: model.System, Text: r.systemPrompt()}}, r.hist.messages()...)
			q.start = r.opt.Clock.Now().UnixMilli()
			return model.CheckHistory(messages)
		},
		Failed: func(_ int, e *model.Error, again bool, delay time.Duration) error {
			err := r.append(ctx, event.Draft{Type: event.ModelFailed, CausationID: q.id, Data: event.ModelFailedData{
				Code: errdefs.CodeOf(e), Message: e.Error(), Retry: again, Delay: delay.Milliseconds(),
			}})
			if err != nil {
				return &hostError{err}
			}
			return nil
		},
	}
	return model.Retry(step, r.opt.Clock, r.opt.Retry, obs, func(c context.Context, _ int) (model.Response, error) {
		return r.provider.Chat(c, model.Request{Messages: messages, Tools: r.opt.Tools.Specs()}, func(d model.Delta) {
			r.host.Delta(Delta{Request: q.id, Delta: d})
		})
	})
}

// answer appends a finished answer with all its calls, at once.
func (r *run) answer(ctx context.Context, q question, resp model.Response) error {
	resp.Usage.CostMicros = r.opt.Prices.Cost(r.spec.Model, resp.Usage)
	message := id.NewEvent()
	drafts := []event.Draft{
		{ID: message, Type: event.MessageAgent, CausationID: q.id, Data: event.MessageAgentData{
			Text: resp.Text, ToolCalls: resp.ToolCalls, Native: resp.Native,
		}},
		{Type: event.ModelResponded, CausationID: q.id, Data: event.ModelRespondedData{
			StopReason: string(resp.Stop), Usage: resp.Usage, DurationMS: r.opt.Clock.Now().UnixMilli() - q.start,
		}},
	}
	for _, c := range resp.ToolCalls {
		drafts = append(drafts, event.Draft{
			ID: id.NewEvent(), Type: event.ToolRequested, CausationID: message, Data: event.ToolRequestedData{ToolCall: c},
		})
	}
	return r.append(ctx, drafts...)
}

// shrink makes the window smaller after the model has said that a request was too long, as long as there is something to
// leave out.
func (r *run) shrink(err error) bool {
	var e *model.Error
	if !errors.As(err, &e) || e.Class != model.ContextTooLong {
		return false
	}
	h := r.hist
	if h.first() >= len(h.groups)-1 {
		return false
	}
	was := h.meter.tokens(h.visibleSize() + h.meter.overhead)
	r.window = int(was) // of which budget takes off room for the answer, and trim a quarter
	return h.cut(r.budget()*3/4) > h.first()
}

func toolsSize(specs []model.ToolSpec) int64 {
	var n int64
	for _, s := range specs {
		n += int64(len(s.Name) + len(s.Description) + len(s.Schema) + 60)
	}
	return n
}
