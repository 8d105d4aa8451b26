package agent

import (
	"context"

	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/model"
)

// meter turns bytes into tokens, by what the model has reported for earlier requests.
type meter struct {
	bytesPerToken float64
	overhead      int64 // bytes of the system prompt and the tools
	last          int64 // bytes of the last request
}

const defaultBytesPerToken = 4

func newMeter() meter { return meter{bytesPerToken: defaultBytesPerToken} }

func (m *meter) sent(bytes int64) { m.last = bytes + m.overhead }

// measured calibrates the meter. Small requests say little, and numbers that cannot be are left alone.
func (m *meter) measured(u event.Usage) {
	const enough = 500 // tokens
	if u.Input < enough || m.last == 0 || m.overhead == 0 {
		return
	}
	if r := float64(m.last) / float64(u.Input); r >= 1 && r <= 10 {
		m.bytesPerToken = r
	}
}

func (m *meter) tokens(bytes int64) int64 { return int64(float64(bytes) / m.bytesPerToken) }

// first returns the index of the first group that the view shows, after the goal.
func (h *history) first() int {
	if k := h.view.KeepFrom; k != nil {
		for i, g := range h.groups {
			if g.pos == *k {
				return i
			}
		}
	}
	return 0
}

// shows reports whether the view shows group i when it starts with group first. Before that it still shows the goal, which is
// the conversation's first message, and what the user said in the turn that the view starts in.
func (h *history) shows(i, first int) bool {
	g := h.groups[i]
	return i >= first || i == 0 || g.turn == h.groups[first].turn && g.msgs[0].Role == model.User
}

func (h *history) sizeFrom(first int) int64 {
	var n int64
	for i, g := range h.groups {
		if h.shows(i, first) {
			n += g.size
		}
	}
	return n
}

func (h *history) visibleSize() int64 { return h.sizeFrom(h.first()) }

// messages returns what the model is to see, without the system prompt.
func (h *history) messages() []model.Message {
	first := h.first()
	var out []model.Message
	for i, g := range h.groups {
		if h.shows(i, first) {
			out = append(out, g.msgs...)
		}
	}
	return out
}

// cut returns where the view has to start so that it has at most budget tokens: at the oldest turn with which it fits, or,
// where the newest turn alone is too much, within that turn. It never leaves out the newest group.
func (h *history) cut(budget int64) int {
	fits := func(i int) bool { return h.meter.tokens(h.sizeFrom(i)+h.meter.overhead) <= budget }
	last := len(h.groups) - 1
	inner := -1
	for i := h.first() + 1; i <= last; i++ {
		starts := h.groups[i].turn != h.groups[i-1].turn
		if starts && fits(i) {
			return i
		}
		if h.groups[i].turn == h.groups[last].turn && (starts || h.groups[i].msgs[0].Role == model.Assistant) {
			if inner < 0 && fits(i) {
				inner = i
			}
		}
	}
	if inner < 0 {
		return last
	}
	return inner
}

// trim drops the oldest turns when the view outgrows the window, and says so in the log.
func (r *run) trim(ctx context.Context) error {
	h := r.hist
	budget := r.budget()
	if budget <= 0 || len(h.groups) == 0 {
		return nil
	}
	if h.meter.tokens(h.visibleSize()+h.meter.overhead) <= budget {
		return nil
	}
	was := h.first()
	now := h.cut(budget * 3 / 4) // some room, so that not every step trims and every provider cache is lost
	if now <= was {
		return nil
	}
	dropped := h.sizeFrom(was) - h.sizeFrom(now)
	turns := h.groups[now].turn - h.groups[was].turn
	keep := h.groups[now].pos
	r.log.Info("context trimmed", "turns", turns, "tokens", h.meter.tokens(dropped))
	data := event.ContextTrimmedData{KeepFrom: keep.Seq, Turns: turns, Tokens: h.meter.tokens(dropped)}
	if keep.Session != h.session {
		data.KeepSession = keep.Session
	}
	return r.append(ctx, event.Draft{Type: event.ContextTrimmed, Data: data})
}

// budget is how many tokens a request may have; 0 means that nobody knows.
func (r *run) budget() int64 {
	window, output := r.limits.ContextSize, 0
	if r.provider != nil {
		info := r.provider.Info()
		output = info.MaxOutput
		if window == 0 {
			window = info.ContextWindow
		}
	}
	if r.window > 0 && (window == 0 || r.window < window) {
		window = r.window
	}
	if window == 0 {
		return 0
	}
	if output == 0 || output > window/4 {
		output = window / 4
	}
	return int64(window - output)
}
