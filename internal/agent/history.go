package agent

import (
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/model"
	"perdure.dev/perdure/internal/session"
)

// group is what is kept or dropped together: one user message, or one answer with the results of its calls.
type group struct {
	pos  session.Position // of the message.user, message.agent or session.created event
	turn int              // counts turn.started events; 0 before the first
	msgs []model.Message
	size int64 // bytes as sent, roughly
}

func (g *group) add(m model.Message) {
	g.msgs = append(g.msgs, m)
	g.size += size(m)
}

// size estimates the bytes of a message in a request.
func size(m model.Message) int64 {
	const envelope = 40 // role, ids, punctuation
	n := int64(len(m.Text)+len(m.Native)) + envelope
	for _, c := range m.ToolCalls {
		if len(m.Native) == 0 { // else they are in it
			n += int64(len(c.Arguments) + len(c.Name) + envelope)
		}
	}
	return n
}

// history is the transcript of a timeline: session.View says what is open, and groups hold what was said.
type history struct {
	session id.Session
	view    session.View
	cursor  event.Seq // the last event of the session's own log that was taken in
	groups  []*group
	turns   int
	// waiting holds the texts of the messages in view.Pending.
	waiting map[id.Event]string
	// canceled is the position in the own log of the last session.canceled: messages before it wake nobody.
	canceled event.Seq
	goal     string
	copied   bool // a fork, or rolled back: the goal does not start by itself
	// moved holds the started calls during which the workspace changed its sandbox.
	moved map[id.Event]bool
	// saved holds the checkpoint that a started checkpoint call led to.
	saved   map[id.Event]event.CheckpointCreatedData
	missing []string // what the sandbox runs without
	trimmed bool     // something has been left out
	meter   meter
}

func newHistory(s id.Session) *history {
	return &history{
		session: s, waiting: map[id.Event]string{}, moved: map[id.Event]bool{},
		saved: map[id.Event]event.CheckpointCreatedData{}, meter: newMeter(),
	}
}

// fold takes in the next event of the timeline.
func (h *history) fold(e event.Event) error {
	before := h.view.Pending
	view, err := session.FoldView(h.view, e)
	if err != nil {
		return err
	}
	p, err := event.Decode(e)
	if err != nil {
		return err
	}
	h.view = view
	if e.SessionID == h.session {
		h.cursor = e.Seq
	}
	pos := session.Position{Session: e.SessionID, Seq: e.Seq}
	switch d := p.(type) {
	case *event.SessionCreatedData:
		h.create(pos, d)
	case *event.SessionRolledBackData, *event.SessionImportedData:
		h.copied = true
	case *event.SessionCanceledData:
		if e.SessionID == h.session {
			h.canceled = e.Seq
		}
	case *event.MessageUserData:
		h.waiting[e.ID] = d.Text
	case *event.TurnStartedData:
		h.turns++
		h.takeUp(before)
	case *event.ModelRequestedData:
		h.takeUp(before)
		h.meter.sent(h.visibleSize())
	case *event.ModelRespondedData:
		h.meter.measured(d.Usage)
	case *event.MessageAgentData:
		h.answer(pos, d)
	case *event.ToolFinishedData:
		h.result(d)
	case *event.ContextTrimmedData:
		h.forget()
	case *event.CheckpointCreatedData:
		h.checkpoint(d)
	case *event.WorkspaceStartedData:
		h.missing = d.Missing
		h.move()
	case *event.WorkspaceResumedData, *event.WorkspaceSuspendedData, *event.WorkspaceLostData:
		h.move()
	}
	return nil
}

func (h *history) create(pos session.Position, d *event.SessionCreatedData) {
	h.copied = d.Fork != nil
	if d.Goal == "" || d.Goal == h.goal {
		return // a fork goes on with its parent's goal, which stands already
	}
	h.goal = d.Goal
	g := &group{pos: pos, turn: h.turns}
	g.add(model.Message{Role: model.User, Text: d.Goal})
	h.groups = append(h.groups, g)
}

