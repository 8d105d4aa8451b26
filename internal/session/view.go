package session

import (
	"slices"

	"perdure.dev/perdure/internal/event"
)

// Position returns the place of the last event folded.
func (v View) Position() Position { return Position{Session: v.Log, Seq: v.Seq} }

// FoldView returns the view after e, the next event of the timeline. The argument is not changed.
func FoldView(v View, e event.Event) (View, error) {
	v.Log, v.Seq = e.SessionID, e.Seq
	v.Events++
	pos := Position{Session: e.SessionID, Seq: e.Seq}
	switch e.Type {
	case event.SessionCreated, event.SessionRolledBack, event.SessionImported:
		// The first event of a life: whatever is open here was opened in another one. (A plain birth has nothing open.)
		v.abandon()
		return v, nil
	case event.SessionCanceled:
		v.Canceling = v.Turn != nil
		return v, nil
	case event.MessageUser, event.MessageAgent, event.TurnStarted, event.TurnFinished, event.ModelRequested, event.ModelResponded,
		event.ModelFailed, event.ContextTrimmed, event.ToolRequested, event.ToolStarted, event.ToolFinished, event.SessionFinished,
		event.LimitWarned:
	default:
		return v, nil
	}
	p, err := event.Decode(e)
	if err != nil {
		return v, err
	}
	switch d := p.(type) {
	case *event.MessageUserData:
		v.Pending = append(slices.Clip(v.Pending), Pending{Position: pos, EventID: e.ID, Delivery: d.Delivery})
	case *event.TurnStartedData:
		v.takeUp(e.SessionID, d.Messages)
		v.Turn = &Turn{Position: pos, EventID: e.ID, Started: e.CreatedAt, Messages: d.Messages}
		v.Finished, v.Canceling = nil, false
	case *event.TurnFinishedData:
		v.Turn, v.OpenModel, v.Canceling = nil, nil, false
	case *event.SessionFinishedData:
		v.Finished = d
	case *event.LimitData:
		v.warned(d.Limit)
	case *event.ContextTrimmedData:
		v.KeepFrom = &Position{Session: e.SessionID, Seq: d.KeepFrom}
		if d.KeepSession != "" {
			v.KeepFrom.Session = d.KeepSession
		}
	case *event.MessageAgentData:
		for _, c := range d.ToolCalls {
			v.OpenTools = append(slices.Clip(v.OpenTools), openTool(c, pos))
		}
	case *event.ModelRequestedData:
		v.requestModel(e, d)
	case *event.ModelRespondedData:
		v.OpenModel = nil
		v.addUsage(d.Usage)
	case *event.ModelFailedData:
		v.OpenModel = nil
	default:
		v.foldTool(e, p)
	}
	return v, nil
}

// abandon marks everything open as belonging to another life.
func (v *View) abandon() {
	v.Canceling = false
	v.Pending = slices.Clone(v.Pending)
	for i := range v.Pending {
		v.Pending[i].Inherited = true
	}
	v.OpenTools = slices.Clone(v.OpenTools)
	for i := range v.OpenTools {
		v.OpenTools[i].Abandoned = true
	}
	if v.Turn != nil {
		t := *v.Turn
		t.Abandoned = true
		v.Turn = &t
	}
	if v.OpenModel != nil {
		m := *v.OpenModel
		m.Abandoned = true
		v.OpenModel = &m
	}
}

// takeUp removes the messages that a turn answers. Seqs count in the log of the turn; one that names no waiting message
// there means a message that was waiting at the cut.
func (v *View) takeUp(log ID, seqs []event.Seq) {
	for _, seq := range seqs {
		i := slices.Index(v.positions(), Position{Session: log, Seq: seq})
		if i < 0 {
			i = slices.IndexFunc(v.Pending, func(p Pending) bool { return p.Inherited && p.Seq == seq })
		}
		if i >= 0 {
			v.Pending = slices.Delete(slices.Clone(v.Pending), i, i+1)
		}
	}
	if len(v.Pending) == 0 {
		v.Pending = nil
	}
}

func (v *View) positions() []Position {
	out := make([]Position, len(v.Pending))
	for i, p := range v.Pending {
		out[i] = p.Position
	}
	return out
}

// requestModel opens a model request. It carries whatever stands in the timeline, so steering messages have arrived by it.
func (v *View) requestModel(e event.Event, d *event.ModelRequestedData) {
	v.OpenModel = &OpenModel{Position: Position{Session: e.SessionID, Seq: e.Seq}, EventID: e.ID, Attempt: d.Attempt}
	v.Pending = without(v.Pending, func(p Pending) bool { return p.Delivery == event.Steer })
	if v.Turn != nil && d.Attempt <= 1 {
		t := *v.Turn
		t.Steps++
		v.Turn = &t
	}
}

func (v *View) warned(limit string) {
	if v.Turn == nil {
		return
	}
	t := *v.Turn
	t.Warned = addName(t.Warned, limit)
	v.Turn = &t
}

func (v *View) addUsage(u event.Usage) {
	if v.Turn == nil {
		return
	}
	t := *v.Turn
	t.Usage.Input += u.Input
	t.Usage.Output += u.Output
	t.Usage.Cached += u.Cached
	t.Usage.CostMicros += u.CostMicros
	v.Turn = &t
}

func openTool(c event.ToolCall, message Position) OpenTool {
	return OpenTool{CallID: c.CallID, Name: c.Name, Arguments: c.Arguments, Cut: c.Cut, Message: message}
}

// foldTool follows a tool call from its request to its result. Call ids are unique in a message only, so the newest open
// call of that id is meant.
func (v *View) foldTool(e event.Event, p any) {
	find := func(call string) int {
		for i := len(v.OpenTools) - 1; i >= 0; i-- {
			if v.OpenTools[i].CallID == call {
				return i
			}
		}
		return -1
	}
	v.OpenTools = slices.Clone(v.OpenTools)
	switch d := p.(type) {
	case *event.ToolRequestedData:
		i := find(d.CallID)
		if i < 0 || v.OpenTools[i].Requested != "" {
			v.OpenTools = append(v.OpenTools, openTool(d.ToolCall, Position{}))
			i = len(v.OpenTools) - 1
		}
		v.OpenTools[i].Requested = e.ID
	case *event.ToolStartedData:
		if i := find(d.CallID); i >= 0 {
			v.OpenTools[i].Started, v.OpenTools[i].ExecID = true, d.ExecID
		}
	case *event.ToolFinishedData:
		if i := find(d.CallID); i >= 0 {
			v.OpenTools = slices.Delete(v.OpenTools, i, i+1)
		}
	}
	if len(v.OpenTools) == 0 {
		v.OpenTools = nil
	}
}
