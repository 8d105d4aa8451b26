package session_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/session"
)

// world makes random histories and keeps beside them a model so naive that it is right by looking at it: for each length of
// each log, the timeline as a plain list of places.
type world struct {
	*memLog
	rand     *rand.Rand
	lines    map[session.ID][][]session.Position // lines[s][n]: the timeline when the log of s had n events
	trackers map[session.ID]*session.Tracker     // fed event by event
	cuts     map[session.ID][]checkpoint         // those that a session can go back to, its ancestors' included
	order    []session.ID
	calls    int
}

type checkpoint struct {
	id id.Checkpoint
	at session.Position
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{
		memLog: newMemLog(t), rand: rand.New(rand.NewPCG(seed, 1)), lines: map[session.ID][][]session.Position{},
		trackers: map[session.ID]*session.Tracker{}, cuts: map[session.ID][]checkpoint{},
	}
	w.birth(w.memLog.create("first", nil), nil)
	return w
}

func (w *world) birth(sid session.ID, before []session.Position) {
	w.order = append(w.order, sid)
	w.lines[sid] = [][]session.Position{nil, append(slices.Clone(before), session.Position{Session: sid, Seq: 1})}
	w.trackers[sid] = w.load(sid)
}

// put appends an event whose timeline continues before (nil: the present one).
func (w *world) put(sid session.ID, before []session.Position, typ event.Type, data any) event.Event {
	w.t.Helper()
	e := w.add(sid, typ, data)
	if before == nil {
		before = w.lines[sid][e.Seq-1]
	}
	w.lines[sid] = append(w.lines[sid], append(slices.Clone(before), session.Position{Session: sid, Seq: e.Seq}))
	if err := w.trackers[sid].Apply(w.t.Context(), e); err != nil {
		w.t.Fatalf("apply %s: %v", e.Type, err)
	}
	return e
}

func (w *world) checkpoint(sid session.ID) checkpoint {
	cut := event.Seq(len(w.logs[sid]))
	if w.rand.IntN(2) == 0 { // the agent goes on while the checkpoint is stored
		w.put(sid, nil, event.MessageUser, event.MessageUserData{Text: "meanwhile", Delivery: event.Steer})
	}
	c := checkpoint{id.NewCheckpoint(), session.Position{Session: sid, Seq: cut}}
	w.put(sid, nil, event.CheckpointCreated, event.CheckpointCreatedData{CheckpointID: c.id, Kind: event.KindUser, CutSeq: cut})
	w.cuts[sid] = append(w.cuts[sid], c)
	return c
}

func (w *world) rollback(sid session.ID, to checkpoint) {
	undo := w.checkpoint(sid)
	before := w.lines[to.at.Session][to.at.Seq]
	w.put(sid, before, event.SessionRolledBack, event.SessionRolledBackData{
		CheckpointID: to.id, CutSession: to.at.Session, CutSeq: to.at.Seq, UndoCheckpointID: undo.id,
	})
}

// step does one random thing to one random session.
func (w *world) step() {
	sid := w.order[w.rand.IntN(len(w.order))]
	st := w.trackers[sid].State()
	switch n := w.rand.IntN(100); {
	case n < 15:
		w.put(sid, nil, event.MessageUser, event.MessageUserData{Text: "hi", Delivery: []event.Delivery{event.Steer, event.Queue}[n%2]})
	case n < 22:
		var take []event.Seq
		for _, p := range st.Pending {
			if p.Session == sid {
				take = append(take, p.Seq)
			}
		}
		w.put(sid, nil, event.TurnStarted, event.TurnStartedData{Messages: take})
	case n < 27:
		w.put(sid, nil, event.TurnFinished, event.TurnFinishedData{Reason: "answered"})
	case n < 35:
		w.put(sid, nil, event.ModelRequested, event.ModelRequestedData{Attempt: 1})
	case n < 42:
		w.put(sid, nil, event.ModelResponded, event.ModelRespondedData{Usage: event.Usage{Input: 3, Output: 1}})
	case n < 52:
		w.calls += 2
		w.put(sid, nil, event.MessageAgent, event.MessageAgentData{ToolCalls: []event.ToolCall{
			{CallID: fmt.Sprint("c", w.calls-1), Name: "run", Arguments: json.RawMessage(`{}`)}, {CallID: fmt.Sprint("c", w.calls), Name: "run", Arguments: json.RawMessage(`{}`)},
		}})
	case n < 80 && len(st.OpenTools) > 0:
		tool := st.OpenTools[w.rand.IntN(len(st.OpenTools))]
		switch {
		case tool.Requested == "":
			w.put(sid, nil, event.ToolRequested, event.ToolRequestedData{ToolCall: event.ToolCall{CallID: tool.CallID, Name: tool.Name, Arguments: tool.Arguments}})
		case !tool.Started:
			w.put(sid, nil, event.ToolStarted, event.ToolStartedData{CallID: tool.CallID, ExecID: id.Exec(tool.Requested)})
		default:
			w.put(sid, nil, event.ToolFinished, event.ToolFinishedData{CallID: tool.CallID, Outcome: event.OutcomeOK})
		}
	case n < 84:
		w.checkpoint(sid)
	case n < 94 && len(w.cuts[sid]) > 0:
		w.rollback(sid, w.cuts[sid][w.rand.IntN(len(w.cuts[sid]))])
	case n < 97 && len(w.cuts[sid]) > 0 && len(w.order) < 8:
		c := w.cuts[sid][w.rand.IntN(len(w.cuts[sid]))]
		child := w.create(fmt.Sprint("fork ", len(w.order)), &event.ForkOrigin{ParentID: c.at.Session, CheckpointID: c.id, CutSeq: c.at.Seq})
		w.birth(child, w.lines[c.at.Session][c.at.Seq])
		for _, known := range w.cuts[c.at.Session] { // what the parent could go back to at the cut
			if known.at.Session != c.at.Session || known.at.Seq <= c.at.Seq {
				w.cuts[child] = append(w.cuts[child], known)
			}
		}
	}
}