// takeUp adds to the transcript the messages that are no longer pending.
func (h *history) takeUp(before []session.Pending) {
	still := map[id.Event]bool{}
	for _, p := range h.view.Pending {
		still[p.EventID] = true
	}
	for _, p := range before {
		if still[p.EventID] {
			continue
		}
		g := &group{pos: p.Position, turn: h.turns}
		g.add(model.Message{Role: model.User, Text: orElse(h.waiting[p.EventID], "(empty message)")})
		delete(h.waiting, p.EventID)
		h.groups = append(h.groups, g)
	}
}

func (h *history) answer(pos session.Position, d *event.MessageAgentData) {
	g := &group{pos: pos, turn: h.turns}
	m := model.Message{Role: model.Assistant, Text: d.Text, ToolCalls: d.ToolCalls, Native: d.Native}
	if m.Text == "" && len(m.ToolCalls) == 0 {
		m.Text, m.Native = "(empty answer)", nil // what says nothing at all is refused by APIs
	}
	g.add(m)
	h.groups = append(h.groups, g)
}

// result puts the result of a call behind the newest answer that asks for it. There is at most one for each call, also if a
// log should hold two.
func (h *history) result(d *event.ToolFinishedData) {
	for i := len(h.groups) - 1; i >= 0; i-- {
		g := h.groups[i]
		if g.msgs[0].Role != model.Assistant {
			continue
		}
		for _, c := range g.msgs[0].ToolCalls {
			if c.CallID != d.CallID {
				continue
			}
			for _, m := range g.msgs[1:] {
				if m.CallID == d.CallID {
					return
				}
			}
			g.add(model.Message{
				Role: model.Tool, CallID: d.CallID, Text: orElse(d.Output, "(no output)"), Error: d.Outcome != event.OutcomeOK,
			})
			return
		}
	}
}

// forget lets go of what the view does not show any more, so that a long session does not grow in memory.
func (h *history) forget() {
	first := h.first()
	var kept []*group
	for i, g := range h.groups {
		if h.shows(i, first) {
			kept = append(kept, g)
		}
	}
	h.trimmed = h.trimmed || len(kept) < len(h.groups)
	h.groups = kept
}

func (h *history) move() {
	for _, t := range h.view.OpenTools {
		if t.Started {
			h.moved[t.Requested] = true
		}
	}
}

func (h *history) checkpoint(d *event.CheckpointCreatedData) {
	for _, t := range h.view.OpenTools {
		if t.Started && t.Name == "checkpoint" && d.Kind == event.KindAgent {
			h.saved[t.Requested] = *d
		}
	}
}

// abandoned reports whether something is open that belongs to another life.
func (h *history) abandoned() bool {
	if h.view.Turn != nil && h.view.Turn.Abandoned {
		return true
	}
	for _, t := range h.view.OpenTools {
		if t.Abandoned {
			return true
		}
	}
	return false
}

// triggered reports whether there is a reason to start a turn.
func (h *history) triggered() bool {
	if h.goal != "" && h.turns == 0 && !h.copied && h.canceled == 0 {
		return true
	}
	for _, p := range h.view.Pending {
		if !p.Inherited && p.Seq > h.canceled {
			return true
		}
	}
	return false
}

// stopAsked returns why the turn in progress is to end: reasonCanceled, reasonInterrupted, or "".
func (h *history) stopAsked() string {
	if h.view.Canceling {
		return reasonCanceled
	}
	for _, p := range h.view.Pending {
		if p.Delivery == event.Interrupt && !p.Inherited {
			return reasonInterrupted
		}
	}
	return ""
}

// answered reports whether the turn in progress has its answer and nothing has been said since.
func (h *history) answered() bool {
	for _, p := range h.view.Pending {
		if p.Delivery == event.Steer {
			return false
		}
	}
	if len(h.groups) == 0 {
		return false
	}
	g := h.groups[len(h.groups)-1]
	return g.turn == h.turns && g.msgs[0].Role == model.Assistant && len(g.msgs[0].ToolCalls) == 0
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// steering returns the messages that the next model request takes up.
func (h *history) steering() []session.Pending {
	var out []session.Pending
	for _, p := range h.view.Pending {
		if p.Delivery == event.Steer {
			out = append(out, p)
		}
	}
	return out
}
