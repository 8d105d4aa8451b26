package session_test

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/session"
)

var update = flag.Bool("update", false, "write the golden files anew")

// script is a session in the middle of its work: one of each thing is open.
func script(m *memLog) session.ID {
	sid := m.create("golden", nil)
	m.add(sid, event.WorkspaceStarted, event.WorkspaceStartedData{SandboxID: "sbx_1", Driver: "gvisor"})
	m.add(sid, event.MessageUser, event.MessageUserData{Text: "go", Delivery: event.Queue})
	m.add(sid, event.TurnStarted, event.TurnStartedData{Messages: []event.Seq{3}})
	m.add(sid, event.ModelRequested, event.ModelRequestedData{Model: "x", Messages: 2, Attempt: 1})
	m.add(sid, event.ModelFailed, event.ModelFailedData{Code: "overloaded", Retry: true})
	m.add(sid, event.ModelRequested, event.ModelRequestedData{Model: "x", Messages: 2, Attempt: 2})
	m.add(sid, event.ModelResponded, event.ModelRespondedData{Usage: event.Usage{Input: 100, Output: 20, Cached: 60, CostMicros: 7}})
	m.add(sid, event.MessageAgent, event.MessageAgentData{Text: "two things", ToolCalls: []event.ToolCall{
		{CallID: "a", Name: "run", Arguments: json.RawMessage(`{"command":"ls"}`)}, {CallID: "b", Name: "run", Cut: true, Arguments: json.RawMessage(`"{\"comm"`)},
	}})
	m.add(sid, event.ToolRequested, event.ToolRequestedData{ToolCall: event.ToolCall{CallID: "a", Name: "run", Arguments: json.RawMessage(`{"command":"ls"}`)}})
	m.add(sid, event.ToolStarted, event.ToolStartedData{CallID: "a", ExecID: "exec_a"})
	m.add(sid, event.ExecStarted, event.ExecStartedData{ExecID: "exec_client", Argv: []string{"sh"}})
	m.add(sid, event.LimitWarned, event.LimitData{Limit: "total_tokens", Used: 80, Max: 100})
	m.add(sid, event.MessageUser, event.MessageUserData{Text: "and this", Delivery: event.Steer})
	m.add(sid, event.CheckpointCreated, event.CheckpointCreatedData{CheckpointID: "ckpt_1", Kind: event.KindUser, Message: "mid-turn", CutSeq: 14})
	return sid
}

func TestStateGolden(t *testing.T) {
	m := newMemLog(t)
	sid := script(m)
	checkGolden(t, "mid_turn", m.load(sid).State())
	for _, call := range []string{"a", "b"} {
		m.add(sid, event.ToolFinished, event.ToolFinishedData{CallID: call, Outcome: event.OutcomeOK})
	}
	m.add(sid, event.TurnFinished, event.TurnFinishedData{Reason: "answered"})
	m.add(sid, event.ExecFinished, event.ExecFinishedData{ExecID: "exec_client"})
	checkGolden(t, "idle", m.load(sid).State())
	m.add(sid, event.CheckpointCreated, event.CheckpointCreatedData{CheckpointID: "ckpt_undo", Kind: event.KindUndo, CutSeq: 19})
	m.add(sid, event.SessionRolledBack, event.SessionRolledBackData{CheckpointID: "ckpt_1", CutSession: sid, CutSeq: 14, UndoCheckpointID: "ckpt_undo"})
	checkGolden(t, "rolled_back", m.load(sid).State())
	child := m.create("child", &event.ForkOrigin{ParentID: sid, CheckpointID: "ckpt_1", CutSeq: 14})
	checkGolden(t, "fork", m.load(child).State())
	m.add(sid, event.SessionRolledBack, event.SessionRolledBackData{CheckpointID: "ckpt_undo", CutSession: sid, CutSeq: 19, UndoCheckpointID: "ckpt_redo", Undo: true})
	checkGolden(t, "undone", m.load(sid).State())
}