// expect is what the naive model says is open.
type expect struct {
	Pending   []session.Position
	Tools     map[string]string // call id → how far it got
	Abandoned map[string]bool
	Turn      session.Position
	Model     session.Position
}

func (w *world) expect(line []session.Position) expect {
	x := expect{Tools: map[string]string{}, Abandoned: map[string]bool{}}
	for _, p := range line {
		e := w.logs[p.Session][p.Seq-1]
		data, err := event.Decode(e)
		if err != nil {
			w.t.Fatal(err)
		}
		switch d := data.(type) {
		case *event.SessionCreatedData, *event.SessionRolledBackData:
			for c := range x.Tools {
				x.Abandoned[c] = true
			}
		case *event.MessageUserData:
			x.Pending = append(x.Pending, p)
		case *event.TurnStartedData:
			x.Turn = p
			x.Pending = slices.DeleteFunc(x.Pending, func(q session.Position) bool { return q.Session == p.Session && slices.Contains(d.Messages, q.Seq) })
		case *event.TurnFinishedData:
			x.Turn, x.Model = session.Position{}, session.Position{}
		case *event.ModelRequestedData:
			x.Model = p
			x.Pending = slices.DeleteFunc(x.Pending, func(q session.Position) bool {
				u, err := event.DecodeData[event.MessageUserData](w.logs[q.Session][q.Seq-1])
				return err == nil && u.Delivery == event.Steer
			})
		case *event.ModelRespondedData:
			x.Model = session.Position{}
		case *event.MessageAgentData:
			for _, c := range d.ToolCalls {
				x.Tools[c.CallID] = "asked"
			}
		case *event.ToolRequestedData:
			x.Tools[d.CallID] = "requested"
		case *event.ToolStartedData:
			x.Tools[d.CallID] = "started"
		case *event.ToolFinishedData:
			delete(x.Tools, d.CallID)
			delete(x.Abandoned, d.CallID)
		}
	}
	return x
}

func got(v session.View) expect {
	x := expect{Tools: map[string]string{}, Abandoned: map[string]bool{}}
	for _, p := range v.Pending {
		x.Pending = append(x.Pending, p.Position)
	}
	for _, c := range v.OpenTools {
		x.Tools[c.CallID] = "asked"
		if c.Requested != "" {
			x.Tools[c.CallID] = "requested"
		}
		if c.Started {
			x.Tools[c.CallID] = "started"
		}
		if c.Abandoned {
			x.Abandoned[c.CallID] = true
		}
	}
	if v.Turn != nil {
		x.Turn = v.Turn.Position
	}
	if v.OpenModel != nil {
		x.Model = v.OpenModel.Position
	}
	return x
}

func places(line session.Timeline) []session.Position {
	var out []session.Position
	for _, r := range line {
		for seq := r.From; seq <= r.To; seq++ {
			out = append(out, session.Position{Session: r.Session, Seq: seq})
		}
	}
	return out
}

// Random histories of rollbacks, undos, forks and forks of forks: the timeline is that of the naive model at every point, a
// live tracker and a fresh load know the same, and what is open is what the model says.
func TestTimelineAgainstNaiveModel(t *testing.T) {
	for seed := range uint64(40) {
		w := newWorld(t, seed)
		for range 150 {
			w.step()
		}
		for _, sid := range w.order {
			w.check(sid, seed)
		}
	}
}

func (w *world) check(sid session.ID, seed uint64) {
	w.t.Helper()
	live, fresh := w.trackers[sid], w.load(sid)
	if a, b := asJSON(w.t, live.State()), asJSON(w.t, fresh.State()); a != b {
		w.t.Fatalf("seed %d: a live tracker and a fresh load differ:\n%s", seed, cmp.Diff(a, b))
	}
	for n := 1; n < len(w.lines[sid]); n++ {
		line, err := session.TimelineAt(w.t.Context(), w, sid, event.Seq(n))
		if err != nil {
			w.t.Fatalf("seed %d: timeline at %d: %v", seed, n, err)
		}
		if diff := cmp.Diff(w.lines[sid][n], places(line)); diff != "" || line.Len() != len(w.lines[sid][n]) {
			w.t.Fatalf("seed %d: timeline of %s at %d:\n%s", seed, sid, n, diff)
		}
	}
	line := w.lines[sid][len(w.lines[sid])-1]
	if diff := cmp.Diff(w.expect(line), got(fresh.State().View), cmpopts.EquateEmpty()); diff != "" {
		w.t.Fatalf("seed %d: open in %s:\n%s", seed, sid, diff)
	}
	n := 1 + w.rand.IntN(len(w.lines[sid])-1)
	past, _, err := session.StateAt(w.t.Context(), w, sid, event.Seq(n))
	if err != nil || past.HeadSeq != event.Seq(n) {
		w.t.Fatalf("seed %d: state at %d: head %d, %v", seed, n, past.HeadSeq, err)
	}
	if diff := cmp.Diff(w.expect(w.lines[sid][n]), got(past.View), cmpopts.EquateEmpty()); diff != "" {
		w.t.Fatalf("seed %d: open in %s at %d:\n%s", seed, sid, n, diff)
	}
	if r, err := session.Verify(w.t.Context(), w, fresh.State().Summary); err != nil || !r.OK() || r.Events != len(w.logs[sid]) {
		w.t.Fatalf("seed %d: verify: %+v, %v", seed, r, err)
	}
}

func asJSON(t testing.TB, v any) string {
	t.Helper()
	raw, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