// checkGolden compares with a file. Ids and hashes that differ from run to run are named by their kind.
func checkGolden(t *testing.T, name string, st session.State) {
	t.Helper()
	got := []byte(scrub(asJSON(t, st)) + "\n")
	path := "testdata/state/" + name + ".json"
	if *update {
		if err := os.MkdirAll("testdata/state", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s:\n%s", name, diff)
	}
}

func TestFoldLeavesItsArgumentAlone(t *testing.T) {
	m := newMemLog(t)
	sid := script(m)
	var st session.State
	for _, e := range m.logs[sid] {
		before := asJSON(t, st)
		next, err := session.Fold(st, e)
		if err != nil {
			t.Fatal(err)
		}
		again, err := session.Fold(st, e)
		if err != nil || asJSON(t, next) != asJSON(t, again) {
			t.Fatalf("%s: folding twice gives two states (%v)", e.Type, err)
		}
		if after := asJSON(t, st); after != before {
			t.Fatalf("%s changed its argument:\n%s", e.Type, cmp.Diff(before, after))
		}
		st = next
	}
}

func TestFoldSaysWhenTheTimelineMoved(t *testing.T) {
	m := newMemLog(t)
	sid := script(m)
	st := m.load(sid).State()
	e := m.add(sid, event.SessionRolledBack, event.SessionRolledBackData{CheckpointID: "ckpt_1", CutSession: sid, CutSeq: 4})
	if _, err := session.Fold(st, e); !errors.Is(err, session.ErrTimelineMoved) {
		t.Errorf("got %v", err)
	}
}

// A copy never drives what was open at the cut.
func TestOpenAtTheCutIsAbandoned(t *testing.T) {
	m := newMemLog(t)
	sid := script(m)
	child := m.create("child", &event.ForkOrigin{ParentID: sid, CheckpointID: "ckpt_1", CutSeq: 14})
	m.add(sid, event.SessionRolledBack, event.SessionRolledBackData{CheckpointID: "ckpt_1", CutSession: sid, CutSeq: 14})
	for _, s := range []session.ID{sid, child} {
		st := m.load(s).State()
		if st.Status != session.StatusIdle || st.OpenTurn != 0 {
			t.Errorf("status %s, turn %d: nothing runs in a copy", st.Status, st.OpenTurn)
		}
		if len(st.OpenTools) != 2 || !st.OpenTools[0].Abandoned || !st.OpenTools[1].Abandoned || !st.OpenTools[0].Started || st.OpenTools[1].Started {
			t.Errorf("open tools: %+v", st.OpenTools)
		}
		if st.Turn == nil || !st.Turn.Abandoned || len(st.Pending) != 1 || !st.Pending[0].Inherited {
			t.Errorf("turn %+v, pending %+v", st.Turn, st.Pending)
		}
		for _, x := range st.Execs {
			if !x.Abandoned {
				t.Errorf("exec %+v is not abandoned", x)
			}
		}
		m.add(s, event.ToolFinished, event.ToolFinishedData{CallID: "a", Outcome: event.OutcomeUnknown})
		m.add(s, event.MessageAgent, event.MessageAgentData{ToolCalls: []event.ToolCall{{CallID: "b", Name: "run"}}}) // the same id again, in another message
		m.add(s, event.ToolFinished, event.ToolFinishedData{CallID: "b", Outcome: event.OutcomeOK})
		if open := m.load(s).State().OpenTools; len(open) != 1 || open[0].CallID != "b" || !open[0].Abandoned {
			t.Errorf("the newest call of an id is meant; open: %+v", open)
		}
	}
	if st := m.load(sid).State(); st.Usage.Input != 100 || len(st.Warned) != 1 || len(st.Checkpoints) != 1 {
		t.Errorf("a rollback undid facts: %+v", st)
	}
}

func TestStatus(t *testing.T) {
	user := event.MessageUserData{Delivery: event.Queue}
	type step struct {
		typ    event.Type
		data   any
		status session.Status
		reason string
	}
	finish := func(reason string, status session.Status) []step {
		return []step{
			{event.MessageUser, user, session.StatusRunning, ""},
			{event.TurnStarted, event.TurnStartedData{}, session.StatusRunning, ""},
			{event.TurnFinished, event.TurnFinishedData{Reason: reason}, status, reason},
		}
	}
	for name, steps := range map[string][]step{
		"answered": finish("answered", session.StatusIdle),
		"limit":    finish("limit", session.StatusIdle),
		"canceled": finish("canceled", session.StatusCanceled),
		"failed":   finish("failed", session.StatusFailed),
		"finished in the turn": {
			{event.TurnStarted, event.TurnStartedData{}, session.StatusRunning, ""},
			{event.SessionFinished, event.SessionFinishedData{}, session.StatusFinished, "finished"},
			{event.TurnFinished, event.TurnFinishedData{Reason: "finished"}, session.StatusFinished, "finished"},
			{event.MessageUser, user, session.StatusRunning, "finished"},
		},
		"failed after it": {
			{event.TurnStarted, event.TurnStartedData{}, session.StatusRunning, ""},
			{event.TurnFinished, event.TurnFinishedData{Reason: "failed"}, session.StatusFailed, "failed"},
			{event.SessionFailed, event.SessionFailedData{Code: "model_unreachable"}, session.StatusFailed, "model_unreachable"},
		},
		"canceled with a turn": {
			{event.TurnStarted, event.TurnStartedData{}, session.StatusRunning, ""},
			{event.SessionCanceled, event.SessionCanceledData{}, session.StatusRunning, ""},
			{event.TurnFinished, event.TurnFinishedData{Reason: "canceled"}, session.StatusCanceled, "canceled"},
		},
		"canceled without": {
			{event.MessageUser, user, session.StatusRunning, ""},
			{event.SessionCanceled, event.SessionCanceledData{}, session.StatusCanceled, "canceled"},
		},
	} {
		m := newMemLog(t)
		sid := m.create(name, nil)
		for i, s := range steps {
			m.add(sid, s.typ, s.data)
			if st := m.load(sid).State(); st.Status != s.status || st.StopReason != s.reason {
				t.Errorf("%s, step %d: %s/%s, want %s/%s", name, i, st.Status, st.StopReason, s.status, s.reason)
			}
		}
	}
}

func TestBrokenLogsAreCorrupt(t *testing.T) {
	m := newMemLog(t)
	parent := script(m)
	for name, broken := range map[string]func(sid session.ID){
		"a hole":          func(sid session.ID) { m.logs[sid] = append(m.logs[sid][:2:2], m.logs[sid][3:]...) },
		"no birth":        func(sid session.ID) { m.logs[sid] = m.logs[sid][1:] },
		"a changed event": func(sid session.ID) { m.logs[sid][2].Data = json.RawMessage(`{"text":1}`) },
		"a foreign cut": func(sid session.ID) {
			m.add(sid, event.SessionRolledBack, event.SessionRolledBackData{CutSession: parent, CutSeq: 2})
		},
		"a cut ahead": func(sid session.ID) {
			m.add(sid, event.SessionRolledBack, event.SessionRolledBackData{CutSession: sid, CutSeq: 99})
		},
	} {
		sid := script(m)
		broken(sid)
		if _, err := session.Load(t.Context(), m, sid); errdefs.CodeOf(err) != event.CodeLogCorrupt {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// H5: a log of a million events loads in one pass and leaves nothing of it in memory.
func TestH5_LongSessionNeedsLittleMemory(t *testing.T) {
	sid := session.ID("sess_long")
	log := &endlessLog{id: sid, n: 1_000_000}
	start := time.Now()
	tr, err := session.Load(t.Context(), log, sid)
	if err != nil {
		t.Fatal(err)
	}
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	st := tr.State()
	t.Logf("%d events in %v, %d KB of heap in use", st.HeadSeq, time.Since(start), m.HeapAlloc>>10)
	if st.HeadSeq != 1_000_000 || m.HeapAlloc > 8<<20 {
		t.Errorf("head %d, heap %d bytes", st.HeadSeq, m.HeapAlloc)
	}
	if log.handed != log.n {
		t.Errorf("%d events were read for %d", log.handed, log.n)
	}
	if raw := asJSON(t, st); len(raw) > 4096 {
		t.Errorf("the state has %d bytes", len(raw))
	}
}
